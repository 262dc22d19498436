# SPDX-License-Identifier: Apache-2.0
"""Reads of a cache that were asked for before the connection was lost, and answered late or never (rules G)."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.protocol.serialization import GetChildren

from nodepool.model.node import Node
from nodepool.zk.cache import RecordCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.reply import CHANGED, CREATED, Reply
from nodepool.zk.wire.watched_client import Operations

ROOT = "/records"


class Server:
    """Keeps the reads of a cache until the test answers; listings are empty, and answered at once."""

    connected = True

    def __init__(self) -> None:
        self.reads: list[Reply] = []
        self.tell_session: Callable[[str], None] = lambda state: None
        self.tell: Callable[[int, str], None] = lambda event, path: None
        self.kazoo = SimpleNamespace(operations=Operations(""), call=self._call, watch_recursive=self._watch)
        self.cache = RecordCache(cast(ZooKeeperClient, self), ROOT, Node.from_dict)

    def add_session_listener(self, listener: Callable[[str], None]) -> None:
        self.tell_session = listener

    def _watch(self, path: str, function: Callable[[int, str], None], on_done: Any) -> None:
        self.tell = function

    def _call(self, request: Any, reply: Reply) -> None:
        if isinstance(request, GetChildren):
            reply.set([])
        else:
            self.reads.append(reply)

    def create(self) -> None:
        self.tell(CREATED, f"{ROOT}/a")

    def change(self) -> None:
        self.tell(CHANGED, f"{ROOT}/a")

    def reconnect(self) -> None:
        self.tell_session("suspended")
        self.tell_session("connected")


def answer(read: Reply, state: str, mzxid: int) -> None:
    data = json.dumps({"type": ["small"], "state": state, "state_time": 1.0}).encode()
    read.set([(data, SimpleNamespace(version=mzxid, mzxid=mzxid))])


@pytest.fixture
def server() -> Server:
    return Server()


def test_read_that_is_never_answered(server: Server) -> None:
    """It was asked for in the moment in which the connection went: later ones do not wait for it."""
    server.change()
    server.reconnect()
    server.change()
    assert len(server.reads) == 2
    answer(server.reads[1], "ready", 5)
    record = server.cache.get("a")
    assert record is not None
    assert record.state == "ready"
    assert not server.cache.is_reading("a")


def test_read_that_is_answered_late(server: Server) -> None:
    """Whoever waits for a later read still does; what changed during that one is read once more."""
    server.change()
    server.reconnect()
    server.change()
    server.change()
    answer(server.reads[0], "building", 3)
    assert server.cache.get("a") is None
    assert server.cache.is_reading("a")
    answer(server.reads[1], "building", 4)
    assert len(server.reads) == 3
    answer(server.reads[2], "ready", 5)
    record = server.cache.get("a")
    assert record is not None
    assert record.state == "ready"


def test_created_by_others_at_the_same_time(server: Server) -> None:
    """Q-15: while a creation of our own has no answer, those of others are waited for all the same."""
    server.cache.expect_create()
    server.create()
    assert not server.cache.wait_settled(0.0)
    answer(server.reads[0], "init", 5)
    assert server.cache.wait_settled(0.0)
    assert server.cache.ids() == ["a"]
    server.cache.settle_create(None, None)
    assert len(server.reads) == 1
