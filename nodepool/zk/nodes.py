# SPDX-License-Identifier: Apache-2.0
"""Nodes and requests in ZooKeeper (reference/zookeeper 4, 5).

First their caches, then reads, which both have in common, then writes, locks and removal of nodes, then requests.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from kazoo.exceptions import NoNodeError, NotEmptyError

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException, ZKTooLarge
from nodepool.model.node import Node
from nodepool.model.record import InvalidRecord, Record
from nodepool.model.request import NodeRequest
from nodepool.model.states import DELETING
from nodepool.model.status import PoolComponent
from nodepool.zk import paths, transactions
from nodepool.zk.cache import RecordCache
from nodepool.zk.caches import ImageCache, MaintenanceCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import Reply
from nodepool.zk.transactions import (
    SEQUENCE,
    Transaction,
    TransactionFailed,
    ZkLock,
    ensure_path,
    result,
    translated,
    was_removed,
    was_written,
)


class NodepoolCache:
    """Follows ZooKeeper and our own writes. Each transaction tells it what is written."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self.nodes: RecordCache[Node] = RecordCache(client, paths.NODES, Node.from_dict)
        self.requests: RecordCache[NodeRequest] = RecordCache(client, paths.REQUESTS, NodeRequest.from_dict)
        self.pools: RecordCache[PoolComponent] = RecordCache(
            client, f"{paths.COMPONENTS}/{PoolComponent.kind}", PoolComponent.from_dict
        )
        self.images = ImageCache(client)
        self.maintenance = MaintenanceCache(client)

    @property
    def ready(self) -> bool:
        return all(cache.ready.is_set() for cache in self._all())

    def wait_ready(self, timeout: float) -> bool:
        """Wait until all caches are complete, at most ``timeout`` seconds."""
        deadline = monotonic() + timeout
        return all(cache.wait_ready(max(0.0, deadline - monotonic())) for cache in self._all())

    def _all(self) -> tuple[RecordCache[Any] | ImageCache | MaintenanceCache, ...]:
        return (self.nodes, self.requests, self.pools, self.images, self.maintenance)

    def wait_settled(self, timeout: float) -> bool:
        """Wait until what ZooKeeper reported so far has been read, at most ``timeout`` seconds."""
        return all([self.nodes.wait_settled(timeout), self.requests.wait_settled(timeout)])

    def of(self, record: Record) -> RecordCache[Any]:
        """The cache that a record is in. Own writes are announced to it."""
        return self.nodes if isinstance(record, Node) else self.requests


R = TypeVar("R", bound=Record)


