# SPDX-License-Identifier: Apache-2.0
"""What a `BackingView` notices while it counts (rule T-8)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from nodepool.clock import wall_time
from nodepool.driver.metastatic.backing_view import BackingView, Entry
from nodepool.driver.metastatic.records import BackingData
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.backing import BackingKind
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.unit.driver.metastatic.conftest import OWNER


def store_node(zk: MemoryZooKeeper, label: str, provider: str, state: str) -> Node:
    node = Node(label)
    node.provider, node.state = provider, state
    zk.storeNode(node)
    return node


class Followed:
    """A view of one backing node with one slot, which a node that is being built has."""

    def __init__(self, zk: MemoryZooKeeper) -> None:
        self.woken = 0
        self.user = store_node(zk, "small", "shared", states.BUILDING)
        backing = store_node(zk, "big", "backing", states.READY)
        backing.state = states.IN_USE
        backing.user_data = BackingData(OWNER, "small", 1, False, wall_time(), (self.user.key,)).encode()
        log = logging.LoggerAdapter(logging.getLogger("nodepool.test"), {})
        kinds = [BackingKind("small", "big")]
        self.view = BackingView(zk, "shared", kinds, lambda node, label: False, self._wake, log, wall_time)
        self.view.trust(zk.nodes.lock_for_good(backing, OWNER))

    def _wake(self) -> None:
        self.woken += 1

    @property
    def holders(self) -> list[str | None]:
        (entry,) = self.view.entries.values()
        return entry.holders


def hook(view: BackingView, do: Callable[[], None]) -> None:
    """Do it once in the middle of a count: what was known of the node is forgotten, and is not known again yet."""
    unlink = view._unlink

    def unlink_and_do(entry: Entry) -> None:
        view._unlink = unlink  # type: ignore[method-assign]
        unlink(entry)
        do()

    view._unlink = unlink_and_do  # type: ignore[method-assign]


def test_node_goes_while_it_is_counted(zk: MemoryZooKeeper) -> None:
    """Nobody is woken, because nobody knows where the node is; the pass looks again at its end."""
    site = Followed(zk)
    hook(site.view, lambda: zk.deleteRawNode(site.user.key))
    before = site.woken
    site.view.update()
    assert (site.holders, site.woken) == ([site.user.key], before)
    assert site.view.is_behind()
    site.view.update()
    assert site.holders == [None]
    assert not site.view.is_behind()


def test_other_nodes_that_go_do_not_matter(zk: MemoryZooKeeper) -> None:
    site = Followed(zk)
    site.view.update()
    other = store_node(zk, "else", "elsewhere", states.READY)
    before = site.woken
    zk.deleteRawNode(other.key)
    assert not site.view.is_behind()
    zk.deleteRawNode(site.user.key)
    assert site.woken == before + 1
    assert site.view.is_behind()
