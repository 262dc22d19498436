# SPDX-License-Identifier: Apache-2.0
"""Room for a request that waits (rules Q-8, Q-9)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool.handlers import ELSEWHERE_SECONDS, EVICTION_SECONDS, Eviction
from nodepool.model.node import Node
from nodepool.plan.nodes import ReadyNodes
from nodepool.testing.memory_zk import MemoryZooKeeper


class Pool:
    """An `Eviction` with what it uses; the time is a list of one."""

    def __init__(self) -> None:
        self.zk = MemoryZooKeeper()
        self.now = [10_000.0]
        self.ready_nodes = ReadyNodes()
        self.locked: set[str] = set()
        self.eviction = Eviction(
            ("cloud", "main"),
            cast(Any, SimpleNamespace(oldest_unused=self.ready_nodes.oldest, ready=self.ready_nodes)),
            cast(Any, self.zk),
            self.locked.__contains__,
            logging.getLogger("test.eviction"),
            clock=lambda: self.now[0],
        )

    def add(self, ready_since: float) -> Node:
        node = Node("small")
        node.state = "ready"
        self.zk.storeNode(node)
        node.state_time = ready_since
        self.ready_nodes.put(node)
        return node

    def add_elsewhere(self, ready_since: float | None, state: str = "ready", **fields: Any) -> Node:
        """A node of another pool of the provider."""
        node = Node("small")
        node.state, node.provider, node.pool = state, "cloud", "second"
        for name, value in fields.items():
            setattr(node, name, value)
        self.zk.storeNode(node)
        # The first write sets the time itself.
        node.state_time = ready_since
        self.zk.storeNode(node)
        return node

    def states(self) -> list[str]:
        return [node.state for node in self.zk.nodeIterator()]


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_oldest_goes(pool: Pool) -> None:
    """Q-8: the node that has been unused for the longest time, and only that one."""
    for since in (300.0, 100.0, 200.0):
        pool.add(since)
    pool.eviction.evict()
    assert pool.states() == ["ready", "deleting", "ready"]
    assert len(pool.ready_nodes) == 2


def test_one_in_five_minutes(pool: Pool) -> None:
    """Q-9"""
    pool.add(100.0)
    pool.add(200.0)
    pool.eviction.evict()
    pool.now[0] += EVICTION_SECONDS - 0.1
    pool.eviction.evict()
    assert pool.states() == ["deleting", "ready"]
    pool.now[0] += 0.1
    pool.eviction.evict()
    assert pool.states() == ["deleting", "deleting"]


def test_node_that_went_by_itself(pool: Pool) -> None:
    """Q-9: a node of the pool that went to `deleting` lately makes room, too."""
    pool.add(100.0)
    seen = Node("small")
    seen.provider, seen.pool = "cloud", "main"
    seen.state = "deleting"
    seen.state_time = pool.now[0] - EVICTION_SECONDS + 1
    pool.eviction.node_seen(seen)
    pool.eviction.evict()
    assert pool.states() == ["ready"]
    pool.now[0] += 1
    pool.eviction.evict()
    assert pool.states() == ["deleting"]


@pytest.mark.parametrize(("state", "since"), [("deleting", None), ("ready", 9_999.0), ("deleting", 1.0)])
def test_nodes_that_say_nothing(pool: Pool, state: str, since: float | None) -> None:
    """Q-9: other states, unknown times, old ones."""
    pool.add(100.0)
    seen = Node("small")
    seen.provider, seen.pool = "cloud", "main"
    seen.state, seen.state_time = state, since
    pool.eviction.node_seen(seen)
    pool.eviction.evict()
    assert pool.states() == ["deleting"]


def test_time_in_the_future(pool: Pool) -> None:
    """A clock that is wrong elsewhere does not stop evictions for ever."""
    pool.add(100.0)
    seen = Node("small")
    seen.provider, seen.pool = "cloud", "main"
    seen.state, seen.state_time = "deleting", 1e12
    pool.eviction.node_seen(seen)
    pool.now[0] += EVICTION_SECONDS
    pool.eviction.evict()
    assert pool.states() == ["deleting"]


def test_nothing_to_give_up(pool: Pool) -> None:
    pool.eviction.evict()
    assert pool.states() == []


def test_taken_meanwhile(pool: Pool) -> None:
    """A node that somebody else takes stays; another one may be tried at once."""
    node, other = pool.add(100.0), pool.add(200.0)
    pool.zk.lockNode(node.copy())
    pool.eviction.evict()
    pool.eviction.evict()
    assert [n.state for n in pool.zk.nodeIterator()] == ["ready", "deleting"]
    assert (other.key) not in pool.ready_nodes


def test_room_that_pools_share(pool: Pool) -> None:
    """Q-8: a node of another pool of the provider goes when this one has none to give up, and only then."""
    pool.add_elsewhere(200.0)
    pool.add_elsewhere(100.0)
    pool.add_elsewhere(50.0, provider="another")
    pool.add_elsewhere(50.0, allocated_to="100-1")
    pool.locked.add(pool.add_elsewhere(50.0).key)
    pool.eviction.evict()
    assert set(pool.states()) == {"ready"}
    pool.eviction.evict(shared=True)
    assert pool.states() == ["ready", "deleting", "ready", "ready", "ready"]
    pool.now[0] += EVICTION_SECONDS - 1
    pool.eviction.evict(shared=True)
    assert pool.states().count("deleting") == 1


def test_own_node_before_those_of_others(pool: Pool) -> None:
    pool.add(900.0)
    pool.add_elsewhere(100.0)
    pool.eviction.evict(shared=True)
    assert pool.states() == ["deleting", "ready"]


def test_room_that_another_pool_makes_already(pool: Pool) -> None:
    """Q-9: as in one's own pool. It is looked for now and then, not in each pass."""
    pool.add_elsewhere(100.0)
    going = pool.add_elsewhere(pool.now[0] - 1, "deleting")
    pool.eviction.evict(shared=True)
    pool.zk.deleteRawNode(going.key)
    pool.eviction.evict(shared=True)
    assert pool.states() == ["ready"]
    pool.now[0] += ELSEWHERE_SECONDS
    pool.eviction.evict(shared=True)
    assert pool.states() == ["deleting"]
