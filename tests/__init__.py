# SPDX-License-Identifier: Apache-2.0
"""The test suite. A package, so that `tests.support` is found whatever else is installed."""
