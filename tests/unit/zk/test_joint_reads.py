# SPDX-License-Identifier: Apache-2.0
"""Reads that come while one is under way go out together; each has an answer of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError

from nodepool.exceptions import ZKConnectionError
from nodepool.zk.cache import JointReads
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.reply import Reply
from nodepool.zk.transactions import BATCH
from nodepool.zk.wire.watched_client import Operations


class Connection:
    """Keeps what is sent until the test answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[str], Reply]] = []
        self.closed = False
        self.reads = JointReads(cast(ZooKeeperClient, self))

    @property
    def kazoo(self) -> Any:
        if self.closed:
            raise ZKConnectionError("not connected to ZooKeeper")
        return SimpleNamespace(operations=Operations("/root"), call=self._call)

    def _call(self, request: Any, reply: Reply) -> None:
        self.sent.append(([operation.path for operation in request.operations], reply))

    def ask(self, *paths: str) -> list[Reply]:
        replies = [Reply() for _ in paths]
        for path, reply in zip(paths, replies, strict=True):
            self.reads.read(path, reply)
        return replies

    def answer(self, *results: Any) -> None:
        self.sent.pop(0)[1].set(list(results))


@pytest.fixture
def connection() -> Connection:
    return Connection()


def test_one_after_the_other(connection: Connection) -> None:
    for number in range(3):
        (reply,) = connection.ask(f"/{number}")
        assert [paths for paths, _ in connection.sent] == [[f"/root/{number}"]]
        connection.answer((b"data", number))
        assert reply.get(0) == (b"data", number)
    assert connection.sent == []


def test_together_while_one_is_under_way(connection: Connection) -> None:
    first, second, third = connection.ask("/a", "/b", "/c")
    assert [paths for paths, _ in connection.sent] == [["/root/a"]]
    connection.answer("A")
    assert [paths for paths, _ in connection.sent] == [["/root/b", "/root/c"]]
    connection.answer(NoNodeError(), "C")
    assert (first.get(0), third.get(0)) == ("A", "C")
    with pytest.raises(NoNodeError):
        second.get(0)
    assert connection.sent == []


def test_as_many_as_fit(connection: Connection) -> None:
    connection.ask("/first", *(f"/{number}" for number in range(BATCH + 1)))
    connection.answer("first")
    assert len(connection.sent[0][0]) == BATCH
    connection.answer(*range(BATCH))
    assert len(connection.sent[0][0]) == 1


def test_asked_by_an_answer(connection: Connection) -> None:
    """A record that changed while it was being read is read once more."""
    again = Reply()
    connection.reads.read("/a", Reply(lambda *_: connection.reads.read("/a", again)))
    connection.answer("old")
    connection.answer("new")
    assert again.get(0) == "new"


def test_connection_lost(connection: Connection) -> None:
    """All have an answer, also those that were not sent; and what is asked later is sent."""
    replies = connection.ask("/a", "/b", "/c")
    connection.sent.pop()[1].set_exception(ConnectionLoss())
    for reply in replies:
        with pytest.raises(ConnectionLoss):
            reply.get(0)
    assert connection.sent == []
    connection.ask("/d")
    assert [paths for paths, _ in connection.sent] == [["/root/d"]]


def test_connection_closed(connection: Connection) -> None:
    first, second = connection.ask("/a", "/b")
    connection.closed = True
    connection.answer("A")
    assert first.get(0) == "A"
    with pytest.raises(ZKConnectionError):
        second.get(0)
    (later,) = connection.ask("/c")
    with pytest.raises(ZKConnectionError):
        later.get(0)
