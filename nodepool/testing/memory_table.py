# SPDX-License-Identifier: Apache-2.0
"""`MemoryTable`: records of one kind in memory, with what ZooKeeper gives them: versions, locks and listeners."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from nodepool.clock import monotonic, wall_time
from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.transactions import ZkLock

R = TypeVar("R", bound=Node | NodeRequest)


@dataclass(frozen=True)
class Stored:
    data: bytes
    version: int = 0
    lock: ZkLock | None = None
    #: Of the holder of the lock.
    identifier: str = ""


class MemoryTable(Generic[R]):
    """Records of one kind. ``changed`` guards them, and is notified of each change.

    :param changed: shared by all tables, so that a write over several tables is one.
    """

    def __init__(self, kind: str, decode: Callable[[bytes, str], R], changed: threading.Condition) -> None:
        self.kind = kind
        self.changed = changed
        self.listeners: list[Callable[[str], None]] = []
        self._decode = decode
        self._rows: dict[str, Stored] = {}
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
        self.tell(record.key)

    def add(self, record: R, prefix: str = "") -> None:
        """`create` that tells nobody."""
        with self.changed:
            record.id = f"{prefix}{next(self._numbers):010d}"
            self._rows[record.id] = Stored(_encode(record))
            record.version = 0

    def check(self, record: R, *, unlocked: bool = False, locked: bool = False) -> Stored:
        """The row, if ``record`` may be written. Call with ``changed`` held. Raises ZKConflict."""
        row = self._rows.get(record.key)
        if row is None:
            raise ZKConflict(f"{self.kind} {record.id} is gone")
        if record.version != row.version:
            raise ZKConflict(f"{self.kind} {record.id} was changed by another process")
        if unlocked and row.lock is not None:
            raise ZKConflict(f"{self.kind} {record.id} is locked")
        if locked and (record.lock is None or row.lock != record.lock):
            raise ZKConflict(f"{self.kind} {record.id} is not locked by us")
        # What cannot be stored must be found out before anything is written.
        _encode(record)
        return row

    def put(self, record: R, row: Stored) -> None:
        """Overwrite. Call with ``changed`` held, after `check`."""
        record.version = row.version + 1
        self._rows[record.key] = replace(row, data=_encode(record), version=record.version)
        self.changed.notify_all()

    def take_lock(
        self, record: R, *, blocking: bool = True, timeout: float | None = None, identifier: str = ""
    ) -> None:
        deadline = None if timeout is None else monotonic() + timeout
        with self.changed:
            while self.row(record).lock is not None:
                left = None if deadline is None else deadline - monotonic()
                if not blocking or (left is not None and left <= 0):
                    raise ZKLockException(f"{self.kind} {record.id} is locked by another process")
                self.changed.wait(left)
            self.set_lock(record, identifier)
        self.tell(record.key)

    def set_lock(self, record: R, identifier: str = "") -> ZkLock:
        """Call with ``changed`` held."""
        directory = f"/{self.kind}/{record.id}/lock"
        record.lock = lock = ZkLock(directory, f"{directory}/{next(self._contenders)}", 0)
        self._rows[record.key] = replace(self.row(record), lock=lock, identifier=identifier)
        return lock

    def lock_holder(self, record_id: str) -> tuple[str, str] | None:
        """Path and identifier of who holds a lock; None = nobody."""
        with self.changed:
            row = self._rows.get(record_id)
            return None if row is None or row.lock is None else (row.lock.contender, row.identifier)

    def release(self, record: R) -> None:
        """Give a lock back; one that is gone with its record is fine. Raises ZKLockException if none is held."""
        if record.lock is None:
            raise ZKLockException(f"{self.kind} {record.id} is not locked by us")
        self.clear_lock(record)
        self.tell(record.key)

    def clear_lock(self, record: R) -> None:
        """`release` that tells nobody; a lock that is not held is fine."""
        with self.changed:
            row = self._rows.get(record.key)
            if row is not None and row.lock == record.lock:
                self._rows[record.key] = replace(row, lock=None)
            record.lock = None
            self.changed.notify_all()

    def force_release(self, record: R) -> None:
        with self.changed:
            self.drop_lock(record)
        self.tell(record.key)

    def drop_lock(self, record: R) -> None:
        """Release the lock, whoever holds it. Call with ``changed`` held."""
        self._rows[record.key] = replace(self.row(record), lock=None)
        record.lock = None
        self.changed.notify_all()

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

    def row(self, record: R) -> Stored:
        """Call with ``changed`` held. Raises ZKConflict."""
        row = self._rows.get(record.key)
        if row is None:
            raise ZKConflict(f"{self.kind} {record.id} is gone")
        return row


def _encode(record: Node | NodeRequest) -> bytes:
    # Also proves that everything that a driver puts into a record can be stored.
    return paths.encode(record.to_dict(wall_time()))


def decode_node(data: bytes, record_id: str) -> Node:
    return Node.from_dict(paths.decode(data), record_id)


def decode_request(data: bytes, record_id: str) -> NodeRequest:
    return NodeRequest.from_dict(paths.decode(data), record_id)
