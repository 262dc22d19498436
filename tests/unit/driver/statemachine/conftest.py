# SPDX-License-Identifier: Apache-2.0
"""Providers on the framework, with a cloud and a ZooKeeper in memory."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, cast

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.framework.fact import Patience
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.statemachine import Instance, StateMachineProvider
from nodepool.driver.statemachine.cloud import InstanceFinder
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.launch import after_failure
from nodepool.plan.retries import Backoff, CircuitBreaker
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.driver_site import DriverSite
from tests.support.machine_driver import MachineAdapter, MachineDriver, MachineInstance
from tests.support.wait import DEADLINE_SECONDS


def home(of: Any) -> ModuleType:
    """The module of a class or function, where its constants are."""
    return sys.modules[of.__module__]


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
        #: Results of launches as they end.
        self.results: list[str] = []
        note: Callable[..., None] = lambda node, result, text="": self.results.append(result)  # noqa: E731
        self.worker.launch_ended = note  # type: ignore[method-assign]

    def accept(self, *labels: str) -> NodeRequestHandler:
        """The handler of a new request, which has begun."""
        return self.worker.accept(self.worker.submit(*labels))

    def delete(self, node: Node) -> None:
        """As the launcher's deletion worker does; waits for the end."""
        node.state = states.DELETING
        self.zk.nodes.lock_and_save(node)
        self.provider.startNodeCleanup(node).join(DEADLINE_SECONDS)

    def sweep(self, times: int = 1) -> None:
        for _ in range(times):
            self.provider.cleanupLeakedResources()

    def ids(self) -> list[str]:
        """Of the instances that there are."""
        return [instance.id for instance in self.cloud.instances()]


def loads(patch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Instances say this of themselves, besides what the cloud shows."""
    plain = MachineInstance.load

    def load(self: Instance, found: Any) -> None:
        plain(self, found)  # type: ignore[arg-type]
        vars(self).update(fields)

    patch.setattr(MachineInstance, "load", load)


MakeSite = Callable[..., Site]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that only matter to a real cloud."""
    monkeypatch.setattr(home(after_failure), "RETRY", Backoff(0.01, 8.0))
    monkeypatch.setattr(home(after_failure), "PACE", Backoff(0.1, 0.1))
    monkeypatch.setattr(home(InstanceFinder), "LOOK_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(home(CircuitBreaker), "PROBE", Backoff(0.1, 30.0))
    monkeypatch.setattr(home(Patience), "ERROR_SECONDS", 0.1)


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
