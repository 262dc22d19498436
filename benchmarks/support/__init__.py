# SPDX-License-Identifier: Apache-2.0
"""Parts of the benchmarks: candidates, load, counters, report."""
