# SPDX-License-Identifier: Apache-2.0
"""Metastatic providers, with backing nodes and a ZooKeeper in memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.metastatic import MetastaticDriver
from nodepool.driver.metastatic.backing import BackingRequests
from nodepool.driver.metastatic.provider import MetastaticProvider, SlotAllocator
from nodepool.exceptions import ZKConflict
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.launch import Retry
from nodepool.plan.retries import Backoff
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.backing_pool import BackingPool
from tests.support.driver_site import DriverSite
from tests.support.wait import DEADLINE_SECONDS, wait_for

OWNER = "NodePool:metastatic:shared"
#: Longer than any test.
NEVER = 10_000


def change_user_data(zk: MemoryZooKeeper, backing_id: str, **changes: object) -> None:
    """As another launcher would; None removes a key."""
    while True:
        node = zk.getNode(backing_id)
        assert node is not None
        data = {**json.loads(node.user_data), **changes}
        node.user_data = json.dumps({key: value for key, value in data.items() if value is not None})
        try:
            zk.storeNode(node)
        except ZKConflict:
            continue
        return


class Site(DriverSite):
    """A started provider with one pool; label ``small`` is on two slots of label ``big``.

    :param label: settings of the label; the grace time is longer than the test unless it says otherwise.
    """

    provider: MetastaticProvider

    def __init__(self, zk: MemoryZooKeeper, label: dict[str, Any], labels: list[dict[str, Any]]) -> None:
        first = {"name": "small", "backing-label": "big", "max-parallel-jobs": 2, "grace-time": NEVER, **label}
        pool = {"name": "main", "node-attributes": {"both": "pool"}, "labels": [first, *labels]}
        section = {"name": "shared", "driver": "metastatic", "launch-retries": 2, "pools": [pool]}
        super().__init__(MetastaticDriver(), section, zk, f"stand-in-{id(self)}")

    @property
    def allocator(self) -> SlotAllocator:
        assert self.provider.adapter.allocator is not None
        return self.provider.adapter.allocator

    def begin(self, *labels: str) -> NodeRequestHandler:
        return self.worker.accept(self.worker.submit(*(labels or ("small",))))

    def finish(self, handler: NodeRequestHandler) -> list[Node]:
        request = self.worker.finish(handler, DEADLINE_SECONDS)
        assert request.state == states.FULFILLED
        return [node for node in map(self.zk.getNode, request.nodes) if node is not None]

    def serve(self, *labels: str) -> list[Node]:
        return super().serve(*(labels or ("small",)))

    def delete(self, *nodes: Node) -> None:
        """As the launcher's deletion worker does; waits for the end."""
        for node in nodes:
            found = self.zk.getNode(node.key)
            assert found is not None
            found.state = states.DELETING
            self.zk.nodes.lock_and_save(found)
            self.provider.startNodeCleanup(found).join(DEADLINE_SECONDS)

    def backing(self) -> dict[str, dict[str, Any]]:
        """What is in ``user_data`` of the backing nodes, by id."""
        nodes = [node for node in self.zk.nodeIterator() if node.provider == "backing" and node.state == states.IN_USE]
        return {node.key: json.loads(node.user_data) for node in nodes if isinstance(node.user_data, str)}

    def requests(self) -> list[str]:
        """Ids of the backing requests."""
        return [request.key for request in self.zk.nodeRequestIterator() if request.requestor == OWNER]

    def pass_now(self, sweep: bool = False) -> None:
        """Wait until the allocator has made a whole pass that began after this call."""
        if sweep:
            self.allocator.sweep_soon()
        begun = self.allocator.passes

        def two_more() -> bool:
            self.allocator.wake()
            return self.allocator.passes >= begun + 2

        wait_for("two more passes", two_more)

    def wait_empty(self) -> None:
        """Every node goes."""
        wait_for("nothing is left", lambda: not list(self.zk.nodeIterator()))


MakeSite = Callable[..., Site]


def place(node: Node) -> tuple[str, int]:
    """Backing node and slot."""
    assert node.slot == node.driver_data["slot"]
    return node.driver_data["backing_node"], node.driver_data["slot"]


def set_constant(monkeypatch: pytest.MonkeyPatch, user: type, name: str, value: object) -> None:
    """Another value of a constant, which a class uses: no argument takes it, and a test cannot wait for so long."""
    monkeypatch.setattr(sys.modules[user.__module__], name, value)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    set_constant(monkeypatch, Retry, "RETRY", Backoff(0.01, 8.0))
    set_constant(monkeypatch, BackingRequests, "LINGER_SECONDS", 0.05)
    set_constant(monkeypatch, SlotAllocator, "ZK_RETRY_SECONDS", 0.01)


@pytest.fixture
def zk() -> MemoryZooKeeper:
    return MemoryZooKeeper()


@pytest.fixture
def pool(zk: MemoryZooKeeper) -> Iterator[BackingPool]:
    """Serves backing requests."""
    pool = BackingPool(zk)
    pool.start()
    yield pool
    pool.stop()


@pytest.fixture
def make_site(zk: MemoryZooKeeper, pool: BackingPool) -> Iterator[MakeSite]:
    """Makes started providers: ``make_site({"max-age": 3}, {"name": "tiny", ...})``."""
    sites: list[Site] = []

    def make(label: dict[str, Any] | None = None, *labels: dict[str, Any]) -> Site:
        sites.append(Site(zk, label or {}, list(labels)))
        return sites[-1]

    yield make
    for site in sites:
        site.end()
