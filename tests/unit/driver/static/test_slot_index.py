# SPDX-License-Identifier: Apache-2.0
"""Which nodes have a slot, by what changed (rule S-10)."""

from __future__ import annotations

import pytest

from nodepool.driver.static.slot_index import SlotIndex
from nodepool.model.node import Node
from nodepool.plan.static_hosts import HostId, SlotId
from nodepool.testing.memory_zk import MemoryZooKeeper

HOST = HostId("h1", "zuul", 22)


class Site:
    def __init__(self) -> None:
        self.zk = MemoryZooKeeper()
        self.looked = 0
        self.add(0)
        self.index = SlotIndex(self.zk.cache.nodes, self._slot_of)

    def _slot_of(self, node: Node) -> SlotId | None:
        self.looked += 1
        return None if node.slot is None else SlotId(HOST, node.slot)

    def add(self, slot: int | None) -> Node:
        node = Node("small")
        node.slot = slot
        self.zk.storeNode(node)
        return node

    def ids(self, slot: int) -> list[str]:
        return sorted(node.key for node in self.index.nodes_in(SlotId(HOST, slot)))


@pytest.fixture
def site() -> Site:
    return Site()


def test_nodes_come_change_and_go(site: Site) -> None:
    """S-10: also those that were there before."""
    second, third = site.add(0), site.add(1)
    site.add(None)
    assert (site.ids(0), site.ids(1), site.ids(2)) == (["0000000000", second.key], [third.key], [])
    second.slot = 1
    site.zk.storeNode(second)
    assert (site.ids(0), site.ids(1)) == (["0000000000"], [second.key, third.key])
    second.slot = None
    site.zk.storeNode(second)
    site.zk.deleteRawNode(third.key)
    assert (site.ids(0), site.ids(1)) == (["0000000000"], [])


def test_only_what_changed_is_looked_at(site: Site) -> None:
    for _ in range(50):
        site.add(1)
    assert len(site.ids(1)) == 50
    site.looked = 0
    node = site.add(2)
    assert site.ids(2) == [node.key]
    assert site.ids(0) == ["0000000000"]
    assert site.looked == 1


def test_after_a_lost_connection_all_are_looked_at(site: Site) -> None:
    """S-10: any may have changed."""
    assert site.ids(0) == ["0000000000"]
    site.looked = 0
    site.zk.nodes.table.tell("")
    assert site.ids(0) == ["0000000000"]
    assert site.looked == 1