class RecordStore(Generic[R]):
    """The records directly below one znode. All methods block for one round trip. They raise `ZKConnectionError`.

    :param root: path of that znode; need not exist.
    :param from_dict: makes a record of (JSON object, id); raises InvalidRecord.
    :param cache: notified of our writes and asked for lock directories; None reads ZooKeeper (command line).
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(
        self,
        client: ZooKeeperClient,
        root: str,
        from_dict: Callable[[dict[str, Any], str], R],
        cache: NodepoolCache | None,
    ) -> None:
        self._client = client
        self._root = root
        self._from_dict = from_dict
        self._cache = cache

    def transaction(self) -> Transaction:
        return Transaction(self._client, self._cache)

    def _create(self, begin: Callable[[], Transaction]) -> None:
        """Commit what creates a record here; makes the root if it is missing. A lost answer is resolved."""
        for last in (False, True):
            tx = begin()
            try:
                tx.commit_unless(tx.was_created)
                return
            except TransactionFailed as failure:
                if last or not self.root_is_missing(failure):
                    raise
                ensure_path(self._client, self._root)

    def root_is_missing(self, failure: TransactionFailed) -> bool:
        """Could a record not be stored because the parent of all of them is not there yet?"""
        return isinstance(failure.error, NoNodeError) and failure.path.rpartition("/")[0] == self._root

    def ids(self) -> list[str]:
        """Ids of all records, in ZooKeeper's order."""
        return [name for name in transactions.children(self._client, self._root) if name != paths.LOCK]

    def issued(self) -> int:
        """How many ids there have been: the next one is this number."""
        found = transactions.read_one(self._client, self._root)
        # ZooKeeper counts deletions, too.
        return 0 if found is None else (found[1].cversion + found[1].numChildren) // 2

    def get(self, record_id: str) -> R | None:
        """Read one record; None if there is none, or its data is no record (logged)."""
        found = self._read(record_id)
        return None if found is None else self._decode(record_id, *found)

    def _read(self, record_id: str) -> tuple[bytes, Any] | None:
        return transactions.read_one(self._client, self._path(record_id)) if paths.is_name(record_id) else None

    def _path(self, record_id: str) -> str:
        return f"{self._root}/{record_id}"

    def existing(self, record_ids: Iterable[str]) -> set[str]:
        """Which of these znodes are there, whatever their data? Many in a packet."""
        names = [record_id for record_id in record_ids if paths.is_name(record_id)]
        answers = transactions.read_data(self._client, map(self._path, names))
        return {name for name, found in zip(names, answers, strict=True) if found is not None}

    def iterate(self) -> Iterator[R]:
        """Read all records, many in a packet; bad ones are logged and skipped."""
        return self.read_some(self.ids())

    def read_some(self, ids: Sequence[str]) -> Iterator[R]:
        """Read some records, as `iterate`; those that are deleted are skipped.

        :param ids: names of znodes (`paths.is_name`).
        """
        for record_id, found in zip(ids, transactions.read_data(self._client, map(self._path, ids)), strict=True):
            record = None if found is None else self._decode(record_id, *found)
            if record is not None:
                yield record

    def _decode(self, record_id: str, data: bytes, stat: Any) -> R | None:
        try:
            record = self._from_dict(paths.decode(data), record_id)
        except InvalidRecord as problem:
            self.log.error("Ignoring %s: %s", self._path(record_id), problem)
            return None
        record.version, record.mzxid = stat.version, stat.mzxid
        return record


#: The rest is for what is written together with a node, such as its lock.
_MOST_NODE_BYTES: Final = paths.MOST_BYTES - 4096


