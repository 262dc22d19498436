# SPDX-License-Identifier: Apache-2.0
"""The contract suite, run against the built-in drivers."""
