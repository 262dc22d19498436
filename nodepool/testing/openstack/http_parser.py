# SPDX-License-Identifier: Apache-2.0
"""The name under which `nodepool.testing.simulator.http_parser` was known before."""

from __future__ import annotations

from nodepool.testing.simulator.http_parser import RequestParser

__all__ = ["RequestParser"]
