# SPDX-License-Identifier: Apache-2.0
"""A competitor for locks that uses Kazoo's own recipe, as Zuul does."""

from __future__ import annotations

import threading
from typing import Any

from kazoo.client import KazooClient

from tests.support.wait import wait_for


class Competitor:
    """Takes locks with ``kazoo.recipe.lock.Lock``.

    :param kazoo: connected, in the test's chroot.
    """

    def __init__(self, kazoo: KazooClient) -> None:
        self._kazoo = kazoo
        self._threads: list[threading.Thread] = []
        self._locks: list[Any] = []

    def hold(self, lock_dir: str, identifier: str = "zuul") -> Any:
        """Takes a free lock and returns it."""
        lock = self._kazoo.Lock(lock_dir, identifier)
        assert lock.acquire(timeout=30)
        self._locks.append(lock)
        return lock

    def may_take(self, lock_dir: str) -> bool:
        """Could it be taken now?"""
        lock = self._kazoo.Lock(lock_dir, "zuul")
        if not lock.acquire(blocking=False):
            return False
        lock.release()
        return True

    def wait_for_lock(self, lock_dir: str, order: list[str] | None = None, name: str = "zuul") -> threading.Event:
        """Queues for a lock in a thread; returns when it is in the queue. The event is set when it has the lock."""
        taken = threading.Event()
        before = self._contenders(lock_dir)

        def acquire() -> None:
            lock = self._kazoo.Lock(lock_dir, name)
            if lock.acquire(timeout=60):
                if order is not None:
                    order.append(name)
                taken.set()
                self._locks.append(lock)

        thread = threading.Thread(target=acquire, name=f"waits-for-{lock_dir}")
        thread.start()
        self._threads.append(thread)
        wait_for("it is in the queue", lambda: taken.is_set() or self._contenders(lock_dir) > before)
        return taken

    def _contenders(self, lock_dir: str) -> int:
        return len(self._kazoo.get_children(lock_dir)) if self._kazoo.exists(lock_dir) else 0

    def stop(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        for lock in self._locks:
            lock.release()
