# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.told_once`."""

from __future__ import annotations

from nodepool.driver.framework.told_once import ToldOnce


def test_once() -> None:
    """The first list shows what was there before."""
    told = ToldOnce()
    assert told.new({"a"}) == []
    assert told.new({"a", "c", "b"}) == ["b", "c"]
    assert told.new({"a", "b", "c"}) == []


def test_lists_in_another_order() -> None:
    """An older list that lacks it does not make it new."""
    told = ToldOnce()
    told.new(())
    assert told.new({"a"}) == ["a"]
    assert told.new(()) == []
    assert told.new({"a"}) == []


def test_many() -> None:
    """Only those of the latest list are kept when there are many."""
    told = ToldOnce(many=2)
    told.new(())
    assert [told.new(found) for found in ({"a"}, {"a", "b"}, {"b", "c"}, {"c", "a"})] == [["a"], ["b"], ["c"], ["a"]]
