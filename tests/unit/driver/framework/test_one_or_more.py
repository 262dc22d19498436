# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.one_or_more`."""

from __future__ import annotations

from nodepool.driver.framework.one_or_more import as_texts, in_order


def test_in_order() -> None:
    assert in_order("a") == ["a"]
    assert in_order(["b", "a"]) == ["b", "a"]


def test_as_texts() -> None:
    assert as_texts({"release": 12, 3: True}) == {"release": "12", "3": "True"}
