# SPDX-License-Identifier: Apache-2.0
"""Backing nodes: who gets which slot, what is requested and released, and who could make one (rules T)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.model.component import PoolComponent
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.reasons import ReasonCode
from nodepool.plan.backing import (
    NEVER_SECONDS,
    Assignment,
    Backing,
    BackingKind,
    Release,
    Retain,
    Rules,
    accepts,
    assign,
    fate,
    makers_held,
    reason,
    share,
)

NOW = 1000.0
RULES: dict[str, Any] = {"slots": 3, "grace_seconds": 60, "min_retention_seconds": 0, "max_age_seconds": None}


def node(id: str, *holders: str | None, **changes: Any) -> Backing:
    """A backing node; empty ones have been so for a moment."""
    idle = None if any(holders) else 1.0
    values = {"kind": BackingKind("small", "big"), "failed": False, "age_seconds": 100.0, "idle_seconds": idle}
    return Backing(id, holders=holders, **{**values, **changes})


@pytest.mark.parametrize(
    ("backings", "limits", "expected"),
    [
        # T-7: the lowest free slot first. T-1: the fullest backing node, then the oldest.
        ([node("b1", None, "a", None)], {}, "b1/0 b1/2"),
        (
            [node("b3", None, None, None), node("b2", "a", None, "c"), node("b1", None, None, None)],
            {},
            "b2/1 b1/0 b1/1 b1/2 b3/0",
        ),
        ([node("b1", "a", "b", "c")], {}, ""),
        # T-9, T-11: not on one that failed or is too old.
        ([node("b1", None, "a", failed=True)], {}, ""),
        ([node("b1", None, "a", age_seconds=500.0)], {"max_age_seconds": 500}, ""),
        ([node("b1", None, "a", age_seconds=499.0)], {"max_age_seconds": 500}, "b1/0"),
    ],
)
def test_slots(backings: list[Backing], limits: dict[str, Any], expected: str) -> None:
    """T-1, T-7, T-9, T-11, T-10: none at all without a label."""
    found = assign(["1", "2", "3", "4", "5"], backings, Rules(**{**RULES, **limits}))
    assert " ".join(f"{one.backing_id}/{one.slot}" for one in found) == expected
    assert [one.node_id for one in found] == ["1", "2", "3", "4", "5"][: len(found)]
    assert not accepts(backings[0], None)
    assert assign([], backings, Rules(**RULES)) == []


@given(st.lists(st.lists(st.sampled_from([None, "used"]), min_size=1, max_size=4), max_size=6), st.integers(0, 12))
def test_no_slot_twice(occupied: list[list[str | None]], count: int) -> None:
    """T-1, T-7: each slot once, only free ones, and as many as there are."""
    backings = [node(f"b{number}", *holders) for number, holders in enumerate(occupied)]
    waiting = [f"n{number}" for number in range(count)]
    found: list[Assignment] = assign(waiting, backings, Rules(**RULES))
    places = {(one.backing_id, one.slot) for one in found}
    assert len(places) == len(found) == min(count, sum(holders.count(None) for holders in occupied))
    assert [one.node_id for one in found] == waiting[: len(found)]
    assert all(occupied[int(backing_id[1:])][slot] is None for backing_id, slot in places)


@pytest.mark.parametrize(
    ("waiting", "requests", "slots", "shares", "left"),
    [
        (dict.fromkeys("abcde"), ["r1"], 3, {"a": "r1", "b": "r1", "c": "r1"}, ["d", "e"]),
        ({"a": None, "b": "r2", "c": "r1"}, ["r1", "r2"], 1, {"b": "r2", "c": "r1"}, ["a"]),
        ({"a": "old", "b": "r1"}, ["r1"], 2, {"a": "r1", "b": "r1"}, []),
        ({"a": None}, [], 2, {}, ["a"]),
    ],
)
def test_shares(
    waiting: dict[str, str | None], requests: list[str], slots: int, shares: dict[str, str], left: list[str]
) -> None:
    """T-2: those that wait for a request stay with it; the others fill requests, or need another."""
    assert share(waiting, requests, slots) == (shares, left)


WAITING = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.sampled_from([None, "r1", "r2", "old"]))


@given(WAITING, st.integers(1, 4))
def test_each_has_a_share(waiting: dict[str, str | None], slots: int) -> None:
    """T-2: each waits for one request or needs another; those that are new never overfill one."""
    shares, left = share(waiting, ["r1", "r2"], slots)
    assert sorted([*shares, *left]) == sorted(waiting)
    for request in ("r1", "r2"):
        found = list(shares.values()).count(request)
        assert found <= max(slots, list(waiting.values()).count(request))
        assert not left or found >= slots


@pytest.mark.parametrize(
    ("backing", "limits", "expected"),
    [
        # Whatever is wrong with it: as long as it is used, it stays.
        (node("b", "a", None, failed=True, age_seconds=1e9), {"max_age_seconds": 1}, NEVER_SECONDS),
        # T-8: grace time and minimum retention time must both be over. T-9: no grace at the maximum age.
        (node("b", None, idle_seconds=20.0), {}, 40),
        (node("b", None, idle_seconds=60.5), {}, None),
        (node("b", None, idle_seconds=70.0, age_seconds=100.0), {"min_retention_seconds": 300}, 200),
        (node("b", None, idle_seconds=20.0, age_seconds=290.0), {"min_retention_seconds": 300}, 40),
        (node("b", None, idle_seconds=70.0, age_seconds=301.0), {"min_retention_seconds": 300}, None),
        (node("b", None, age_seconds=100.0), {"max_age_seconds": 120}, 20),
        (node("b", None, age_seconds=121.0), {"max_age_seconds": 120}, None),
        # T-11: at once.
        (node("b", None, failed=True), {"min_retention_seconds": 1e6}, None),
    ],
)
def test_fate(backing: Backing, limits: dict[str, Any], expected: float | None) -> None:
    """T-8, T-9, T-11, T-10: without a label an empty one goes at once."""
    found = fate(backing, Rules(**{**RULES, **limits}))
    assert isinstance(found, Release) if expected is None else found == Retain(expected)
    assert isinstance(fate(backing, None), Retain if expected == NEVER_SECONDS else Release)


# -- who could make one, and is any of them in service? (T-13)


def pool(provider: str, host: str = "l1", *, paused: bool = True, label: str = "big") -> PoolComponent:
    component = PoolComponent(host)
    component.id = f"{host}.example.com-PoolWorker.{provider}-main-0"
    component.provider_name, component.name = provider, "main"
    component.supported_labels, component.paused = [label], paused
    return component


def paused(kind: str, name: str, since: float = 900.0, until: float | None = None) -> Maintenance:
    return Maintenance(kind, name, Mode.PAUSE, "why", "alice@desk", since, until)


ONE, TWO, LABEL = paused("provider", "one"), paused("pool", "two/main", 950.0, 1100.0), paused("label", "big")
LAUNCHER = Maintenance("launcher", "l1.example.com", Mode.DRAIN)
OLD = pool("one", "old", paused=False)
FREE = pool("two", paused=False)


@pytest.mark.parametrize(
    ("pools", "records", "declined_by", "expected"),
    [
        ([pool("one")], [ONE], [], [ONE]),
        ([pool("one"), pool("two")], [ONE], [], []),
        ([pool("one"), pool("two")], [ONE, TWO], [], [ONE, TWO]),
        ([pool("one"), pool("one", "l2")], [ONE], [], [ONE]),
        ([pool("one"), pool("two", label="small")], [ONE], [], [ONE]),
        ([pool("one")], [LAUNCHER], [], [LAUNCHER]),
        ([pool("one"), pool("one", "l2")], [LAUNCHER], [], []),
        ([pool("one")], [paused("provider", "one", until=NOW)], [], []),
        ([pool("one"), FREE], [LABEL], [], [LABEL]),
        ([], [ONE, TWO], [], []),
        # MT-2: launchers of older releases do not know the records, and do not report that they are paused.
        ([pool("one"), OLD], [ONE], [], []),
        # Who declined does not count.
        ([pool("one"), FREE], [ONE], [], []),
        ([pool("one"), FREE], [ONE], [FREE.id], [ONE]),
        ([pool("one"), FREE], [ONE], [FREE.id, pool("one").id], []),
    ],
)
def test_makers_held(
    pools: list[PoolComponent], records: list[Maintenance], declined_by: list[str], expected: list[Maintenance]
) -> None:
    """T-13, MT-2: only if all who could make one are out of service."""
    found = {(record.kind, record.name): record for record in records}
    assert makers_held("big", pools, declined_by, found, NOW) == expected


def test_reason() -> None:
    """T-13: who did it, and when it ends."""
    found = reason("small", "big", [ONE, TWO])
    assert (found.code, found.numbers) == (ReasonCode.BACKING_HELD, {"since": 950.0, "until": 1100.0})
    assert found.text.startswith("label small needs a node of label big, which")
    assert found.text.endswith(
        ": provider one is paused by alice@desk: why; pool two/main is paused by alice@desk: why"
    )
    assert reason("small", "big", [ONE]).numbers == {"since": 900.0}
