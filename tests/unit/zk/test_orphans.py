# SPDX-License-Identifier: Apache-2.0
"""A lock that was taken without an answer is looked for and given back, with this connection or the next."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren, Sync

from nodepool.zk.client import OrphanedContenders, ZooKeeperClient
from nodepool.zk.reply import Reply
from nodepool.zk.wire.watched_client import Operations

LOCK_DIR = "/nodepool/nodes/1/lock"
PREFIX = f"{LOCK_DIR}/abc__lock__"
OURS = f"{PREFIX}0000000003"


class Connection:
    """Keeps what is sent until the test answers."""

    def __init__(self) -> None:
        self.connected = True
        self.sent: list[tuple[Any, Reply]] = []
        self.kazoo = SimpleNamespace(operations=Operations(""), call=self._call)
        self.tell: Callable[[str], None] = lambda state: None
        self.orphans = OrphanedContenders(cast(ZooKeeperClient, self))

    def add_session_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def _call(self, request: Any, reply: Reply) -> None:
        self.sent.append((request, reply))

    def take(self, kind: type) -> tuple[Any, Reply]:
        """The next request, which must be of this kind."""
        request, reply = self.sent.pop(0)
        assert isinstance(request, kind), request
        return request, reply

    def list(self, answer: Any) -> None:
        """Answer the listing of the lock directory, which comes after a sync."""
        assert self.take(Sync)[0].path == LOCK_DIR
        request, reply = self.take(GetChildren)
        assert request.path == LOCK_DIR
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set(answer)


@pytest.fixture
def connection() -> Connection:
    return Connection()


def test_found_and_released(connection: Connection) -> None:
    connection.orphans.add(PREFIX)
    connection.list(["def__lock__0000000001", OURS.rpartition("/")[2]])
    assert len(connection.orphans) == 1
    request, reply = connection.take(Delete)
    assert request.path == OURS
    reply.set(True)
    assert len(connection.orphans) == 0
    assert connection.sent == []


def test_released_by_somebody_else_meanwhile(connection: Connection) -> None:
    connection.orphans.add(PREFIX)
    connection.list([OURS.rpartition("/")[2]])
    connection.take(Delete)[1].set_exception(NoNodeError())
    assert len(connection.orphans) == 0


@pytest.mark.parametrize("answer", [[], ["def__lock__0000000001"], NoNodeError()])
def test_was_not_taken(connection: Connection, answer: Any) -> None:
    connection.orphans.add(PREFIX)
    connection.list(answer)
    assert len(connection.orphans) == 0
    assert connection.sent == []


def test_without_a_connection(connection: Connection) -> None:
    """It is looked for with the next connection, and once more with each until there was an answer."""
    connection.connected = False
    connection.orphans.add(PREFIX)
    connection.tell("lost")
    assert connection.sent == []
    connection.connected = True
    connection.tell("connected")
    connection.list(ConnectionLoss())
    assert len(connection.orphans) == 1
    connection.tell("connected")
    connection.list([OURS.rpartition("/")[2]])
    connection.take(Delete)[1].set_exception(ConnectionLoss())
    assert len(connection.orphans) == 1
    connection.tell("connected")
    connection.list([])
    assert len(connection.orphans) == 0
