# SPDX-License-Identifier: Apache-2.0
"""The benchmark suite itself: scenarios as data, goals, statistics, report, plots. Measures nothing."""
