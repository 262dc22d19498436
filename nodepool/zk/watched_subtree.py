# SPDX-License-Identifier: Apache-2.0
"""`WatchedSubtree`: what caches have in common: a recursive watch, listeners, and all read anew with each session.

Whatever is below is changed in the connection thread, where events and answers arrive. Listeners may come and go from
any thread.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, ParamSpec

from nodepool import log_names
from nodepool.guard import Guard
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import UNKNOWN_OUTCOME

P = ParamSpec("P")


class WatchedSubtree(ABC, Generic[P]):
    """Follows what is at and below one znode. ``P`` is what listeners are called with.

    A connection can have one for each root: the last one that began to follow it gets the events.

    :param root: path of the znode; need not exist.
    :param trouble: what is logged with the error of a listener.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient, root: str, trouble: str) -> None:
        self._client = client
        self._root = root
        self._listeners: list[Callable[P, None]] = []
        self._guard = Guard(self.log, trouble)
        #: Grows with each connection: answers of an earlier one do not count.
        self._generation = 0
        #: Set while the cache follows ZooKeeper; clear before everything was read and without a connection.
        self.ready = threading.Event()

    # -- any thread --

    def start(self) -> None:
        """Follow ZooKeeper, now or once the client is connected. Does not block."""
        self._client.add_session_listener(self._on_session)
        if self._client.connected:
            self._resync()

    def stop(self) -> None:
        """Follow nothing any more; what is known stays as it is. Does not block. Without `start` nothing happens.

        The server goes on to send events until the session ends. They are passed over.
        """
        self._client.remove_session_listener(self._on_session)
        self._generation += 1
        self.ready.clear()
        self._client.unwatch(self._root, self._on_event)

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until everything was read, at most ``timeout`` seconds."""
        return self.ready.wait(timeout)

    def add_listener(self, listener: Callable[P, None]) -> None:
        """Call it after each change, in the connection thread; it must not block."""
        self._listeners = [*self._listeners, listener]

    def remove_listener(self, listener: Callable[P, None]) -> None:
        """Tell a listener nothing more; one that is not there is fine."""
        self._listeners = [other for other in self._listeners if other != listener]

    # -- connection thread --

    @abstractmethod
    def _on_event(self, event: int, path: str) -> None:
        """Something at or below the root has changed."""

    @abstractmethod
    def _forget_questions(self) -> None:
        """What was asked on an earlier connection will have no answer."""

    @abstractmethod
    def _read_all(self) -> None:
        """Ask for everything. ``ready`` is set when it is known."""

    def _on_session(self, state: str) -> None:
        if state == "connected":
            self._resync()
        else:
            self.ready.clear()
            self._generation += 1

    def _resync(self) -> None:
        self._generation += 1
        self.ready.clear()
        self._forget_questions()
        self._client.kazoo.watch_recursive(self._root, self._on_event, self._on_watching)
        self._read_all()

    def _on_watching(self, _: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, UNKNOWN_OUTCOME):
            self.log.error("ZooKeeper refuses to watch %s, is it 3.6 or newer? %r", self._root, error)

    def _notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            with self._guard:
                listener(*args, **kwargs)
