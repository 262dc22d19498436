# SPDX-License-Identifier: Apache-2.0
"""The main loop by its single turn, how a launcher begins and ends, and the pools of all launchers (rules G, A-15)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.launcher.shared import ABSENT_SECONDS, PoolRegistry
from nodepool.model.status import PoolComponent
from tests.support.local_launcher import fake_provider
from tests.support.manual_clock import ManualClock
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.unit.launcher.conftest import Still


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    return still([fake_provider(name, cloud=cloud_name) for name in ("one", "two")])


def test_dead_threads(launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-1, G-3, G-7, G-16: others take their places, but not without a connection.

    The entry of a dead pool goes, or it would keep requests from failing.
    """
    nodepool = launcher.nodepool

    def threads() -> list[Any]:
        helpers = [nodepool.deletion.current, nodepool.cleanup.current, nodepool.min_ready.current]
        watch = [thread for thread in nodepool.parts.threads() if thread.name == "CallWatch"]
        return [launcher.worker("one"), *helpers, *watch]

    dead = threads()
    with monkeypatch.context() as patch:
        patch.setattr(type(nodepool.client), "connected", property(lambda client: False))
        patch.setattr(PoolWorker, "is_alive", lambda worker: False)
        nodepool.run_once()
        assert nodepool.pool_threads.get("one", "main") is dead[0]
    for thread in dead:
        thread.stop()
    nodepool.run_once()
    assert [pool["provider_name"] for pool in znodes.pools()] == ["two"]
    for old, new in zip(dead, threads(), strict=True):
        assert new is not old
        assert type(new) is type(old)
    assert len(znodes.pools()) == 2


# -- the pools of all launchers


class Registry(PoolRegistry):
    """With a cache that the test fills."""

    def __init__(self) -> None:
        self.records: list[PoolComponent] = []
        self.meanwhile: list[PoolComponent] | None = None
        self.clock, self.asked = ManualClock(), 0
        super().__init__(cast(Any, self), self.clock)

    def values(self) -> list[PoolComponent]:
        self.asked += 1
        found = list(self.records)
        if self.meanwhile is not None:
            self.records, self.meanwhile = self.meanwhile, None
            self.changed()
        return found

    def put(self, *pools: tuple[str, ...]) -> list[str]:
        """The ids of those that went, after a change.

        :param pools: id and labels of each.
        """
        self.records = []
        for pool_id, *labels in pools:
            self.records.append(PoolComponent("localhost", "test"))
            self.records[-1].id, self.records[-1].supported_labels = pool_id, labels or [f"label-{pool_id}"]
        self.changed()
        self.registered()
        return [info.id for info in self.absent()]


def test_pools_that_went() -> None:
    """A-15: they are waited for, but not for ever, and not when they are back. A-5: no view is older than a change."""
    registry = Registry()
    assert registry.put(("a",), ("b",), ("c",)) == []
    registry.gone_for_good("c")
    assert registry.put(("a",)) == ["b"]
    assert [info.supports(["label-b"]) for info in registry.absent()] == [True]
    registry.clock.pass_seconds(ABSENT_SECONDS - 1)
    assert [info.id for info in registry.absent()] == ["b"]
    assert registry.put(("a",), ("b",)) == []
    assert registry.put(("a",)) == ["b"]
    registry.clock.pass_seconds(ABSENT_SECONDS)
    assert registry.absent() == []
    asked = registry.asked
    registry.registered()
    assert registry.asked == asked, "nothing has changed"
    registry.meanwhile = []
    registry.changed()
    assert [len(registry.registered()) for _ in range(2)] == [1, 0]


def test_pool_under_a_new_id() -> None:
    """A-15: a launcher that was started again has new ids for the same pools: the old ones are not waited for.

    Of two launchers of a host the one that stays is not taken for the one that went, which has a label of its own.
    """
    registry = Registry()
    name = "host-PoolWorker.cloud-{}-{}".format
    old, new, other = (name(pool, end * 32) for pool, end in (("a", "0"), ("a", "1"), ("b", "2")))
    assert registry.put((old, "x")) == []
    assert registry.put((other, "x")) == [old]
    assert registry.put((other, "x"), (new, "x", "y")) == []
    registry = Registry()
    one, two, back = (name("main", end * 32) for end in "012")
    registry.put((one, "both", "one"), (two, "both", "two"))
    assert registry.put((one, "both", "one")) == [two]
    assert registry.put((one, "both", "one"), (back, "both", "two")) == []
