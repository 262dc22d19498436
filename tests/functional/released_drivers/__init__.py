# SPDX-License-Identifier: Apache-2.0
"""The drivers of the released nodepool 11.0.0, unchanged, in our launcher. See tox environment ``released-drivers``."""
