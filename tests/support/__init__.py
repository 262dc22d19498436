# SPDX-License-Identifier: Apache-2.0
"""Real parts and helpers that tests and benchmarks share: servers, clients, processes."""
