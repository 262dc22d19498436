# SPDX-License-Identifier: Apache-2.0
"""`MemoryZooKeeper`: the ZooKeeper facade of drivers, in memory, for one process.

Records are kept as the bytes that would be in a znode, writes are fenced by versions, and locks are exclusive, as
in the real stores. What it does not have: sessions, other processes, and the cost of a network.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model.image import ImageUpload
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import PoolComponent
from nodepool.testing.memory_maintenance import MemoryMaintenance, MemoryMaintenanceStore
from nodepool.testing.memory_table import MemoryTable, R, decode_node, decode_request
from nodepool.zk import paths
from nodepool.zk.cache import RecordCache
from nodepool.zk.connection import Reply
from nodepool.zk.nodes import NodepoolCache, NodeStore, RequestStore
from nodepool.zk.transactions import ZkLock, result
from nodepool.zk.zookeeper import ZooKeeper


class MemoryNodeStore(NodeStore):
    """`NodeStore` in memory. Methods that hand out a transaction are not there."""

    def __init__(self, changed: threading.Condition) -> None:
        self.table = MemoryTable("node", decode_node, changed)

    def ids(self) -> list[str]:
        return self.table.ids()

    def get(self, node_id: str) -> Node | None:
        return self.table.get(node_id)

    def existing(self, node_ids: Iterable[str]) -> set[str]:
        return set(self.table.ids()) & set(node_ids)

    def iterate(self) -> Iterator[Node]:
        for node_id in self.ids():
            node = self.get(node_id)
            if node is not None:
                yield node

    def create(self, node: Node, under: ZkLock | None = None) -> None:
        """:param under: always held, because there is no session that could be lost."""
        self.table.create(node)

    def begin_lock_and_save(
        self, node: Node, exists: bool, identifier: str = "", under: ZkLock | None = None
    ) -> Callable[[], None]:
        return partial(result, self._settled(lambda: self.lock_and_save(node, identifier, under)))

    def send_lock_and_save(self, node: Node, exists: bool) -> Reply:
        return self._settled(lambda: self.lock_and_save(node))

    @staticmethod
    def _settled(write: Callable[[], None]) -> Reply:
        reply = Reply()
        try:
            write()
        except ZKConflict as conflict:
            reply.set_exception(conflict)
        else:
            reply.set()
        return reply

    def save(self, node: Node) -> None:
        with self.table.changed:
            self.table.put(node, self.table.check(node))
        self.table.tell(node.key)

    def save_unlocked(self, node: Node) -> None:
        with self.table.changed:
            self.table.put(node, self.table.check(node, unlocked=True))
        self.table.tell(node.key)

    def surely_locked(self, node: Node) -> bool:
        if node.lock is None:
            raise ZKConflict(f"the lock of node {node.id} is lost")
        return True

    def lock_and_save(self, node: Node, identifier: str = "", under: ZkLock | None = None) -> None:
        """:param under: as in `create`."""
        with self.table.changed:
            self.table.put(node, self.table.check(node, unlocked=True))
            self.table.set_lock(node)
        self.table.tell(node.key)

    def lock(
        self,
        node: Node,
        *,
        blocking: bool = True,
        timeout: float | None = None,
        ephemeral: bool = True,
        identifier: str | None = None,
    ) -> None:
        self.table.take_lock(node, blocking=blocking, timeout=timeout, identifier=identifier or "")

    def unlock(self, node: Node) -> None:
        self.table.release(node)

    def contenders(self, node_id: str) -> list[str]:
        holder = self.lock_holder(node_id)
        return [] if holder is None else [holder[1]]

    def lock_holder(self, node_id: str) -> tuple[str, str] | None:
        return self.table.lock_holder(node_id)

    def lock_for_good(self, node: Node, identifier: str) -> str:
        with self.table.changed:
            self.table.put(node, self.table.check(node, unlocked=True))
            contender = self.table.set_lock(node, identifier).contender
        node.lock = None
        self.table.tell(node.key)
        return contender

    def save_and_release(self, node: Node, contender: str) -> None:
        with self.table.changed:
            row = self.table.check(node)
            holder = self.lock_holder(node.key)
            if holder is None or holder[0] != contender:
                raise ZKConflict(f"{contender} is gone")
            self.table.put(node, row)
            self.table.drop_lock(node)
        self.table.tell(node.key)

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
            self.table.discard(node.key)
            node.lock = None
            if replacement is not None:
                self.table.add(replacement)
        self.table.tell(node.key)
        if replacement is not None:
            self.table.tell(replacement.key)

    def remove_raw(self, node_id: str) -> None:
        self.table.drop(node_id)


class MemoryRequestStore(RequestStore):
    """`RequestStore` in memory. Methods that hand out a transaction are not there."""

    def __init__(self, changed: threading.Condition, nodes: MemoryNodeStore) -> None:
        self.table = MemoryTable("request", decode_request, changed)
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

    def create(self, request: NodeRequest, priority: str, under: ZkLock | None = None) -> None:
        """:param under: always held, because there is no session that could be lost."""
        self.table.create(request, f"{int(priority):03d}-")

    def save(self, request: NodeRequest) -> None:
        with self.table.changed:
            self.table.put(request, self.table.check(request))
        self.table.tell(request.key)

    def delete(self, request: NodeRequest) -> None:
        self.table.drop(request.key)

    def save_unlocked(self, request: NodeRequest, nodes: Iterable[Node] = ()) -> None:
        nodes = list(nodes)
        with self.table.changed:
            row = self.table.check(request, unlocked=True)
            rows = [self._node_table.check(node, unlocked=True) for node in nodes]
            self.table.put(request, row)
            for node, node_row in zip(nodes, rows, strict=True):
                self._node_table.put(node, node_row)
        self._tell(request, nodes)

    def send_lock(self, request: NodeRequest, node: Node | None = None) -> Callable[[], None]:
        def end() -> None:
            with self.table.changed:
                self.table.put(request, self.table.check(request, unlocked=True))
                self.table.set_lock(request)
            self.table.tell(request.key)
            if node is not None:
                self._node_table.create(node)

        return end

    def lock(self, request: NodeRequest, *, blocking: bool = True, timeout: float | None = None) -> None:
        self.table.take_lock(request, blocking=blocking, timeout=timeout)

    def unlock(self, request: NodeRequest) -> None:
        self.table.release(request)

    def send_finish(
        self, request: NodeRequest, nodes: Iterable[Node] = (), *, nodes_too: bool = False, unlocked: bool = False
    ) -> Callable[[], None]:
        self.finish(request, nodes, nodes_too=nodes_too, unlocked=unlocked)
        return lambda: None

    def finish(
        self, request: NodeRequest, nodes: Iterable[Node] = (), *, nodes_too: bool = False, unlocked: bool = False
    ) -> None:
        if request.lock is None:
            raise ZKLockException(f"request {request.id} is not locked by us")
        nodes = list(nodes)
        with self.table.changed:
            row = self.table.check(request, locked=True)
            rows = [self._node_table.check(node, locked=node.lock is not None, unlocked=unlocked) for node in nodes]
            self.table.put(request, row)
            self.table.clear_lock(request)
            for node, node_row in zip(nodes, rows, strict=True):
                if nodes_too or unlocked:
                    self._node_table.put(node, node_row)
                self._node_table.clear_lock(node)
        self._tell(request, nodes)

    def _tell(self, request: NodeRequest, nodes: Iterable[Node]) -> None:
        self.table.tell(request.key)
        for node in nodes:
            self._node_table.tell(node.key)


class _TableCache(RecordCache[R]):
    """The cache of a table is the table: never behind. What it hands out is a copy, though."""

    def __init__(self, table: MemoryTable[R]) -> None:
        self._table = table
        self.ready = threading.Event()
        self.ready.set()

    def get(self, record_id: str) -> R | None:
        return self._table.get(record_id)

    def ids(self) -> list[str]:
        return self._table.ids()

    def values(self) -> list[R]:
        return [record for record in map(self.get, self.ids()) if record is not None]

    def __len__(self) -> int:
        return len(self.ids())

    def is_empty(self, record_id: str) -> bool:
        return False

    def empty_ids(self) -> list[str]:
        return []

    @property
    def pending_reads(self) -> int:
        return 0

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._table.listeners = [*self._table.listeners, listener]

    def remove_listener(self, listener: Callable[[str], None]) -> None:
        self._table.listeners = [other for other in self._table.listeners if other != listener]

    def wait_settled(self, timeout: float) -> bool:
        return True

    def refresh_stale(self) -> None:
        return

    def has_lock_dir(self, record_id: str) -> bool:
        return self.is_locked(record_id)

    def is_locked(self, record_id: str) -> bool:
        return self._table.is_locked(record_id)

    def contenders(self, record_id: str) -> list[str]:
        holder = self._table.lock_holder(record_id)
        return [] if holder is None else [holder[0].rpartition("/")[2]]


class MemoryCache(NodepoolCache):
    """Nodes and requests; there is no cache of pools, see `MemoryZooKeeper.pools`."""

    def __init__(self, nodes: MemoryTable[Node], requests: MemoryTable[NodeRequest]) -> None:
        self.nodes = _TableCache(nodes)
        self.requests = _TableCache(requests)
        self.maintenance: MemoryMaintenance = MemoryMaintenance()

    @property
    def ready(self) -> bool:
        return True

    def wait_ready(self, timeout: float) -> bool:
        return True


class MemoryZooKeeper(ZooKeeper):
    """All that a driver may call of the facade; thread-safe.

    ``pools`` is what `getRegisteredPools` answers, ``uploads`` what `getMostRecentImageUpload` does:
    (image, provider) -> upload, ``installation`` what `installation_ids` does. All can be changed.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.nodes: MemoryNodeStore = MemoryNodeStore(self.changed)
        self.requests: MemoryRequestStore = MemoryRequestStore(self.changed, self.nodes)
        self.cache: MemoryCache = MemoryCache(self.nodes.table, self.requests.table)
        self.maintenance: MemoryMaintenanceStore = MemoryMaintenanceStore(self.cache.maintenance)
        self.pools: list[PoolComponent] = []
        self.uploads: dict[tuple[str, str], ImageUpload] = {}
        self.installation: tuple[str, ...] = ()
        self._mutexes: dict[str, threading.Lock] = {}

    def installation_ids(self) -> tuple[str, ...]:
        return self.installation

    def getRegisteredPools(self) -> list[PoolComponent]:
        return list(self.pools)

    def getMostRecentImageUpload(self, image: str, provider: str, *, cached: bool = True) -> ImageUpload | None:
        return self.uploads.get((image, provider))

    def getImageUploadIds(self, provider: str) -> set[tuple[str, str]]:
        return {(upload.build_id, upload.key) for (_, name), upload in self.uploads.items() if name == provider}

    @contextlib.contextmanager
    def providerMutex(self, provider_name: str, timeout: float = 30.0) -> Iterator[ZkLock]:
        with self.changed:
            mutex = self._mutexes.setdefault(provider_name, threading.Lock())
        if not mutex.acquire(timeout=timeout):
            raise ZKLockException(f"the mutex of {provider_name} is held by another process")
        try:
            yield ZkLock(paths.static_mutex(provider_name), "", 0)
        finally:
            mutex.release()
