# SPDX-License-Identifier: Apache-2.0
"""Providers on the framework, with a cloud and a ZooKeeper in memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.statemachine import StateMachineProvider, inventory, lost_creations
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan import launch as plan
from nodepool.plan import retries
from nodepool.plan.retries import Backoff
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.driver_site import DriverSite
from tests.support.machine_driver import MachineAdapter, MachineDriver
from tests.support.wait import DEADLINE_SECONDS


class Site(DriverSite):
    """A started provider with one pool and two labels, and the adapter behind it."""

    provider: StateMachineProvider

    def __init__(self, zk: MemoryZooKeeper, cloud: str, settings: dict[str, Any], pool: dict[str, Any]) -> None:
        label = pool.pop("label", {})
        labels = [{"name": "small", "cores": 2, "ram": 2048, **label}, {"name": "large", "cores": 8}]
        section = {
            "name": "nowhere",
            "driver": "machines",
            "cloud": cloud,
            "pools": [{"name": "main", "labels": labels, **pool}],
            **settings,
        }
        super().__init__(MachineDriver(), section, zk)
        self.adapter = cast(MachineAdapter, self.provider.adapter)
        self.cloud = self.adapter.cloud

    def delete(self, node: Node) -> None:
        """As the launcher's deletion worker does; waits for the end."""
        node.state = states.DELETING
        self.zk.nodes.lock_and_save(node)
        self.provider.startNodeCleanup(node).join(DEADLINE_SECONDS)


MakeSite = Callable[..., Site]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that only matter to a real cloud."""
    monkeypatch.setattr(plan, "RETRY", Backoff(0.01, 8.0))
    monkeypatch.setattr(plan, "PACE", Backoff(0.1, 0.1))
    monkeypatch.setattr(lost_creations, "LOOK_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(retries, "PROBE", Backoff(0.1, 30.0))
    monkeypatch.setattr(inventory, "ERROR_SECONDS", 0.1)


@pytest.fixture
def zk() -> MemoryZooKeeper:
    return MemoryZooKeeper()


@pytest.fixture
def make_site(zk: MemoryZooKeeper) -> Iterator[MakeSite]:
    """Makes started providers: ``make_site({"launch-retries": 1}, **{"max-servers": 2})``; ``label``: of ``small``."""
    cloud = f"site-{uuid.uuid4().hex[:8]}"
    sites: list[Site] = []

    def make(settings: dict[str, Any] | None = None, **pool: Any) -> Site:
        sites.append(Site(zk, cloud, settings or {}, pool))
        return sites[-1]

    yield make
    for site in sites:
        site.end()
    FakeCloud.forget(cloud)
