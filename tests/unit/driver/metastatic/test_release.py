# SPDX-License-Identifier: Apache-2.0
"""Backing nodes of a provider that is gone for good (rules T, G-6)."""

from __future__ import annotations

import pytest

from nodepool.driver.metastatic import provider
from nodepool.driver.metastatic.slots import BackingData
from nodepool.exceptions import ZKConflict
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.unit.driver.metastatic.conftest import OWNER


def add(zk: MemoryZooKeeper, *, owner: str = OWNER, holder: str | None = OWNER, state: str = states.IN_USE) -> Node:
    node = Node("big")
    node.provider, node.state = "cloud", state
    node.user_data = BackingData(owner, "small", 1, False, 0.0, (None,)).encode()
    zk.storeNode(node)
    if holder is not None:
        zk.nodes.lock_for_good(node, holder)
    return node


def test_its_own_and_no_others(zk: MemoryZooKeeper) -> None:
    """reference/zookeeper 5.6: owner and lock must both match."""
    mine = add(zk)
    add(zk, owner="NodePool:metastatic:other", holder="NodePool:metastatic:other")
    add(zk, holder="somebody")
    add(zk, holder=None)
    add(zk, state=states.HOLD)
    zk.storeNode(Node("big"))
    ((node, contender),) = provider.backing_nodes(zk, "shared")
    assert node.id == mine.id
    provider.release(zk, node, contender)
    stored = zk.getNode(mine.key)
    assert stored is not None
    assert (stored.state, zk.isNodeLocked(stored)) == (states.USED, False)
    assert not list(provider.backing_nodes(zk, "shared"))


def test_changed_meanwhile(zk: MemoryZooKeeper) -> None:
    """Its provider is configured after all, and somebody has put a node on it."""
    add(zk)
    ((node, contender),) = provider.backing_nodes(zk, "shared")
    zk.nodes.save_and_release(node.copy(), contender)
    with pytest.raises(ZKConflict):
        provider.release(zk, node, contender)
