# SPDX-License-Identifier: Apache-2.0
"""`FailingZooKeeper`: a ZooKeeper in memory that fails when a test wants it, and notes what is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper


class FailingZooKeeper(MemoryZooKeeper):
    """For drivers' unit tests.

    :ivar fail: name of a call -> exception to raise, or a function that returns one or None.
    :ivar calls: names of the calls that were made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fail: dict[str, BaseException | Callable[[], BaseException | None]] = {}
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        trouble = self.fail.get(name)
        error = trouble() if callable(trouble) else trouble
        if error is not None:
            raise error

    # -- calls that can fail --

    def getNodes(self) -> list[str]:
        self._call("getNodes")
        return super().getNodes()

    def getNode(self, node: str, cached: bool = False, only_cached: bool = False) -> Node | None:
        self._call("getNode")
        return super().getNode(node, cached, only_cached)

    def nodeIterator(self, cached: bool = True, cached_ids: bool = False) -> Iterator[Node]:
        self._call("nodeIterator")
        return super().nodeIterator(cached, cached_ids)

    def storeNode(self, node: Node) -> None:
        self._call("storeNode")
        super().storeNode(node)

    def deleteNode(self, node: Node) -> None:
        self._call("deleteNode")
        super().deleteNode(node)

    def replaceNode(self, old: Node, new: Node | None) -> None:
        self._call("replaceNode")
        super().replaceNode(old, new)

    def unlockNode(self, node: Node) -> None:
        self._call("unlockNode")
        super().unlockNode(node)

    # -- for tests: what somebody else does --

    def all_nodes(self) -> list[Node]:
        """Copies of all nodes, in the order of their ids."""
        return list(self.nodes.iterate())

    def add(self, node: Node) -> Node:
        """Store a node; returns it."""
        self.nodes.create(node)
        return node

    def take(self, node: Node) -> None:
        """Take a node's lock."""
        self.nodes.lock(node, blocking=False)

    def change(self, node_id: str, **fields: Any) -> None:
        """Change a node without its lock."""
        node = self.nodes.get(node_id)
        assert node is not None, f"there is no node {node_id}"
        for name, value in fields.items():
            setattr(node, name, value)
        self.nodes.save(node)
