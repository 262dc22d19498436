# SPDX-License-Identifier: Apache-2.0
"""The node part of `nodepool.zk.zookeeper.ZooKeeper` in memory, with versions and locks as in the real one.

For drivers' unit tests: fast, and every call can be made to fail. The methods have the real ones' contracts.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model.node import Node
from nodepool.zk.zookeeper import ZooKeeper


@dataclass(frozen=True)
class FakeLock:
    """A held lock."""

    path: str


class FakeNodes:
    """The store of nodes; `FakeZooKeeper.nodes`."""

    def __init__(self, zk: FakeZooKeeper) -> None:
        self._zk = zk

    def save_unlocked(self, node: Node) -> None:
        with self._zk.call("save_unlocked"):
            self._zk.expect_unlocked(node)
            self._zk.write(node)

    def lock_and_save(self, node: Node, identifier: str = "") -> None:
        with self._zk.call("lock_and_save"):
            self._zk.expect_unlocked(node)
            self._zk.write(node)
            self._zk.take(node)


class FakeZooKeeper:
    """One ZooKeeper.

    :ivar fail: name of a call -> exception to raise, or a function that returns one or None.
    :ivar calls: names of the calls that were made.
    """

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._mutex = threading.Lock()
        self._stored: dict[str, Node] = {}
        self._holders: dict[str, FakeLock] = {}
        self._next = 0
        self.fail: dict[str, BaseException | Callable[[], BaseException | None]] = {}
        self.calls: list[str] = []
        self.cache: Any = self
        self.nodes = FakeNodes(self)

    def as_zookeeper(self) -> ZooKeeper:
        """Itself, under the type that drivers expect."""
        return cast(ZooKeeper, self)

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[None]:
        """One call: counted, made to fail if wanted, atomic."""
        with self._guard:
            self.calls.append(name)
            trouble = self.fail.get(name)
            error = trouble() if callable(trouble) else trouble
            if error is not None:
                raise error
            yield

    # -- for tests --

    def add(self, node: Node) -> Node:
        """Store a node as somebody else would; returns our copy."""
        with self._guard:
            node.id = f"{self._next:010d}"
            self._next += 1
            node.version = 0
            self._stored[node.id] = node.copy()
            return node

    def all_nodes(self) -> list[Node]:
        """Copies of all nodes, in the order of their ids."""
        with self._guard:
            return [self._stored[node_id].copy() for node_id in sorted(self._stored)]

    def take(self, node: Node) -> None:
        """Take a node's lock."""
        with self._guard:
            if node.id in self._holders:
                raise ZKLockException(f"node {node.id} is locked")
            lock = FakeLock(f"/nodepool/nodes/{node.id}/lock")
            self._holders[node.id or ""] = lock
            node.lock = lock

    def change(self, node_id: str, **fields: Any) -> None:
        """Change a node as somebody else would."""
        with self._guard:
            node = self._stored[node_id].copy()
            for name, value in fields.items():
                setattr(node, name, value)
            node.version = (node.version or 0) + 1
            self._stored[node_id] = node

    def vanish(self, node_id: str) -> None:
        """Delete a node under everybody's hands."""
        with self._guard:
            del self._stored[node_id]
            self._holders.pop(node_id, None)

    # -- shared with FakeNodes --

    def expect_unlocked(self, node: Node) -> None:
        if node.id in self._holders:
            raise ZKConflict(f"node {node.id} is locked")

    def write(self, node: Node) -> None:
        stored = self._stored.get(node.id or "")
        if stored is None or stored.version != node.version:
            raise ZKConflict(f"node {node.id} was changed or is gone")
        node.version = (node.version or 0) + 1
        node.to_dict(0.0)
        self._stored[node.id or ""] = node.copy()

    # -- the facade --

    def getNodes(self) -> list[str]:
        with self.call("getNodes"):
            return sorted(self._stored)

    def getNode(self, node_id: str) -> Node | None:
        with self.call("getNode"):
            node = self._stored.get(node_id)
            return node.copy() if node is not None else None

    def nodeIterator(self, cached: bool = True) -> Iterator[Node]:
        with self.call("nodeIterator"):
            found = list(self._stored.values())
        yield from found

    def storeNode(self, node: Node) -> None:
        with self.call("storeNode"):
            node.to_dict(0.0)
            if node.id is None:
                self.add(node)
            else:
                self.write(node)

    def deleteNode(self, node: Node) -> None:
        with self.call("deleteNode"):
            self._remove(node)

    def replaceNode(self, old: Node, new: Node | None) -> None:
        with self.call("replaceNode"):
            self._remove(old)
            if new is not None:
                self.add(new)

    def _remove(self, node: Node) -> None:
        if node.lock is None or self._holders.get(node.id or "") is not node.lock:
            raise ZKConflict(f"node {node.id} is not locked by us")
        del self._stored[node.id or ""], self._holders[node.id or ""]
        node.lock = None

    def unlockNode(self, node: Node) -> None:
        with self.call("unlockNode"):
            if node.lock is None:
                raise ZKLockException(f"node {node.id} is not locked by us")
            if self._holders.get(node.id or "") is node.lock:
                del self._holders[node.id or ""]
            node.lock = None

    def isNodeLocked(self, node: Node) -> bool:
        return node.id in self._holders

    @contextlib.contextmanager
    def providerMutex(self, provider_name: str, timeout: float = 30.0) -> Iterator[None]:
        if not self._mutex.acquire(timeout=timeout):
            raise ZKLockException(f"{provider_name} is locked")
        try:
            yield
        finally:
            self._mutex.release()
