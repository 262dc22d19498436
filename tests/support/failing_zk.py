# SPDX-License-Identifier: Apache-2.0
"""`FailingZooKeeper`: a ZooKeeper in memory that fails when a test wants it, and notes what is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper

CAN_FAIL = ("getNodes", "getNode", "nodeIterator", "storeNode", "deleteNode", "replaceNode", "unlockNode")


class FailingZooKeeper(MemoryZooKeeper):
    """For drivers' unit tests.

    :ivar fail: name of a call -> exception to raise, or a function that returns one or None.
    :ivar calls: names of the calls that were made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fail: dict[str, BaseException | Callable[[], BaseException | None]] = {}
        self.calls: list[str] = []
        for name in CAN_FAIL:
            setattr(self, name, partial(self._call, name, getattr(self, name)))

    def _call(self, name: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.calls.append(name)
        trouble = self.fail.get(name)
        error = trouble() if callable(trouble) else trouble
        if error is not None:
            raise error
        return call(*arguments, **options)

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
