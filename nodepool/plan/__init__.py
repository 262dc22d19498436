# SPDX-License-Identifier: Apache-2.0
"""Pure decisions: values in, a decision with its reason out. No clock, threads, I/O or logging."""
