# SPDX-License-Identifier: Apache-2.0
"""Node requests in ZooKeeper: read, write, lock (reference/zookeeper 4)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoNodeError, NotEmptyError

from nodepool.clock import wall_time
from nodepool.exceptions import ZKConnectionError, ZKLockException, ZKTooLarge
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import locks, paths, transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.locks import ZkLock
from nodepool.zk.nodes import NodeStore, RecordStore
from nodepool.zk.reply import Reply
from nodepool.zk.transactions import Transaction, TransactionFailed, ensure_path, result, translated, was_written

if TYPE_CHECKING:
    from nodepool.zk.caches import NodepoolCache


#: Growth for each label when a request is served, in bytes: the id of the node in the record (14), and the release of
#: its lock in the same write (99, and the length of the chroot).
_LABEL_BYTES: Final = 160
#: Growth by the launchers that decline a request before it is served, in bytes.
_OTHER_BYTES: Final = 65_536


class RequestStore(RecordStore[NodeRequest]):
    """Blocking as in `NodeStore`, and with the same errors."""

    def __init__(
        self,
        client: ZooKeeperClient,
        cache: NodepoolCache | None,
        nodes: NodeStore,
        clock: Callable[[], float] = wall_time,
    ) -> None:
        super().__init__(client, paths.REQUESTS, NodeRequest.from_dict, cache, clock)
        self._nodes = nodes

    def _encode_small(self, request: NodeRequest) -> bytes:
        """:raises ZKTooLarge: not all that is to be written later can be written, too."""
        data = self.encode(request)
        size = len(data) + _LABEL_BYTES * len(request.node_types) + _OTHER_BYTES
        if size > paths.MOST_BYTES:
            raise ZKTooLarge(f"request {request.id} has {len(data)} bytes, which leaves no room for what is added")
        return data

    def encode(self, request: NodeRequest) -> bytes:
        return paths.encode(request.to_dict(self._clock()))

    # -- writing --

    def create(self, request: NodeRequest, priority: str) -> None:
        """Submit a request of our own: ephemeral, so that it goes with our session. A lost answer is resolved.

        :param priority: the three digits ``PPP``.
        """
        prefix = f"{paths.REQUESTS}/{int(priority):03d}-"

        def begin() -> Transaction:
            tx = self.transaction()
            tx.create_record(prefix, request, self.encode(request), ephemeral=True)
            return tx

        self._create(begin)

    def save(self, request: NodeRequest) -> None:
        """Overwrite a request that we hold locked, fenced by its version."""
        tx = self.transaction()
        tx.set_record(paths.request(request.key), request, self.encode(request))
        tx.commit()

    def delete(self, request: NodeRequest) -> None:
        """Delete a request of our own; one that is gone is fine."""
        transactions.remove(self._client, paths.request(request.key))

    def send_unlocked(
        self, request: NodeRequest, nodes: Iterable[Node] = (), *, lock_dir_exists: bool = False
    ) -> Reply:
        """Write a request and nodes that nobody has locked, in one write; does not block.

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
        """Could a lock directory not be made because the parent of all of them is gone? (F-4: data was wiped)"""
        return failure.path == paths.request_lock(request.key) and isinstance(failure.error, NoNodeError)

    def _make_root(self) -> None:
        """Send the creation of the parent of all lock directories; what is sent after it finds it there."""
        kazoo = self._client.kazoo
        kazoo.call(kazoo.operations.create(paths.REQUEST_LOCKS), Reply())

    # -- locks --

    def lock_and_save(self, request: NodeRequest) -> None:
        """Take the free lock and overwrite the request, in one write. A lost answer is resolved by reading.

        :raises ZKConflict: somebody else holds the lock, or the request is not as we read it.
        """
        self.send_lock(request)()

    def send_lock(self, request: NodeRequest, node: Node | None = None) -> Callable[[], None]:
        """Begin `lock_and_save`; does not block. The result waits for the end, and raises. It must be called.

        :param node: created with it; not locked.
        :raises ZKTooLarge: the request could not be written when it is fulfilled; nothing was sent.
        """
        lock_dir = paths.request_lock(request.key)
        data = self._encode_small(request)

        def send(exists: bool) -> tuple[Transaction, Reply, int]:
            tx = self.transaction()
            tx.fence_lock(lock_dir, exists=exists, keep=True)
            index = locks.add_contender(tx, lock_dir)
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
        """Take the lock with Kazoo's recipe. Raises ZKLockException if somebody else has it."""
        request.lock = locks.acquire(self._client, paths.request_lock(request.key), blocking=blocking, timeout=timeout)

    def unlock(self, request: NodeRequest) -> None:
        """Give the lock back and remove its directory unless somebody waits. Raises ZKLockException."""
        if request.lock is None:
            raise ZKLockException(f"request {request.id} is not locked by us")
        lock, request.lock = request.lock, None
        locks.release(self._client, lock)
        self.remove_lock_dir(request.key)

    def finish(self, request: NodeRequest, nodes: Iterable[Node] = (), *, nodes_too: bool = False) -> None:
        """Write a request that we hold locked, release its lock and those of its nodes, in one write.

        A lost answer is resolved by reading.

        :param nodes: nodes that we hold locked.
        :param nodes_too: write the nodes as well.
        :raises ZKConflict: the request was changed or deleted, or a lock is gone. Nothing was written.
        """
        self.send_finish(request, nodes, nodes_too=nodes_too)()

    def send_finish(
        self, request: NodeRequest, nodes: Iterable[Node] = (), *, nodes_too: bool = False
    ) -> Callable[[], None]:
        """Begin `finish`; does not block. The result waits for the end, and raises. It must be called."""
        lock = request.lock
        if lock is None:
            raise ZKLockException(f"request {request.id} is not locked by us")
        held = list(nodes)

        def send(keep_directory: bool) -> Reply:
            return self._finish_transaction(request, lock, held, nodes_too, keep_directory).send()

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
                    # Somebody waits for the request lock just now (Zuul revises the priority): leave the directory.
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

    def _finish_transaction(
        self, request: NodeRequest, lock: ZkLock, nodes: Iterable[Node], nodes_too: bool, keep_directory: bool
    ) -> Transaction:
        tx = self.transaction()
        for node in nodes:
            if nodes_too:
                tx.set_record(paths.node(node.key), node, self._nodes.encode(node))
            if node.lock is not None:
                tx.delete(node.lock.contender)
        tx.set_record(paths.request(request.key), request, self.encode(request))
        tx.delete(lock.contender)
        if not keep_directory:
            tx.delete(lock.path)
        return tx

    def remove_lock_dir(self, request_id: str) -> bool:
        """Remove a request's lock directory if nobody is in it; is it gone now?"""
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
        """Seconds since the lock directory changed, or None if it is gone."""
        stat = transactions.stat_of(self._client, paths.request_lock(request_id))
        return None if stat is None else self._clock() - stat.mtime / 1000

    def remove_lock_dir_recursive(self, request_id: str) -> None:
        """Remove a lock directory with its contenders (rule C-2)."""
        transactions.remove(self._client, paths.request_lock(request_id), recursive=True)
