# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.compat.modules import ZooKeeperBase


class Client:
    def __init__(self, connected: bool) -> None:
        self.connected = connected
        self.kazoo = object()
        self.tell: Callable[[str], None] = lambda _: None

    def add_session_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = listener


class User(ZooKeeperBase):
    def __init__(self, client: Any) -> None:
        self.seen: list[str] = []
        super().__init__(client)

    def _onConnect(self) -> None:
        self.seen.append("connect")

    def _onDisconnect(self) -> None:
        self.seen.append("disconnect")

    def _onReconnect(self) -> None:
        self.seen.append("reconnect")


@pytest.mark.parametrize("connected", [True, False], ids=["connected before", "connected later"])
def test_hooks(connected: bool) -> None:
    client = Client(connected)
    user = User(client)
    if not connected:
        assert user.seen == []
        client.tell("connected")
    for state in ("suspended", "connected", "lost", "connected"):
        client.tell(state)
    assert user.seen == ["connect", "disconnect", "reconnect", "disconnect", "reconnect"]
    assert user.kazoo_client is client.kazoo


def test_connection_that_comes_while_it_begins() -> None:
    """It is not missed."""

    class Connecting(Client):
        def add_session_listener(self, listener: Callable[[str], None]) -> None:
            self.connected = True
            super().add_session_listener(listener)

    client = Connecting(False)
    user = User(client)
    assert user.seen == ["connect"]
    for state in ("suspended", "connected"):
        client.tell(state)
    assert user.seen == ["connect", "disconnect", "reconnect"]
