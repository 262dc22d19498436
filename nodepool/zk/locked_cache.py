# SPDX-License-Identifier: Apache-2.0
"""A `RecordCache` of records that have a lock directory of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException

from nodepool.zk import events, paths
from nodepool.zk.cache import R, RecordCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.multi_read import read_for_callback


class LockedRecordCache(RecordCache[R]):
    """Records with a ``lock`` directory of their own: knows who holds or waits for each lock."""

    def __init__(self, client: ZooKeeperClient, root: str, decode: Callable[[dict[str, Any], str], R]) -> None:
        self._lock_dirs: set[str] = set()
        self._contenders: dict[str, set[str]] = {}
        self._queue_listeners: list[Callable[[str], None]] = []
        #: What events said of contenders since everything is being read anew: it is newer than what was read.
        self._appeared: dict[str, set[str]] = {}
        self._vanished: dict[str, set[str]] = {}
        super().__init__(client, root, decode)

    def add_queue_listener(self, listener: Callable[[str], None]) -> None:
        """Tell when somebody leaves the queue of a lock in which others stand: it may be another one's turn.

        The listeners of the record hear of a lock that nobody wants any more only.

        :param listener: gets the id of the record, in the connection thread; must not block.
        """
        self._queue_listeners.append(listener)

    def has_lock_dir(self, record_id: str) -> bool:
        return record_id in self._lock_dirs

    def is_locked(self, record_id: str) -> bool:
        """Does anybody hold or wait for the lock?"""
        return record_id in self._contenders

    def locked_ids(self) -> frozenset[str]:
        """The records for which `is_locked` is true now."""
        return frozenset(self._contenders)

    def contenders(self, record_id: str) -> list[str]:
        """Names of the contenders' znodes, the holder first.

        What else somebody has put there comes last: nobody has the lock by it.
        """
        names = {name: paths.contender_sequence(name) for name in self._contenders.get(record_id, ())}
        return sorted(names, key=lambda name: (names[name] is None, names[name] or name))

    def _is_foreign(self, record_id: str) -> bool:
        return record_id in self._contenders

    def _on_event_below(self, event: int, record_id: str, below: str) -> None:
        directory, _, contender = below.partition("/")
        if directory != paths.LOCK or event == events.CHANGED or "/" in contender:
            return
        self._note(event, record_id, contender)
        if not contender:
            if event == events.CREATED:
                self._lock_dirs.add(record_id)
            else:
                self._forget_below(record_id)
        elif event == events.CREATED:
            self._contenders[record_id] = {*self._contenders.get(record_id, ()), contender}
            self._notify(record_id)
        else:
            self._released(record_id, contender)

    def _released(self, record_id: str, contender: str) -> None:
        left = self._contenders.get(record_id, set()) - {contender}
        if left:
            self._contenders[record_id] = left
            for listener in self._queue_listeners:
                with self._guard:
                    listener(record_id)
            return
        self._contenders.pop(record_id, None)
        with self._lock:
            stale = record_id in self._stale
            self._stale.discard(record_id)
            expected = self._expected.get(record_id)
            if expected is not None:
                expected[2] = 1
        # Listeners hear of the release when the record is known again.
        if stale:
            self._read(record_id)
        elif expected is None:
            self._notify(record_id)

    def _drop(self, record_id: str) -> None:
        self._forget_below(record_id)
        super()._drop(record_id)

    def _forget_below(self, record_id: str) -> None:
        self._lock_dirs.discard(record_id)
        self._contenders.pop(record_id, None)

    def _note(self, event: int, record_id: str, contender: str) -> None:
        """Remember an event that may overtake a read; a contender's name is never used again."""
        if not self.ready.is_set():
            notes = self._appeared if event == events.CREATED else self._vanished
            notes.setdefault(record_id, set()).add(contender)

    def _resync(self) -> None:
        self._appeared.clear()
        self._vanished.clear()
        super()._resync()

    def _sync_below(self, record_ids: list[str]) -> None:
        operations = self._client.kazoo.operations
        self._to_sync += len(record_ids)
        reads = ((i, operations.children(f"{self._root}/{i}/lock")) for i in record_ids)
        read_for_callback(self._client, reads, partial(self._on_contenders, self._generation))

    def _sync_childless(self, record_id: str) -> None:
        self._take_contenders(record_id, None)

    def _on_contenders(self, generation: int, found: list[tuple[str, Any]]) -> None:
        if generation != self._generation:
            return
        for record_id, names in found:
            # An error: it was deleted meanwhile.
            self._take_contenders(record_id, None if isinstance(names, KazooException) else names)
            self._notify(record_id)
        self._sync_done(len(found))

    def _take_contenders(self, record_id: str, names: list[str] | None) -> None:
        """What was read, and what events said since.

        :param names: None = there was no lock directory.
        """
        appeared, vanished = self._appeared.get(record_id), self._vanished.get(record_id, set())
        contenders = {*(names or ()), *(appeared or ())} - {"", *vanished}
        self._forget_below(record_id)
        # The empty name stands for the directory itself.
        if (names is not None or appeared) and "" not in vanished:
            self._lock_dirs.add(record_id)
        if contenders:
            self._contenders[record_id] = contenders
