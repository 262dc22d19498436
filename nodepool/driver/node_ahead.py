# SPDX-License-Identifier: Apache-2.0
"""`NodeAhead`: a new node on its way into ZooKeeper while others are on theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nodepool.exceptions import ZKException
from nodepool.model import states
from nodepool.zk.transactions import result

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.zk.node_store import NodeStore


class NodeAhead:
    """Created at once; `lock` goes on when the answer is there. Owned by one thread.

    With one node after the other a burst of launches would spend its time waiting for two answers a node.

    :param node: not stored yet.
    """

    def __init__(self, store: NodeStore, node: Node) -> None:
        self._store = store
        self._node = node
        self._end: Callable[[], object] = store.send_create(node)
        self._error: ZKException | None = None
        self._locking = False

    def lock(self) -> None:
        """Wait for the creation and begin to lock. Errors come with `take`."""
        if self._locking or not self._ended():
            return
        self._locking = True
        self._node.state = states.BUILDING
        # A new node has no lock directory yet.
        reply = self._store.send_lock_and_save(self._node, exists=False)
        self._end = lambda: result(reply)

    def take(self) -> Node:
        """The node: stored, `building`, locked by us. Blocks. :raises ZKException: that did not work."""
        self.lock()
        if self._error is None:
            self._ended()
        if self._error is not None:
            raise self._error
        return self._node

    def _ended(self) -> bool:
        try:
            self._end()
        except ZKException as error:
            self._error = error
        return self._error is None
