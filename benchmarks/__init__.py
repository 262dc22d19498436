# SPDX-License-Identifier: Apache-2.0
"""Measurements against the released package. Run as modules, e.g. ``python -m benchmarks.static --help``."""
