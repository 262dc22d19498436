# SPDX-License-Identifier: Apache-2.0
"""Sections that may be anything."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.framework.raw_sections import mappings


@pytest.mark.parametrize("data", [None, 7, {}, {"pools": None}, {"pools": {"a": {}}}, {"pools": 7}, {"pools": "ab"}])
def test_nothing(data: Any) -> None:
    assert list(mappings(data, "pools")) == []


def test_mappings() -> None:
    assert list(mappings({"pools": [7, {"a": 1}, None, {}]}, "pools")) == [(1, {"a": 1}), (3, {})]
