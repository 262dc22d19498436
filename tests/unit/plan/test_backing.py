# SPDX-License-Identifier: Apache-2.0
"""Backing nodes: who gets which slot, what is requested and released, and who could make one (rules T)."""

from __future__ import annotations

import math
from typing import Any

from nodepool.model.reasons import ReasonCode
from nodepool.model.status import Maintenance, Mode, PoolComponent
from nodepool.plan import backing as plan
from tests.support.tables import rows

NOW = 1000.0


def rules(**limits: Any) -> plan.Rules:
    some = {"slots": 3, "grace_seconds": 60, "min_retention_seconds": 0, "max_age_seconds": None}
    return plan.Rules(**{**some, **limits})


def backing(id: str, holders: tuple[str | None, ...], **changes: Any) -> plan.Backing:
    """A backing node; empty ones have been so for a moment."""
    idle = None if any(holders) else 1.0
    values = {"kind": plan.BackingKind("small", "big"), "failed": False, "age_seconds": 100.0, "idle_seconds": idle}
    return plan.Backing(id, holders=holders, **{**values, **changes})


@rows(__file__, "slots_of_backing_nodes")
def test_slots(backings: dict[str, str], max_age: float | None, expected: str) -> None:
    """T-1, T-7, T-9, T-11, T-10: none at all without a label."""
    there = []
    for name, text in backings.items():
        holders, _, more = text.partition(" ")
        changes: dict[str, Any] = {"age_seconds": float(more)} if more.isdigit() else {"failed": bool(more)}
        there.append(backing(name, tuple(None if one == "-" else one for one in holders), **changes))
    found = plan.assign(["1", "2", "3", "4", "5"], there, rules(max_age_seconds=max_age))
    assert " ".join(f"{one.backing_id}/{one.slot}" for one in found) == expected
    assert [one.node_id for one in found] == ["1", "2", "3", "4", "5"][: len(found)]
    assert not plan.accepts(there[0], None)
    assert plan.assign([], there, rules()) == []


@rows(__file__, "shares")
def test_shares(
    waiting: dict[str, str | None], requests: list[str], slots: int, shares: dict[str, str], left: list[str]
) -> None:
    """T-2"""
    assert plan.share(waiting, requests, slots) == (shares, left)


@rows(__file__, "fate")
def test_fate(backing_: dict[str, Any], limits: dict[str, Any], expected: float | None) -> None:
    """T-8, T-9, T-11, T-10: without a label an empty one goes at once."""
    one = backing("b", (None,), **backing_)
    found = plan.fate(one, rules(**limits))
    assert isinstance(found, plan.Release) if expected is None else found == plan.Retain(expected)
    assert isinstance(plan.fate(one, None), plan.Retain if expected == math.inf else plan.Release)


# -- who could make one, and is any of them in service? (T-13)


def pool(text: str) -> PoolComponent:
    provider, host, label, *free = text.split()
    component = PoolComponent(host)
    component.id = f"{host}.example.com-PoolWorker.{provider}-main-0"
    component.provider_name, component.name = provider, "main"
    component.supported_labels, component.paused = [label], not free
    return component


def record(text: str, since: float = 900.0) -> Maintenance:
    kind, name, *until = text.split()
    mode = Mode.DRAIN if kind == "launcher" else Mode.PAUSE
    return Maintenance(kind, name, mode, "why", "alice@desk", since, float(until[0]) if until else None)


@rows(__file__, "makers_held")
def test_makers_held(pools: list[str], records: list[str], declined_by: list[str], expected: list[str]) -> None:
    """T-13, MT-2"""
    held = {(one.kind, one.name): one for one in map(record, records)}
    ids = [pool(f"{text} big").id for text in declined_by]
    found = plan.makers_held("big", map(pool, pools), ids, held, NOW)
    assert [f"{one.kind} {one.name}" for one in found] == expected


def test_reason() -> None:
    """T-13: who did it, and when it ends."""
    one, two = record("provider one"), record("pool two/main 1100", 950.0)
    found = plan.reason("small", "big", [one, two])
    assert (found.code, found.numbers) == (ReasonCode.BACKING_HELD, {"since": 950.0, "until": 1100.0})
    assert found.text.startswith("label small needs a node of label big, which")
    assert found.text.endswith(f": {one.text}; {two.text}")
    assert plan.reason("small", "big", [one]).numbers == {"since": 900.0}