class NodeStore(RecordStore[Node]):
    """All methods block for one round trip unless they say otherwise.

    Errors: `ZKConflict` (nothing was written), `ZKConnectionError` (the outcome is unknown).
    """

    def __init__(self, client: ZooKeeperClient, cache: NodepoolCache | None) -> None:
        super().__init__(client, paths.NODES, Node.from_dict, cache)

    def encode(self, node: Node) -> bytes:
        data = paths.encode(node.to_dict(wall_time()))
        if len(data) > _MOST_NODE_BYTES and node.state == DELETING:
            # Whatever others have put into it, it must be possible to delete it.
            node.leave_out_notes()
            data = paths.encode(node.to_dict(wall_time()))
        return data

    def refresh(self, node: Node) -> None:
        """Read a node again into the same object. Raises ZKConflict if it is deleted or unreadable."""
        fresh = self.get(node.key)
        if fresh is None:
            raise ZKConflict(f"node {node.id} does not exist any more")
        node.renew(fresh)

    # -- writing --

    def create(self, node: Node, under: ZkLock | None = None) -> None:
        """Store a new node; sets its id. A lost answer is resolved by reading.

        :param under: only while this lock is held; a `ZKConflict` if it is lost.
        """

        def begin() -> Transaction:
            tx = self.transaction()
            if under is not None:
                tx.check(under.contender)
            self.add_create(tx, node)
            return tx

        self._create(begin)

    def add_create(self, tx: Transaction, node: Node) -> None:
        """Store a new node in a transaction of another; sets its id."""
        tx.create_record(f"{paths.NODES}/", node, self.encode(node))

    def save(self, node: Node) -> None:
        """Overwrite a node, fenced by its version. A lost answer is resolved by reading."""
        path, data = paths.node(node.key), self.encode(node)
        tx = self.transaction()
        tx.set_record(path, node, data)
        tx.commit_unless(lambda: was_written(self._client, path, node, data))

    def has_lock_dir(self, node_id: str) -> bool:
        if self._cache is not None:
            return self._cache.nodes.has_lock_dir(node_id)
        return transactions.stat_of(self._client, paths.node_lock(node_id)) is not None

    def _with_lock_dir(self, node_id: str, attempt: Callable[[bool], Any]) -> Any:
        """Run a transaction that depends on whether the lock directory exists; once more if that was wrong."""
        exists = self.has_lock_dir(node_id)
        try:
            return attempt(exists)
        except TransactionFailed as failure:
            if not failure.lock_dir_mismatch or not failure.path.startswith(paths.node_lock(node_id)):
                raise
            return attempt(not exists)

    def save_unlocked(self, node: Node) -> None:
        """Overwrite a node, provided that no one holds its lock and it is as we read it."""

        def attempt(exists: bool) -> None:
            tx = self.transaction()
            self.add_unlocked_write(tx, node, exists)
            tx.commit()

        self._with_lock_dir(node.key, attempt)

    def add_unlocked_write(self, tx: Transaction, node: Node, exists: bool) -> None:
        """The operations of `save_unlocked`, for a larger transaction.

        :param exists: is the lock directory there?
        """
        node_id = node.key
        tx.fence_lock(paths.node_lock(node_id), exists=exists, keep=True)
        tx.set_record(paths.node(node_id), node, self.encode(node))

    # -- locks --

    def lock(
        self,
        node: Node,
        *,
        blocking: bool = True,
        timeout: float | None = None,
        ephemeral: bool = True,
        identifier: str | None = None,
    ) -> None:
        """Take the lock and keep it in ``node.lock``. The caller reads the node again (`refresh`).

        :raises ZKLockException: another has it.
        """
        node.lock = transactions.acquire(
            self._client,
            paths.node_lock(node.key),
            blocking=blocking,
            timeout=timeout,
            ephemeral=ephemeral,
            identifier=identifier,
        )

    def lock_and_save(self, node: Node, identifier: str = "", under: ZkLock | None = None) -> None:
        """Take the free lock and overwrite the node, in one write. A lost answer is resolved by reading.

        :param under: only while this other lock is held.
        :raises ZKConflict: another holds the lock, the node is not as we read it, or ``under`` is lost.
        """
        self._with_lock_dir(node.key, lambda exists: self.begin_lock_and_save(node, exists, identifier, under)())

    def begin_lock_and_save(
        self, node: Node, exists: bool, identifier: str = "", under: ZkLock | None = None
    ) -> Callable[[], None]:
        """Begin `lock_and_save`; does not block. The result waits for the end, and raises. It must be called.

        :param exists: is the lock directory there?
        """

        def send() -> tuple[Transaction, Reply]:
            tx, done = self._locking(node, exists, identifier, under)
            return tx, tx.send(done, resolved=True)

        def end() -> None:
            tx, reply = sent
            while True:
                try:
                    result(reply)
                    return
                except ZKConnectionError:
                    contender = tx.taken()
                    if contender is not None:
                        node.lock = ZkLock(paths.node_lock(node.key), contender, tx.epoch)
                        return
                    tx, reply = send()

        sent = send()
        return end

    def send_lock_and_save(self, node: Node, exists: bool) -> Reply:
        """`lock_and_save` without waiting; ``node.lock`` is set when the reply is there.

        After a lost answer the lock is given back.
        """
        tx, done = self._locking(node, exists, "", None)
        return tx.send(done)

    def _locking(
        self, node: Node, exists: bool, identifier: str, under: ZkLock | None
    ) -> tuple[Transaction, Callable[[Any, BaseException | None], None]]:
        lock_dir = paths.node_lock(node.key)
        tx = self.transaction()
        if under is not None:
            tx.check(under.contender)
        tx.fence_lock(lock_dir, exists=exists, keep=True)
        index = tx.create_contender(lock_dir, identifier)
        tx.set_record(paths.node(node.key), node, self.encode(node))

        def done(results: Any, error: BaseException | None) -> None:
            if error is None:
                node.lock = ZkLock(lock_dir, results[index], self._client.session_epoch)

        return tx, done

    def surely_locked(self, node: Node) -> bool:
        """Do we hold the lock beyond doubt? Does not block; False = not known just now.

        For what ZooKeeper cannot fence, because it happens elsewhere.

        :raises ZKConflict: the lock is lost.
        """
        if node.lock is None or node.lock.epoch != self._client.session_epoch:
            raise ZKConflict(f"the lock of node {node.id} is lost")
        return self._client.session_is_certain(node.lock.epoch)

    def unlock(self, node: Node) -> None:
        """Give the lock back. Raises ZKLockException if none is held."""
        if node.lock is None:
            raise ZKLockException(f"node {node.id} is not locked by us")
        transactions.release(self._client, node.lock)
        node.lock = None

    def contenders(self, node_id: str) -> list[str]:
        """Identifiers of who holds and waits for the lock, the holder first."""
        return [data for _, data in transactions.contenders(self._client, paths.node_lock(node_id))]

    def lock_holder(self, node_id: str) -> tuple[str, str] | None:
        """Who holds the lock: path of the contender and its identifier; None = no one."""
        return next(iter(transactions.contenders(self._client, paths.node_lock(node_id))), None)

    def lock_for_good(self, node: Node, identifier: str) -> str:
        """Overwrite a node and take its free lock with a contender that outlives the session, in one write.

        :return: path of the contender, for `save_and_release`.
        :raises ZKConflict: another holds the lock, or the node is not as we read it.
        """
        lock_dir = paths.node_lock(node.key)

        def attempt(exists: bool) -> Any:
            tx = self.transaction()
            # First: caches read at once what was written to a node that is not known to be locked.
            tx.set_record(paths.node(node.key), node, self.encode(node))
            tx.fence_lock(lock_dir, exists=exists, keep=True)
            index = tx.create(transactions.contender_prefix(lock_dir), identifier.encode(), flags=SEQUENCE)
            return tx.commit()[index]

        contender: str = self._with_lock_dir(node.key, attempt)
        return contender

    def save_and_release(self, node: Node, contender: str) -> None:
        """Overwrite a node and release a lock on it, no matter who took it, in one write.

        :param contender: path of the contender that holds the lock.
        :raises ZKConflict: it does not, or the node is not as we read it.
        """
        tx = self.transaction()
        tx.set_record(paths.node(node.key), node, self.encode(node))
        tx.delete(contender)
        tx.commit()

    def force_unlock(self, node: Node) -> None:
        """Delete the contender that holds the lock, no matter who made it (persistent locks of metastatic)."""
        for path, _ in transactions.contenders(self._client, paths.node_lock(node.key))[:1]:
            transactions.release(self._client, ZkLock(paths.node_lock(node.key), path, self._client.session_epoch))
        node.lock = None

    def is_locked(self, node_id: str) -> bool:
        """Does anybody hold or wait for the lock? From the cache when there is one."""
        if self._cache is not None:
            return self._cache.nodes.is_locked(node_id)
        return bool(transactions.children(self._client, paths.node_lock(node_id)))

    def locked_ids(self, node_ids: list[str]) -> set[str]:
        """Which of these nodes are locked; from the cache when there is one, else many read in a packet."""
        if self._cache is not None:
            return {i for i in node_ids if self._cache.nodes.is_locked(i)}
        contenders = transactions.read_children(self._client, map(paths.node_lock, node_ids))
        return {node_id for node_id, names in zip(node_ids, contenders, strict=True) if names}

    # -- removal --

    def remove(self, node: Node, replacement: Node | None = None) -> None:
        """Remove a node that we hold locked, and store another in its place, in one write.

        A lost answer is resolved by reading, but for that to a ``replacement``: no one knows its id.

        :param replacement: a new node, which gets its id; None = only remove.
        :raises ZKConflict: our lock is lost, or someone waits for it and ``replacement`` is given.
        """
        lock, path = node.lock, paths.node(node.key)
        if lock is None:
            raise ZKLockException(f"node {node.id} is not locked by us")
        tx = self.transaction()
        for doomed in (lock.contender, lock.path, path):
            tx.delete(doomed)
        try:
            if replacement is None:
                tx.commit_unless(lambda: was_removed(self._client, path, lock.contender))
            else:
                self.add_create(tx, replacement)
                tx.commit()
        except TransactionFailed as failure:
            # Someone waits for the lock of a node that has to go. He finds it `deleted`.
            if isinstance(failure.error, NoNodeError) or replacement is not None:
                raise
            node.state = "deleted"
            self.save(node)
            self.remove_raw(node.key)
        node.lock = None

    def send_remove_unlocked(self, node: Node, exists: bool, replacement: Node | None) -> Reply:
        """Remove a node that no one has locked, with its replacement, in one write; does not block.

        :param exists: is the lock directory there?
        """
        lock_dir = paths.node_lock(node.key)
        tx = self.transaction()
        if exists:
            tx.delete(lock_dir)
        tx.delete(paths.node(node.key), -1 if node.version is None else node.version)
        if replacement is not None:
            self.add_create(tx, replacement)
        return tx.send()

    def remove_raw(self, node_id: str) -> None:
        """Delete a node's znode with everything below, whatever its data and locks."""
        transactions.remove(self._client, paths.node(node_id), recursive=True)

    def remove_empty(self, node_id: str) -> bool:
        """Remove a znode without data unless someone holds its lock (rule C-8); was it removed?"""
        found = self._read(node_id)
        if found is None or found[0]:
            return False
        for exists in (True, False):
            tx = self.transaction()
            if exists:
                tx.delete(paths.node_lock(node_id))
            tx.delete(paths.node(node_id), found[1].version)
            try:
                tx.commit()
                return True
            except ZKConflict:
                continue
        return False


