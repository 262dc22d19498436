# SPDX-License-Identifier: Apache-2.0
"""Backing nodes: who gets which slot, what is requested, what is released (rules T)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.plan import backing
from nodepool.plan.backing import Assignment, Backing, BackingKind, Release, Retain, Rules

KIND = BackingKind("small", "big")
RULES = Rules(slots=3, grace_seconds=60, min_retention_seconds=0, max_age_seconds=None)


def rules(**changes: Any) -> Rules:
    return Rules(**{**vars(RULES), **changes})


def node(id: str, *holders: str | None, **changes: Any) -> Backing:
    """A backing node; empty ones have been so for a moment."""
    values = {
        "kind": KIND,
        "holders": holders,
        "failed": False,
        "age_seconds": 100.0,
        "idle_seconds": None if any(holders) else 1.0,
    }
    return Backing(id, **{**values, **changes})


class TestAssign:
    def test_lowest_free_slot_first(self) -> None:
        """T-7."""
        found = backing.assign(["x", "y"], [node("b1", None, "a", None)], RULES)
        assert found == [Assignment("x", "b1", 0), Assignment("y", "b1", 2)]

    def test_fullest_first_then_oldest(self) -> None:
        """T-1: those that are nearly empty shall become empty."""
        backings = [node("b3", None, None, None), node("b2", "a", None, "c"), node("b1", None, None, None)]
        found = backing.assign(["1", "2", "3", "4", "5"], backings, RULES)
        places = [(a.backing_id, a.slot) for a in found]
        assert places == [("b2", 1), ("b1", 0), ("b1", 1), ("b1", 2), ("b3", 0)]
        assert [a.node_id for a in found] == ["1", "2", "3", "4", "5"]

    def test_nobody_waits(self) -> None:
        assert backing.assign([], [node("b1", None)], RULES) == []

    def test_no_room(self) -> None:
        assert backing.assign(["x"], [node("b1", "a", "b", "c")], RULES) == []

    @pytest.mark.parametrize(
        ("changes", "limits"),
        [
            ({"failed": True}, {}),
            ({"age_seconds": 500.0}, {"max_age_seconds": 500}),
            ({"age_seconds": 501.0}, {"max_age_seconds": 500}),
        ],
        ids=["failed", "max-age", "older"],
    )
    def test_not_on_these(self, changes: dict[str, Any], limits: dict[str, Any]) -> None:
        """T-9, T-11."""
        assert backing.assign(["x"], [node("b1", None, "a", **changes)], rules(**limits)) == []

    def test_not_without_a_label(self) -> None:
        """T-10."""
        assert not backing.accepts(node("b1", None), None)
        assert backing.accepts(node("b1", None), RULES)

    @given(
        st.lists(st.lists(st.sampled_from([None, "used"]), min_size=1, max_size=4), max_size=6),
        st.integers(0, 12),
    )
    def test_no_slot_twice(self, occupied: list[list[str | None]], count: int) -> None:
        """Each slot once, only free ones, and as many as there are."""
        backings = [node(f"b{number}", *holders) for number, holders in enumerate(occupied)]
        waiting = [f"n{number}" for number in range(count)]
        found = backing.assign(waiting, backings, RULES)
        places = [(a.backing_id, a.slot) for a in found]
        assert len(set(places)) == len(places) == min(count, sum(holders.count(None) for holders in occupied))
        assert [a.node_id for a in found] == waiting[: len(found)]
        assert all(occupied[int(backing_id[1:])][slot] is None for backing_id, slot in places)


class TestShare:
    """T-2."""

    def test_up_to_the_slots(self) -> None:
        shares, left = backing.share(dict.fromkeys("abcde"), ["r1"], 3)
        assert shares == {"a": "r1", "b": "r1", "c": "r1"}
        assert left == ["d", "e"]

    def test_those_who_wait_stay(self) -> None:
        shares, left = backing.share({"a": None, "b": "r2", "c": "r1"}, ["r1", "r2"], 1)
        assert shares == {"b": "r2", "c": "r1"}
        assert left == ["a"]

    def test_a_request_that_is_gone(self) -> None:
        shares, left = backing.share({"a": "gone", "b": "r1"}, ["r1"], 2)
        assert shares == {"a": "r1", "b": "r1"}
        assert left == []

    def test_nothing_requested_yet(self) -> None:
        assert backing.share({"a": None}, [], 2) == ({}, ["a"])

    @given(
        st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.sampled_from([None, "r1", "r2", "gone"])),
        st.integers(1, 4),
    )
    def test_nobody_is_lost(self, waiting: dict[str, str | None], slots: int) -> None:
        """Each waits for one request or needs another; those that are new never overfill one."""
        shares, left = backing.share(waiting, ["r1", "r2"], slots)
        assert sorted([*shares, *left]) == sorted(waiting)
        for request in ("r1", "r2"):
            before = list(waiting.values()).count(request)
            assert list(shares.values()).count(request) <= max(slots, before)
        if left:
            assert all(list(shares.values()).count(request) >= slots for request in ("r1", "r2"))


class TestFate:
    def test_in_use(self) -> None:
        """Whatever is wrong with it: as long as somebody is on it, it stays."""
        used = node("b1", "a", None, failed=True, age_seconds=1e9)
        assert backing.fate(used, rules(max_age_seconds=1)) == Retain(backing.NEVER_SECONDS)
        assert backing.fate(used, None) == Retain(backing.NEVER_SECONDS)

    def test_grace_time(self) -> None:
        """T-8."""
        assert backing.fate(node("b1", None, idle_seconds=20.0), RULES) == Retain(40)
        assert isinstance(backing.fate(node("b1", None, idle_seconds=60.5), RULES), Release)

    def test_min_retention_time(self) -> None:
        """T-8: both times must be over."""
        limits = rules(min_retention_seconds=300)
        assert backing.fate(node("b1", None, idle_seconds=70.0, age_seconds=100.0), limits) == Retain(200)
        assert backing.fate(node("b1", None, idle_seconds=20.0, age_seconds=290.0), limits) == Retain(40)
        assert isinstance(backing.fate(node("b1", None, idle_seconds=70.0, age_seconds=301.0), limits), Release)

    def test_max_age(self) -> None:
        """T-9: no grace."""
        limits = rules(max_age_seconds=120)
        assert backing.fate(node("b1", None, age_seconds=100.0), limits) == Retain(20)
        assert isinstance(backing.fate(node("b1", None, age_seconds=121.0), limits), Release)

    def test_label_gone(self) -> None:
        """T-10: at once."""
        assert isinstance(backing.fate(node("b1", None, kind=None), None), Release)

    def test_failed(self) -> None:
        """T-11: at once, whatever its minimum life is."""
        assert isinstance(backing.fate(node("b1", None, failed=True), rules(min_retention_seconds=1e6)), Release)
