# SPDX-License-Identifier: Apache-2.0
"""Who could make a backing node, and is any of them in service? (T-13)"""

from __future__ import annotations

import pytest

from nodepool.model.component import PoolComponent
from nodepool.model.maintenance import Maintenance, MaintenanceRecords, Mode
from nodepool.model.reasons import ReasonCode
from nodepool.plan import backing

NOW = 1000.0


def pool(provider: str, host: str = "l1", *, paused: bool = True, label: str = "big") -> PoolComponent:
    component = PoolComponent(host)
    component.id = f"{host}.example.com-PoolWorker.{provider}-main-0"
    component.provider_name, component.name = provider, "main"
    component.supported_labels, component.paused = [label], paused
    return component


def paused(kind: str, name: str, since: float = 900.0, until: float | None = None) -> Maintenance:
    return Maintenance(kind, name, Mode.PAUSE, "why", "alice@desk", since, until)


ONE, TWO = paused("provider", "one"), paused("pool", "two/main", 950.0, 1100.0)
LAUNCHER = Maintenance("launcher", "l1.example.com", Mode.DRAIN)
LABEL = paused("label", "big")


def held(pools: list[PoolComponent], *found: Maintenance, declined_by: tuple[str, ...] = ()) -> list[Maintenance]:
    records: MaintenanceRecords = {(record.kind, record.name): record for record in found}
    return backing.makers_held("big", pools, declined_by, records, NOW)


@pytest.mark.parametrize(
    ("pools", "records", "expected"),
    [
        ([pool("one")], (ONE,), [ONE]),
        ([pool("one"), pool("two")], (ONE,), []),
        ([pool("one"), pool("two")], (ONE, TWO), [ONE, TWO]),
        ([pool("one"), pool("one", "l2")], (ONE,), [ONE]),
        ([pool("one"), pool("two", label="small")], (ONE,), [ONE]),
        ([pool("one")], (LAUNCHER,), [LAUNCHER]),
        ([pool("one"), pool("one", "l2")], (LAUNCHER,), []),
        ([pool("one")], (paused("provider", "one", until=NOW),), []),
        ([pool("one"), pool("two", paused=False)], (LABEL,), [LABEL]),
        ([], (ONE, TWO), []),
    ],
)
def test_makers_held(pools: list[PoolComponent], records: tuple[Maintenance, ...], expected: list[Maintenance]) -> None:
    """T-13: only if all who could make one are out of service."""
    assert held(pools, *records) == expected


def test_launchers_of_older_releases() -> None:
    """T-13, MT-2: they do not know the records, and do not say that they are paused."""
    assert held([pool("one"), pool("one", "old", paused=False)], ONE) == []


def test_who_declined_does_not_count() -> None:
    """T-13."""
    both = [pool("one"), pool("two", paused=False)]
    assert held(both, ONE) == []
    assert held(both, ONE, declined_by=(both[1].id,)) == [ONE]
    assert held(both, ONE, declined_by=tuple(one.id for one in both)) == []


def test_reason() -> None:
    """T-13: who did it, and when it ends."""
    reason = backing.reason("small", "big", [ONE, TWO])
    assert reason.code is ReasonCode.BACKING_HELD
    assert reason.text == (
        "label small needs a node of label big, which nobody makes now: provider one is paused by alice@desk: why; "
        "pool two/main is paused by alice@desk: why"
    )
    assert reason.numbers == {"since": 950.0, "until": 1100.0}
    assert backing.reason("small", "big", [ONE]).numbers == {"since": 900.0}
