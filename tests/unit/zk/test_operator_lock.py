# SPDX-License-Identifier: Apache-2.0
"""The lock of a node for a change that an operator asks for; for one that vanishes see the tests of commands."""

from __future__ import annotations

import pytest

from nodepool.exceptions import ZKLockException
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.zk import zookeeper


@pytest.fixture
def zk() -> MemoryZooKeeper:
    return MemoryZooKeeper()


def stored(zk: MemoryZooKeeper) -> Node:
    node = Node("small")
    node.state = states.READY
    zk.storeNode(node)
    return node


def test_node_is_read_under_the_lock(zk: MemoryZooKeeper) -> None:
    """What somebody has changed meanwhile is not overwritten."""
    seen = stored(zk)
    other = zk.getNode(seen.key)
    assert other is not None
    other.state = states.USED
    zk.storeNode(other)
    zookeeper.take(zk, seen, 1.0, "alice")
    assert seen.state == states.USED
    assert zk.isNodeLocked(seen)
    for _ in range(2):
        zookeeper.give_back(zk, seen)
    assert not zk.isNodeLocked(seen)


def test_somebody_has_the_lock(zk: MemoryZooKeeper) -> None:
    holder = stored(zk)
    zk.lockNode(holder)
    other = zk.getNode(holder.key)
    assert other is not None
    with pytest.raises(ZKLockException):
        zookeeper.take(zk, other, 0.01, "alice")
    assert other.lock is None
