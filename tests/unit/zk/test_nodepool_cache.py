# SPDX-License-Identifier: Apache-2.0
"""Our own writes are told to the cache of their kind, as copies."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.model.node import Node
from nodepool.model.record import Record
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.cache import RecordCache
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.reply import CHANGED, Reply
from nodepool.zk.wire.watched_client import MultiRead, Operations

KINDS = [Node, NodeRequest]


class Connection:
    """An empty ZooKeeper that answers listings at once, and reads never."""

    connected = True

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.tell: dict[str, Callable[[int, str], None]] = {}
        self.kazoo = SimpleNamespace(operations=Operations(""), call=self._call, watch_recursive=self._watch)

    def add_session_listener(self, listener: Callable[[str], None]) -> None:
        self.tell_session = listener

    def _watch(self, path: str, function: Callable[[int, str], None], on_done: Any) -> None:
        self.tell[path] = function

    def _call(self, request: Any, reply: Reply) -> None:
        if isinstance(request, MultiRead) and request.operations[0].path.startswith((paths.IMAGES, paths.MAINTENANCE)):
            reply.set([[] for _ in request.operations])
        elif isinstance(request, MultiRead):
            self.reads += [operation.path for operation in request.operations]
        else:
            reply.set([])


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def cache(connection: Connection) -> NodepoolCache:
    return NodepoolCache(cast(ZooKeeperClient, connection))


def make(kind: type[Record]) -> Record:
    record = kind()
    record.id, record.version, record.mzxid = "0000000001", 0, 5
    return record


def records(cache: NodepoolCache, kind: type[Record]) -> RecordCache[Any]:
    return cache.nodes if kind is Node else cache.requests


def root(kind: type[Record]) -> str:
    return paths.NODES if kind is Node else paths.REQUESTS


def test_ready_with_all_of_them(connection: Connection, cache: NodepoolCache) -> None:
    caches: list[Any] = [cache.nodes, cache.requests, cache.pools, cache.images, cache.maintenance]
    for missing in caches:
        assert (cache.ready, cache.wait_ready(0.0)) == (True, True)
        missing.ready.clear()
        assert (cache.ready, cache.wait_ready(0.0)) == (False, False)
        missing.ready.set()


@pytest.mark.parametrize("kind", KINDS)
def test_own_creation(cache: NodepoolCache, kind: type[Record]) -> None:
    record = make(kind)
    cache.expect_create(record)
    cache.settle_create(record, True)
    cached = records(cache, kind).get("0000000001")
    assert cached is not None
    assert cached is not record


@pytest.mark.parametrize("kind", KINDS)
def test_creation_that_failed(cache: NodepoolCache, kind: type[Record]) -> None:
    record = make(kind)
    cache.expect_create(record)
    cache.settle_create(record, False)
    assert records(cache, kind).ids() == []


@pytest.mark.parametrize("kind", KINDS)
def test_own_write_is_not_read_back(connection: Connection, cache: NodepoolCache, kind: type[Record]) -> None:
    """Its event comes before its answer."""
    record = make(kind)
    cache.expect(record)
    connection.tell[root(kind)](CHANGED, f"{root(kind)}/{record.key}")
    cache.settle(record, True)
    assert connection.reads == []
    assert records(cache, kind).get(record.key) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_write_that_failed_while_somebody_else_wrote(
    connection: Connection, cache: NodepoolCache, kind: type[Record]
) -> None:
    record = make(kind)
    cache.expect(record)
    connection.tell[root(kind)](CHANGED, f"{root(kind)}/{record.key}")
    cache.settle(record, False)
    assert connection.reads == [f"{root(kind)}/{record.key}"]
    assert not cache.wait_settled(0.0)
