# SPDX-License-Identifier: Apache-2.0
"""The pools of all launchers, and those that went a moment ago (rule A-15)."""

from __future__ import annotations

from typing import Any

from nodepool.launcher.pool_registry import ABSENT_SECONDS, PoolRegistry
from nodepool.model.component import PoolComponent
from tests.support.manual_clock import ManualClock


class Records:
    """The cache of the registry."""

    def __init__(self) -> None:
        self.pools: list[PoolComponent] = []
        self.asked = 0

    def values(self) -> list[PoolComponent]:
        self.asked += 1
        return list(self.pools)


def pool(pool_id: str, *labels: str) -> PoolComponent:
    made = PoolComponent("localhost", "test")
    made.id, made.supported_labels = pool_id, list(labels) or [f"label-{pool_id}"]
    return made


def ids(pools: Any) -> list[str]:
    return [info.id for info in pools]


def test_pools_that_went() -> None:
    """They are waited for, but not for ever, and not when they are back."""
    clock, records = ManualClock(), Records()
    registry = PoolRegistry(records, clock)  # type: ignore[arg-type]
    records.pools = [pool("a"), pool("b"), pool("c")]
    assert ids(registry.registered()) == ["a", "b", "c"]
    assert registry.absent() == []
    registry.gone_for_good("c")
    records.pools = records.pools[:1]
    assert ids(registry.registered()) == ["a", "b", "c"], "it is told when something changes"
    registry.changed()
    assert ids(registry.registered()) == ["a"]
    (absent,) = registry.absent()
    assert absent.supports(["label-b"])
    clock.pass_seconds(ABSENT_SECONDS - 1)
    assert ids(registry.absent()) == ["b"]
    records.pools.append(pool("b"))
    registry.changed()
    assert registry.absent() == []
    records.pools.pop()
    registry.changed()
    assert ids(registry.absent()) == ["b"]
    clock.pass_seconds(ABSENT_SECONDS)
    assert registry.absent() == []
    asked = records.asked
    registry.registered()
    assert records.asked == asked, "nothing has changed"


def test_pool_under_a_new_id() -> None:
    """A launcher that was started again has new ids for the same pools: the old ones are not waited for."""
    records = Records()
    registry = PoolRegistry(records, ManualClock())  # type: ignore[arg-type]
    old, new, other = (f"host-PoolWorker.one-{name}-{end * 32}" for name, end in (("a", "0"), ("a", "1"), ("b", "2")))
    records.pools = [pool(old, "x")]
    registry.registered()
    records.pools = [pool(other, "x")]
    registry.changed()
    assert ids(registry.absent()) == [old]
    records.pools.append(pool(new, "x", "y"))
    registry.changed()
    assert registry.absent() == []


def test_two_launchers_of_one_host() -> None:
    """The one that stays is not taken for the one that went, which has a label of its own."""
    records = Records()
    registry = PoolRegistry(records, ManualClock())  # type: ignore[arg-type]
    one, two, back = (f"host-PoolWorker.cloud-main-{end * 32}" for end in "012")
    records.pools = [pool(one, "both", "one"), pool(two, "both", "two")]
    registry.registered()
    records.pools.pop()
    registry.changed()
    (absent,) = registry.absent()
    assert absent.id == two
    records.pools.append(pool(back, "both", "two"))
    registry.changed()
    assert registry.absent() == []
