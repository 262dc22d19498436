# SPDX-License-Identifier: Apache-2.0
"""Contenders of locks that may be there although this process does not want them any more.

The answer to the write that makes a contender may be lost, and so may the deletion of a contender. It would stay as
long as the session, and no other process could get the lock. So it is searched for and deleted, however long that is.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NoNodeError

from nodepool import log_names
from nodepool.exceptions import ZKConnectionError
from nodepool.zk.reply import Reply

if TYPE_CHECKING:
    from nodepool.zk.client import ZooKeeperClient


class OrphanedContenders:
    """Contenders that are to go, and may be there. Any thread. ``_lock`` guards their set."""

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._prefixes: set[str] = set()
        client.add_session_listener(self._on_session)

    def __len__(self) -> int:
        return len(self._prefixes)

    def add(self, prefix: str) -> None:
        """Look for a contender, with this connection and each later one, until it is surely not there. Does not block.

        :param prefix: its path, with or without the sequence number; no other process uses it.
        """
        with self._lock:
            self._prefixes.add(prefix)
        if self._client.connected:
            # Without a connection it is looked for with the next one.
            with contextlib.suppress(ZKConnectionError):
                self._look_for(prefix)

    def _on_session(self, state: str) -> None:
        if state == "connected":
            with self._lock:
                prefixes = list(self._prefixes)
            for prefix in prefixes:
                self._look_for(prefix)

    def _look_for(self, prefix: str) -> None:
        kazoo = self._client.kazoo
        lock_dir = prefix.rpartition("/")[0]
        # Another server of the ensemble may not know yet what the one that we lost has passed on.
        kazoo.call(kazoo.operations.sync(lock_dir), Reply())
        kazoo.call(kazoo.operations.children(lock_dir), Reply(partial(self._on_listing, prefix)))

    def _on_listing(self, prefix: str, names: list[str] | None, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, NoNodeError):
            return  # with the next connection
        lock_dir, _, start = prefix.rpartition("/")
        found = [name for name in names or () if name.startswith(start)]
        if not found:
            self._forget(prefix, None, None)
        kazoo = self._client.kazoo
        for name in found:
            self.log.warning("Releasing %s: a contender of this process was left there without an answer", lock_dir)
            kazoo.call(kazoo.operations.delete(f"{lock_dir}/{name}"), Reply(partial(self._forget, prefix)))

    def _forget(self, prefix: str, _: Any, error: BaseException | None) -> None:
        if error is None or isinstance(error, NoNodeError):
            with self._lock:
                self._prefixes.discard(prefix)
