# SPDX-License-Identifier: Apache-2.0
"""Fixtures with the real Zuul client."""

from __future__ import annotations

from tests.support.zuul_fixtures import zuul, zuul_log

__all__ = ["zuul", "zuul_log"]
