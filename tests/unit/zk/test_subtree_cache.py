# SPDX-License-Identifier: Apache-2.0
"""What a cache of a subtree asks for, and which answers it takes."""

from __future__ import annotations

from typing import Any, cast

import pytest
from kazoo.exceptions import NoAuthError

from nodepool.zk.cache import SubtreeCache
from nodepool.zk.client import ZooKeeperClient
from tests.support.event_server import EventServer

ROOT = "/root"
A, B = f"{ROOT}/a", f"{ROOT}/a/b"


class Depth(SubtreeCache[[]]):
    """Knows the data of everything, and notes what it hears."""

    def __init__(self, server: EventServer) -> None:
        super().__init__(cast(ZooKeeperClient, server), ROOT, "Error in a listener")
        self.known: dict[str, int] = {}
        self.changes: list[str] = []
        self.open_at_change: list[bool] = []
        self.start()

    def _has_data(self, path: str) -> bool:
        return True

    def _has_children(self, path: str) -> bool:
        return path.count("/") < 3

    def _part_of(self, path: str) -> str:
        return path[len(ROOT) + 1 :].partition("/")[0]

    def _on_gone(self, path: str) -> None:
        self.known = {other: version for other, version in self.known.items() if not f"{other}/".startswith(f"{path}/")}

    def _on_children(self, path: str, names: list[str]) -> None:
        for other in list(self.known):
            parent, _, name = other.rpartition("/")
            if parent == path and name not in names:
                self._on_gone(other)

    def _on_data(self, path: str, data: bytes, stat: Any) -> None:
        self.known[path] = stat.version

    def _on_change(self, path: str) -> None:
        self.changes.append(path)

    def _on_settled(self) -> None:
        self.open_at_change.append(self._is_open("a"))

    def _on_complete(self) -> None:
        self.ready.set()


@pytest.fixture
def server() -> EventServer:
    return EventServer(ROOT)


def test_level_by_level(server: EventServer) -> None:
    server.put(B)
    server.events.clear()
    server.delivered = server.counted
    cache = Depth(server)
    assert cache.pending_reads == 1
    server.serve()
    server.deliver_answer()
    assert (cache.pending_reads, cache.ready.is_set()) == (2, False), "the data and the children of a"
    server.settle()
    assert cache.ready.is_set()
    assert sorted(cache.known) == [A, B]


def test_answer_that_an_event_has_overtaken(server: EventServer) -> None:
    """It may be older than the event, so the znode is read again."""
    cache = Depth(server)
    server.settle()
    server.put(A)
    server.deliver_event()
    server.deliver_event()
    assert cache.changes == [ROOT, A]
    server.serve()
    server.serve()
    server.put(A)
    server.deliver_event()
    server.deliver_answer()
    server.deliver_answer()
    assert A not in cache.known
    assert cache.pending_reads == 1
    server.settle()
    assert cache.known[A] == server.version


def test_what_is_open(server: EventServer) -> None:
    cache = Depth(server)
    server.settle()
    server.put(A)
    server.settle()
    assert cache.open_at_change[0] is False, "only the root was made then"
    assert cache.open_at_change[1] is True
    assert cache.open_at_change[-1] is False


def test_znode_that_may_not_be_read(server: EventServer, caplog: pytest.LogCaptureFixture) -> None:
    """It hides no other, and the cache is complete without it."""
    read = server._read
    server.put(B)
    server._read = lambda operation: NoAuthError() if operation.path == A else read(operation)  # type: ignore[method-assign]
    cache = Depth(server)
    server.put(f"{ROOT}/c")
    server.settle()
    assert cache.ready.is_set()
    assert f"{ROOT}/c" in cache.known
    assert A not in cache.known
    assert f"Cannot read {A}: NoAuthError" in caplog.text
