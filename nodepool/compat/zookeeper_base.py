# SPDX-License-Identifier: Apache-2.0
"""`nodepool.zk.ZooKeeperBase` of 11.0.0."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodepool.zk.client import ZooKeeperClient


class ZooKeeperBase:
    """Base of classes that use the connection by themselves, and want to know what becomes of it.

    The hooks are called in the connection's thread and must not block.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self.client = client
        self._lock = threading.Lock()
        #: ``_lock`` guards it.
        self._was_connected = False
        # First: the connection may come at this moment.
        client.add_session_listener(self._session_changed)
        if client.connected and self._is_first():
            self._onConnect()

    @property
    def kazoo_client(self) -> Any:
        """Kazoo's client. Raises ZKConnectionError: there is none yet."""
        return self.client.kazoo

    def _session_changed(self, state: str) -> None:
        if state != "connected":
            self._onDisconnect()
        elif self._is_first():
            self._onConnect()
        else:
            self._onReconnect()

    def _is_first(self) -> bool:
        with self._lock:
            first, self._was_connected = not self._was_connected, True
        return first

    def _onConnect(self) -> None:
        """The connection is there for the first time."""

    def _onDisconnect(self) -> None:
        """The connection is suspended or lost."""

    def _onReconnect(self) -> None:
        """The connection is there again."""
