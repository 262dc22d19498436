# SPDX-License-Identifier: Apache-2.0
"""`MemoryZooKeeper`: the ZooKeeper facade of drivers, in memory, for one process.

Records are kept as the bytes that would be in a znode, writes are fenced by versions, and locks are exclusive, as
in the real stores. What it does not have: sessions, watches of other processes, and the cost of a network.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model.component import PoolComponent
from nodepool.model.image import ImageUpload
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import codec
from nodepool.zk.locks import ZkLock
from nodepool.zk.node_store import NodeStore
from nodepool.zk.request_store import RequestStore
from nodepool.zk.zookeeper import ZooKeeper

R = TypeVar("R", bound=Node | NodeRequest)


@dataclass(frozen=True)
class _Stored:
    data: bytes
    version: int = 0
    lock: ZkLock | None = None


class _Table(Generic[R]):
    """Records of one kind. ``changed`` guards them, and is notified of each change.

    :param changed: shared by all tables, so that a write over several tables is one.
    """

    def __init__(self, kind: str, decode: Callable[[bytes, str], R], changed: threading.Condition) -> None:
        self.kind = kind
        self.changed = changed
        self.listeners: list[Callable[[str], None]] = []
        self._decode = decode
        self._rows: dict[str, _Stored] = {}
        self._numbers = itertools.count()
        self._contenders = itertools.count()

    def ids(self) -> list[str]:
        with self.changed:
            return list(self._rows)

    def get(self, record_id: str) -> R | None:
        with self.changed:
            row = self._rows.get(record_id)
        if row is None:
            return None
        record = self._decode(row.data, record_id)
        record.version = row.version
        return record

    def create(self, record: R, prefix: str = "") -> None:
        self.add(record, prefix)
        self.tell(record.id or "")

    def add(self, record: R, prefix: str = "") -> None:
        """`create` that tells nobody."""
        with self.changed:
            record.id = f"{prefix}{next(self._numbers):010d}"
            self._rows[record.id] = _Stored(_encode(record))
            record.version = 0

    def check(self, record: R, *, unlocked: bool = False, locked: bool = False) -> _Stored:
        """The row, if ``record`` may be written. Call with ``changed`` held. Raises ZKConflict."""
        row = self._rows.get(record.id or "")
        if row is None:
            raise ZKConflict(f"{self.kind} {record.id} is gone")
        if record.version != row.version:
            raise ZKConflict(f"{self.kind} {record.id} was changed by somebody else")
        if unlocked and row.lock is not None:
            raise ZKConflict(f"{self.kind} {record.id} is locked")
        if locked and (record.lock is None or row.lock != record.lock):
            raise ZKConflict(f"{self.kind} {record.id} is not locked by us")
        return row

    def put(self, record: R, row: _Stored) -> None:
        """Overwrite. Call with ``changed`` held, after `check`."""
        record.version = row.version + 1
        self._rows[record.id or ""] = replace(row, data=_encode(record), version=record.version)
        self.changed.notify_all()

    def take_lock(self, record: R, *, blocking: bool = True, timeout: float | None = None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while self.row(record).lock is not None:
                left = None if deadline is None else deadline - time.monotonic()
                if not blocking or (left is not None and left <= 0):
                    raise ZKLockException(f"{self.kind} {record.id} is locked by somebody else")
                self.changed.wait(left)
            self.set_lock(record)
        self.tell(record.id or "")

    def set_lock(self, record: R) -> None:
        """Call with ``changed`` held."""
        directory = f"/{self.kind}/{record.id}/lock"
        record.lock = lock = ZkLock(directory, f"{directory}/{next(self._contenders)}")
        self._rows[record.id or ""] = replace(self.row(record), lock=lock)

    def release(self, record: R) -> None:
        """Give a lock back; one that is gone with its record is fine. Raises ZKLockException if none is held."""
        if record.lock is None:
            raise ZKLockException(f"{self.kind} {record.id} is not locked by us")
        self.clear_lock(record)
        self.tell(record.id or "")

    def clear_lock(self, record: R) -> None:
        """`release` that tells nobody; a lock that is not held is fine."""
        with self.changed:
            row = self._rows.get(record.id or "")
            if row is not None and row.lock == record.lock:
                self._rows[record.id or ""] = replace(row, lock=None)
            record.lock = None
            self.changed.notify_all()

    def force_release(self, record: R) -> None:
        with self.changed:
            self._rows[record.id or ""] = replace(self.row(record), lock=None)
            record.lock = None
            self.changed.notify_all()
        self.tell(record.id or "")

    def is_locked(self, record_id: str) -> bool:
        with self.changed:
            row = self._rows.get(record_id)
            return row is not None and row.lock is not None

    def drop(self, record_id: str) -> None:
        """Remove; what is gone is fine."""
        self.discard(record_id)
        self.tell(record_id)

    def discard(self, record_id: str) -> None:
        """`drop` that tells nobody."""
        with self.changed:
            self._rows.pop(record_id, None)
            self.changed.notify_all()

    def tell(self, record_id: str) -> None:
        """Tell the listeners of a change. Call without ``changed``."""
        for listener in list(self.listeners):
            listener(record_id)

    def row(self, record: R) -> _Stored:
        """Call with ``changed`` held. Raises ZKConflict."""
        row = self._rows.get(record.id or "")
        if row is None:
            raise ZKConflict(f"{self.kind} {record.id} is gone")
        return row


def _encode(record: Node | NodeRequest) -> bytes:
    # Also proves that everything that a driver puts into a record can be stored.
    return codec.encode(record.to_dict(time.time()))


def _decode_node(data: bytes, record_id: str) -> Node:
    return Node.from_dict(codec.decode(data), record_id)


def _decode_request(data: bytes, record_id: str) -> NodeRequest:
    return NodeRequest.from_dict(codec.decode(data), record_id)


class MemoryNodeStore(NodeStore):
    """`NodeStore` in memory. Methods that hand out a transaction or a reply are not there."""

    def __init__(self, changed: threading.Condition) -> None:
        self.table = _Table("node", _decode_node, changed)

    def ids(self) -> list[str]:
        return self.table.ids()

    def get(self, node_id: str) -> Node | None:
        return self.table.get(node_id)

    def iterate(self) -> Iterator[Node]:
        for node_id in self.ids():
            node = self.get(node_id)
            if node is not None:
                yield node

    def create(self, node: Node) -> None:
        self.table.create(node)

    def save(self, node: Node) -> None:
        with self.table.changed:
            self.table.put(node, self.table.check(node))
        self.table.tell(node.id or "")

    def save_unlocked(self, node: Node) -> None:
        with self.table.changed:
            self.table.put(node, self.table.check(node, unlocked=True))
        self.table.tell(node.id or "")

    def lock_and_save(self, node: Node, identifier: str = "") -> None:
        with self.table.changed:
            self.table.put(node, self.table.check(node, unlocked=True))
            self.table.set_lock(node)
        self.table.tell(node.id or "")

    def lock(
        self,
        node: Node,
        *,
        blocking: bool = True,
        timeout: float | None = None,
        ephemeral: bool = True,
        identifier: str | None = None,
    ) -> None:
        self.table.take_lock(node, blocking=blocking, timeout=timeout)

    def unlock(self, node: Node) -> None:
        self.table.release(node)

    def contenders(self, node_id: str) -> list[str]:
        return [""] if self.is_locked(node_id) else []

    def force_unlock(self, node: Node) -> None:
        self.table.force_release(node)

    def is_locked(self, node_id: str) -> bool:
        return self.table.is_locked(node_id)

    def locked_ids(self, node_ids: list[str]) -> set[str]:
        return {node_id for node_id in node_ids if self.is_locked(node_id)}

    def remove(self, node: Node, replacement: Node | None = None) -> None:
        with self.table.changed:
            if node.lock is None or self.table.row(node).lock != node.lock:
                raise ZKLockException(f"node {node.id} is not locked by us")
            self.table.discard(node.id or "")
            node.lock = None
            if replacement is not None:
                self.table.add(replacement)
        self.table.tell(node.id or "")
        if replacement is not None:
            self.table.tell(replacement.id or "")

    def remove_raw(self, node_id: str) -> None:
        self.table.drop(node_id)


class MemoryRequestStore(RequestStore):
    """`RequestStore` in memory. Methods that hand out a transaction or a reply are not there."""

    def __init__(self, changed: threading.Condition, nodes: MemoryNodeStore) -> None:
        self.table = _Table("request", _decode_request, changed)
        self._node_table = nodes.table

    def ids(self) -> list[str]:
        return self.table.ids()

    def get(self, request_id: str) -> NodeRequest | None:
        return self.table.get(request_id)

    def iterate(self) -> Iterator[NodeRequest]:
        for request_id in self.ids():
            request = self.get(request_id)
            if request is not None:
                yield request

    def create(self, request: NodeRequest, priority: str) -> None:
        self.table.create(request, f"{int(priority):03d}-")

    def save(self, request: NodeRequest) -> None:
        with self.table.changed:
            self.table.put(request, self.table.check(request))
        self.table.tell(request.id or "")

    def delete(self, request: NodeRequest) -> None:
        self.table.drop(request.id or "")

    def save_unlocked(self, request: NodeRequest, nodes: Iterable[Node] = ()) -> None:
        nodes = list(nodes)
        with self.table.changed:
            row = self.table.check(request, unlocked=True)
            rows = [self._node_table.check(node, unlocked=True) for node in nodes]
            self.table.put(request, row)
            for node, node_row in zip(nodes, rows, strict=True):
                self._node_table.put(node, node_row)
        self._tell(request, nodes)

    def lock_and_save(self, request: NodeRequest) -> None:
        with self.table.changed:
            self.table.put(request, self.table.check(request, unlocked=True))
            self.table.set_lock(request)
        self.table.tell(request.id or "")

    def lock(self, request: NodeRequest, *, blocking: bool = True, timeout: float | None = None) -> None:
        self.table.take_lock(request, blocking=blocking, timeout=timeout)

    def unlock(self, request: NodeRequest) -> None:
        self.table.release(request)

    def finish(self, request: NodeRequest, nodes: Iterable[Node] = (), *, nodes_too: bool = False) -> None:
        if request.lock is None:
            raise ZKLockException(f"request {request.id} is not locked by us")
        nodes = list(nodes)
        with self.table.changed:
            row = self.table.check(request, locked=True)
            rows = [self._node_table.check(node, locked=True) for node in nodes]
            self.table.put(request, row)
            self.table.clear_lock(request)
            for node, node_row in zip(nodes, rows, strict=True):
                if nodes_too:
                    self._node_table.put(node, node_row)
                self._node_table.clear_lock(node)
        self._tell(request, nodes)

    def _tell(self, request: NodeRequest, nodes: Iterable[Node]) -> None:
        self.table.tell(request.id or "")
        for node in nodes:
            self._node_table.tell(node.id or "")


class MemoryZooKeeper(ZooKeeper):
    """All that a driver may call of the facade; thread-safe.

    ``pools`` is what `getRegisteredPools` answers, ``uploads`` what `getMostRecentImageUpload` does:
    (image, provider) -> upload. Both can be changed.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.cache = None
        self.nodes: MemoryNodeStore = MemoryNodeStore(self.changed)
        self.requests: MemoryRequestStore = MemoryRequestStore(self.changed, self.nodes)
        self.pools: list[PoolComponent] = []
        self.uploads: dict[tuple[str, str], ImageUpload] = {}
        self._mutexes: dict[str, threading.Lock] = {}

    def addNodeListener(self, listener: Callable[[str], None]) -> None:
        self.nodes.table.listeners.append(listener)

    def getRegisteredPools(self) -> list[PoolComponent]:
        return list(self.pools)

    def getMostRecentImageUpload(self, image: str, provider: str) -> ImageUpload | None:
        return self.uploads.get((image, provider))

    @contextlib.contextmanager
    def providerMutex(self, provider_name: str, timeout: float = 30.0) -> Iterator[None]:
        with self.changed:
            mutex = self._mutexes.setdefault(provider_name, threading.Lock())
        if not mutex.acquire(timeout=timeout):
            raise ZKLockException(f"the mutex of {provider_name} is held by somebody else")
        try:
            yield
        finally:
            mutex.release()
