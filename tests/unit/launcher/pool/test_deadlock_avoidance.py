# SPDX-License-Identifier: Apache-2.0
"""Two pools of a provider whose cloud is full, each with a request that holds a node (rules Q-8, Q-10, Q-12)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher.pool import handlers
from nodepool.launcher.pool.eviction import Eviction
from nodepool.plan import deadlock
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Still


class Pools:
    """Pools ``main`` with label ``a`` and ``second`` with label ``b``, in a cloud with room for two instances."""

    def __init__(self, launcher: StillLauncher, znodes: PoolZnodes) -> None:
        self.launcher = launcher
        self.znodes = znodes
        self.workers = [launcher.worker("one", pool) for pool in ("main", "second")]
        ready = {"resources": {"instances": 1}}
        self.nodes = [
            znodes.add_node("ready", type=[label], pool=worker.pool_name, **ready)
            for label, worker in zip("ab", self.workers, strict=True)
        ]

    def turn(self) -> None:
        """A pass of each worker."""
        self.launcher.settle()
        for worker in (*self.workers, self.launcher.nodepool.deletion.current):
            worker.run_once()

    def passes(self, what: str, look: Callable[[], bool]) -> None:
        def pass_and_look() -> bool:
            self.turn()
            return look()

        wait_for(what, pass_and_look)

    def is_in(self, request_id: str, state: str) -> bool:
        return self.znodes.request_state(request_id) == state

    def versions(self, request_id: str) -> list[int]:
        """How often the request and the nodes were written."""
        paths = [f"/nodepool/requests/{request_id}", *(f"/nodepool/nodes/{node_id}" for node_id in self.nodes)]
        return [self.znodes.kazoo.get(path)[1].version for path in paths]


@pytest.fixture
def pools(
    still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> Pools:
    monkeypatch.setattr(deadlock, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(handlers, "GIVEN_BACK_SECONDS", 0.0)
    section = fake_provider("one", ("a",), cloud=cloud_name, limits={"instances": 2})
    section["pools"].append({"name": "second", "labels": [{"name": "b"}]})
    return Pools(still([section]), znodes)


def test_the_later_request_rests(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken again and again; what it let go of makes room for the first one; then it is its turn."""
    znodes = pools.znodes
    with monkeypatch.context() as patch:
        patch.setattr(Eviction, "evict", lambda eviction, **_: None)
        patch.setattr(deadlock, "in_the_way", lambda *_: [])
        first = znodes.submit(["a", "a"])
        pools.passes("the first waits", lambda: pools.is_in(first, "pending"))
        later = znodes.submit(["b", "b"])
        pools.passes("the later one is given back", lambda: pools.workers[1].desk.keeps(later))
        before = pools.versions(later)
        assert before[0] == 2, "taken and given back"
        for _ in range(20):
            pools.turn()
        assert pools.versions(later) == before
        assert pools.is_in(later, "requested")
    pools.passes("the first is served", lambda: pools.is_in(first, "fulfilled"))
    assert znodes.node(pools.nodes[1]) is None
    pools.passes("the later one waits", lambda: pools.is_in(later, "pending"))
    for node_id in (znodes.request(first) or {})["nodes"]:
        znodes.change_node(node_id, state="used")
    znodes.delete_request(first)
    pools.passes("the later one is served", lambda: pools.is_in(later, "fulfilled"))


def test_nothing_to_rest_for(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that came first is cancelled: the later one has the room now."""
    znodes = pools.znodes
    monkeypatch.setattr(Eviction, "evict", lambda eviction, **_: None)
    monkeypatch.setattr(deadlock, "in_the_way", lambda *_: [])
    first = znodes.submit(["a", "a"])
    pools.passes("the first waits", lambda: pools.is_in(first, "pending"))
    later = znodes.submit(["b", "b"])
    pools.passes("the later one is given back", lambda: pools.workers[1].desk.keeps(later))
    znodes.delete_request(first)
    pools.passes("the later one is taken again", lambda: pools.is_in(later, "pending"))


def test_the_later_request_makes_room(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one cannot use its node, so that is deleted, although an eviction is due only in five minutes."""
    znodes = pools.znodes
    monkeypatch.setattr(Eviction, "evict", lambda eviction, **_: None)
    first = znodes.submit(["a", "a"])
    pools.passes("the first waits", lambda: pools.is_in(first, "pending"))
    later = znodes.submit(["b", "b"])
    pools.passes("the first is served", lambda: pools.is_in(first, "fulfilled"))
    assert znodes.node(pools.nodes[1]) is None
    pools.passes("the later one waits", lambda: pools.is_in(later, "pending"))
