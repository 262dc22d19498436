# SPDX-License-Identifier: Apache-2.0
"""One module a scenario; `benchmarks.registry` lists them."""