# Node requests (reference/zookeeper 4).

#: Growth for each label when a request is served, in bytes: the id of the node in the record (14), and the release of
#: its lock in the same write (99, and the length of the chroot).
_LABEL_BYTES: Final = 160
#: Growth by the launchers that decline a request before it is served, in bytes.
_OTHER_BYTES: Final = 65_536


class RequestStore(RecordStore[NodeRequest]):
    """Blocking as in `NodeStore`, and with the same errors."""

    def __init__(self, client: ZooKeeperClient, cache: NodepoolCache | None, nodes: NodeStore) -> None:
        super().__init__(client, paths.REQUESTS, NodeRequest.from_dict, cache)
        self._nodes = nodes

    def _encode_small(self, request: NodeRequest) -> bytes:
        """:raises ZKTooLarge: not all that is to be written later can be written, too."""
        data = self.encode(request)
        size = len(data) + _LABEL_BYTES * len(request.node_types) + _OTHER_BYTES
        if size > paths.MOST_BYTES:
            raise ZKTooLarge(f"request {request.id} has {len(data)} bytes, which leaves no room for what is added")
        return data

    def encode(self, request: NodeRequest) -> bytes:
        return paths.encode(request.to_dict(wall_time()))

    # -- writing --

    def create(self, request: NodeRequest, priority: str, under: ZkLock | None = None) -> None:
        """Submit a request of our own: ephemeral, so that it goes with our session. A lost answer is resolved.

        :param priority: the three digits ``PPP``.
        :param under: only while this lock is held, which goes with the same session; a `ZKConflict` if it is lost.
        """
        prefix = f"{paths.REQUESTS}/{int(priority):03d}-"

        def begin() -> Transaction:
            tx = self.transaction()
            if under is not None:
                tx.check(under.contender)
            tx.create_record(prefix, request, self.encode(request), ephemeral=True)
            return tx

        self._create(begin)

    def save(self, request: NodeRequest) -> None:
        """Overwrite a request that we hold locked, fenced by its version."""
        tx = self.transaction()
        tx.set_record(paths.request(request.key), request, self.encode(request))
        tx.commit()

    def delete(self, request: NodeRequest) -> None:
        """Delete a request of our own; one that is not there is fine."""
        transactions.remove(self._client, paths.request(request.key))

    def send_unlocked(
        self, request: NodeRequest, nodes: Iterable[Node] = (), *, lock_dir_exists: bool = False
    ) -> Reply:
        """Write a request and nodes that no one has locked, in one write; does not block.

        This is how ready nodes fulfil a request at once, and how a request is declined or reset. Order on the
        wire (reference/zookeeper 4.4) holds because everything appears at the same time.

        :param lock_dir_exists: does the request's lock directory exist? If the answer was
            `TransactionFailed.lock_dir_mismatch` for that directory, send again with the other value.
        """
        tx = self.transaction()
        # A directory that is there may be about to be used by Zuul, so it is left; ours would be litter.
        tx.fence_lock(paths.request_lock(request.key), exists=lock_dir_exists, keep=lock_dir_exists)
        tx.set_record(paths.request(request.key), request, self.encode(request))
        for node in nodes:
            self._nodes.add_unlocked_write(tx, node, self._nodes.has_lock_dir(node.key))

        def done(_: Any, error: BaseException | None) -> None:
            if not lock_dir_exists and isinstance(error, TransactionFailed) and self._root_is_missing(request, error):
                self._make_root()

        return tx.send(done)

    def save_unlocked(self, request: NodeRequest, nodes: Iterable[Node] = ()) -> None:
        """`send_unlocked` and wait, with a second try if the lock directory was not as assumed.

        What is too large for one write is written in several, the request last.
        """
        nodes = list(nodes)
        try:
            result(self.send_unlocked(request, nodes))
        except ZKTooLarge:
            if not nodes:
                raise
            for node in nodes:
                self._nodes.save_unlocked(node)
            self.save_unlocked(request)
        except TransactionFailed as failure:
            if not self.lock_dir_was_there(request, failure):
                raise
            exists = not self._root_is_missing(request, failure)
            result(self.send_unlocked(request, nodes, lock_dir_exists=exists))

    @staticmethod
    def lock_dir_was_there(request: NodeRequest, failure: TransactionFailed) -> bool:
        """Did a write fail only because the request has a lock directory?"""
        return failure.lock_dir_mismatch and failure.path == paths.request_lock(request.key)

    @staticmethod
    def _root_is_missing(request: NodeRequest, failure: TransactionFailed) -> bool:
        """Could a lock directory not be made because the parent of all of them is deleted? (F-4: data was wiped)"""
        return failure.path == paths.request_lock(request.key) and isinstance(failure.error, NoNodeError)

    def _make_root(self) -> None:
        """Send the creation of the parent of all lock directories; what is sent after it finds it there."""
        kazoo = self._client.kazoo
        kazoo.call(kazoo.operations.create(paths.REQUEST_LOCKS), Reply())

    # -- locks --

    def send_lock(self, request: NodeRequest, node: Node | None = None) -> Callable[[], None]:
        """Begin to take the free lock and to overwrite the request, in one write; does not block.

        The result waits for the end. It must be called. A lost answer is resolved by reading. It raises ZKConflict:
        another holds the lock, or the request is not as we read it.

        :param node: created with it; not locked.
        :raises ZKTooLarge: the request could not be written when it is fulfilled; nothing was sent.
        """
        lock_dir = paths.request_lock(request.key)
        data = self._encode_small(request)

        def send(exists: bool) -> tuple[Transaction, Reply, int]:
            tx = self.transaction()
            tx.fence_lock(lock_dir, exists=exists, keep=True)
            index = tx.create_contender(lock_dir)
            tx.set_record(paths.request(request.key), request, data)
            if node is not None:
                self._nodes.add_create(tx, node)
            return tx, tx.send(resolved=True), index

        def end() -> None:
            (tx, reply, index), exists, tries_left = sent, False, 2
            while True:
                try:
                    request.lock = ZkLock(lock_dir, result(reply)[index], tx.epoch)
                    return
                except ZKConnectionError:
                    contender = tx.taken()
                    if contender is not None:
                        request.lock = ZkLock(lock_dir, contender, tx.epoch)
                        return
                except TransactionFailed as failure:
                    if tries_left and self.lock_dir_was_there(request, failure):
                        exists = not self._root_is_missing(request, failure)
                        if not exists:
                            self._make_root()
                    elif tries_left and self._nodes.root_is_missing(failure):
                        ensure_path(self._client, paths.NODES)
                    else:
                        raise
                    tries_left -= 1
                tx, reply, index = send(exists)

        sent = send(False)
        return end

    def lock(self, request: NodeRequest, *, blocking: bool = True, timeout: float | None = None) -> None:
        """Take the lock with Kazoo's recipe. Raises ZKLockException if another has it."""
        request.lock = transactions.acquire(
            self._client, paths.request_lock(request.key), blocking=blocking, timeout=timeout
        )

    def unlock(self, request: NodeRequest) -> None:
        """Give the lock back and remove its directory unless someone waits. Raises ZKLockException."""
        if request.lock is None:
            raise ZKLockException(f"request {request.id} is not locked by us")
        lock, request.lock = request.lock, None
        transactions.release(self._client, lock)
        self.remove_lock_dir(request.key)

    def finish(
        self, request: NodeRequest, nodes: Iterable[Node] = (), *, nodes_too: bool = False, unlocked: bool = False
    ) -> None:
        """Write a request that we hold locked, release its lock and those of its nodes, in one write.

        A lost answer is resolved by reading.

        :param nodes: nodes that we hold locked; one without a lock stays so.
        :param nodes_too: write the nodes as well.
        :param unlocked: only while no one has locked a node.
        :raises ZKConflict: the request was changed or deleted, or a lock is lost. Nothing was written.
        """
        self.send_finish(request, nodes, nodes_too=nodes_too, unlocked=unlocked)()

    def send_finish(
        self, request: NodeRequest, nodes: Iterable[Node] = (), *, nodes_too: bool = False, unlocked: bool = False
    ) -> Callable[[], None]:
        """Begin `finish`; does not block, unless ``unlocked``. The result waits for the end, and raises.

        It must be called.
        """
        lock = request.lock
        if lock is None:
            raise ZKLockException(f"request {request.id} is not locked by us")
        held = list(nodes)

        def send(keep_directory: bool) -> Reply:
            tx = self.transaction()
            for node in held:
                if unlocked:
                    self._nodes.add_unlocked_write(tx, node, self._nodes.has_lock_dir(node.key))
                elif nodes_too:
                    tx.set_record(paths.node(node.key), node, self._nodes.encode(node))
                if node.lock is not None:
                    tx.delete(node.lock.contender)
            tx.set_record(paths.request(request.key), request, self.encode(request))
            tx.delete(lock.contender)
            if not keep_directory:
                tx.delete(lock.path)
            return tx.send()

        def end() -> None:
            attempt, keep_directory = sent, False
            while True:
                try:
                    result(attempt)
                    break
                except ZKConnectionError:
                    # Trying again without a look would be a conflict with ourselves.
                    if was_written(self._client, paths.request(request.key), request, self.encode(request)):
                        break
                except TransactionFailed as failure:
                    # Someone waits for the request lock just now (Zuul revises the priority): leave the directory.
                    in_use = failure.path == lock.path and isinstance(failure.error, NotEmptyError)
                    if keep_directory or not in_use:
                        raise
                    keep_directory = True
                attempt = send(keep_directory)
            request.lock = None
            for node in held:
                node.lock = None

        sent = send(False)
        return end

    def remove_lock_dir(self, request_id: str) -> bool:
        """Remove a request's lock directory if no one is in it; is it deleted now?"""
        with translated(), contextlib.suppress(NoNodeError):
            try:
                self._client.kazoo.delete(paths.request_lock(request_id))
            except NotEmptyError:
                return False
        return True

    def lock_dir_ids(self) -> list[str]:
        """Ids for which a lock directory exists."""
        return transactions.children(self._client, paths.REQUEST_LOCKS)

    def lock_dir_age(self, request_id: str) -> float | None:
        """Seconds since the lock directory changed, or None if it is deleted."""
        stat = transactions.stat_of(self._client, paths.request_lock(request_id))
        return None if stat is None else wall_time() - stat.mtime / 1000

    def remove_lock_dir_recursive(self, request_id: str) -> None:
        """Remove a lock directory with its contenders (rule C-2)."""
        transactions.remove(self._client, paths.request_lock(request_id), recursive=True)
