# SPDX-License-Identifier: Apache-2.0
"""A `RecordCache` of records that have a lock directory of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import GetChildren

from nodepool.zk import protocol
from nodepool.zk.cache import R, RecordCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.protocol import Reply


class LockedRecordCache(RecordCache[R]):
    """Records with a ``lock`` directory of their own: knows who holds or waits for each lock."""

    def __init__(self, client: ZooKeeperClient, root: str, decode: Callable[[dict[str, Any], str], R]) -> None:
        self._lock_dirs: set[str] = set()
        self._contenders: dict[str, set[str]] = {}
        super().__init__(client, root, decode)

    def has_lock_dir(self, record_id: str) -> bool:
        return record_id in self._lock_dirs

    def is_locked(self, record_id: str) -> bool:
        """Does anybody hold or wait for the lock?"""
        return record_id in self._contenders

    def contenders(self, record_id: str) -> list[str]:
        """Names of the contenders' znodes, the holder first."""
        return sorted(self._contenders.get(record_id, ()), key=lambda name: name[-10:])

    def _is_foreign(self, record_id: str) -> bool:
        return record_id in self._contenders

    def _on_event_below(self, event: int, record_id: str, below: str) -> None:
        directory, _, contender = below.partition("/")
        if directory != "lock" or event == protocol.CHANGED:
            return
        if not contender:
            if event == protocol.CREATED:
                self._lock_dirs.add(record_id)
            else:
                self._forget_below(record_id)
        elif event == protocol.CREATED:
            self._contenders[record_id] = {*self._contenders.get(record_id, ()), contender}
            self._notify(record_id)
        else:
            self._released(record_id, contender)

    def _released(self, record_id: str, contender: str) -> None:
        left = self._contenders.get(record_id, set()) - {contender}
        if left:
            self._contenders[record_id] = left
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

    def _sync_below(self, record_id: str) -> None:
        kazoo = self._client.kazoo
        self._to_sync += 1
        kazoo.call(
            GetChildren(kazoo.chrooted(f"{self._root}/{record_id}/lock"), None),
            Reply(partial(self._on_contenders, record_id, self._generation)),
        )

    def _on_contenders(
        self, record_id: str, generation: int, names: Iterable[str] | None, error: BaseException | None
    ) -> None:
        if generation != self._generation or (error is not None and not isinstance(error, NoNodeError)):
            return
        if error is None:
            self._lock_dirs.add(record_id)
            if found := set(names or ()):
                self._contenders[record_id] = found
            else:
                self._contenders.pop(record_id, None)
        else:
            self._forget_below(record_id)
        self._notify(record_id)
        self._sync_done(1)
