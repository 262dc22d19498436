# SPDX-License-Identifier: Apache-2.0
"""Node launcher for Zuul: single-use test nodes from clouds and static hosts."""
