# SPDX-License-Identifier: Apache-2.0
"""Launchers under faults: nothing is lost, nothing leaks, no limit is broken (explanation/reliability-tests.rst)."""
