# SPDX-License-Identifier: Apache-2.0
"""`NodeAhead`: stores a new node in ZooKeeper while other new nodes are being stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.zk.locks import ZkLock
    from nodepool.zk.node_store import NodeStore


class NodeAhead:
    """The node is stored together with the lock of its request.

    `lock` does the next step. Owned by one thread. If nodes were stored one after the other, a burst of launches would
    spend its time waiting for answers.

    :param node: stored as soon as the lock of the request is held.
    :param announce: what is known of a node that has its id is noted in it, to be stored with its lock.
    """

    def __init__(self, store: NodeStore, node: Node, announce: Callable[[Node], None]) -> None:
        self._store = store
        self.node = node
        self._announce = announce
        self._end: Callable[[], None] | None = None

    def lock(self, under: ZkLock | None = None) -> None:
        """Begin to lock. Does not block; errors come with `take`.

        :param under: only while this lock, of the request, is held.
        """
        if self._end is None:
            self.node.state = states.BUILDING
            self._announce(self.node)
            # A new node has no lock directory yet.
            self._end = self._store.begin_lock_and_save(self.node, exists=False, under=under)

    def take(self) -> Node:
        """The node: stored, `building`, locked by us. Blocks. :raises ZKException: that did not work."""
        self.lock()
        assert self._end is not None
        self._end()
        return self.node
