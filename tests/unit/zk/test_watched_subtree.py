# SPDX-License-Identifier: Apache-2.0
"""What the caches have in common: when they follow ZooKeeper, and whom they tell."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from kazoo.exceptions import ConnectionLoss, UnimplementedError

from nodepool.zk.cache import WatchedSubtree
from nodepool.zk.client import ZooKeeperClient
from tests.support.event_server import EventServer

ROOT = "/root"


class Noted(WatchedSubtree[[str]]):
    """Notes what it is told; it is ready at once."""

    def __init__(self, server: EventServer) -> None:
        super().__init__(cast(ZooKeeperClient, server), ROOT, "Error in a listener of notes")
        self.told: list[str] = []

    def _on_event(self, event: int, path: str) -> None:
        self.told.append(path)
        self._notify(path)

    def _forget_questions(self) -> None:
        self.told.append("forget")

    def _read_all(self) -> None:
        self.told.append("read")
        self.ready.set()


@pytest.fixture
def server() -> EventServer:
    return EventServer(ROOT)


def test_nothing_happens_before_start(server: EventServer) -> None:
    cache = Noted(server)
    assert server.tell is None
    assert not cache.wait_ready(0)
    cache.stop()
    assert cache.told == []


def test_start_with_a_connection(server: EventServer) -> None:
    cache = Noted(server)
    cache.start()
    assert cache.told == ["forget", "read"]
    assert cache.wait_ready(0)


def test_start_before_there_is_a_connection(server: EventServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "connected", False)
    cache = Noted(server)
    cache.start()
    assert cache.told == []
    server.tell_session("connected")
    assert cache.told == ["forget", "read"]


def test_all_is_read_anew_after_a_lost_connection(server: EventServer) -> None:
    cache = Noted(server)
    cache.start()
    server.tell_session("suspended")
    assert not cache.ready.is_set()
    server.tell_session("connected")
    assert cache.ready.is_set()
    assert cache.told == ["forget", "read"] * 2


def test_stop(server: EventServer) -> None:
    """Neither events nor sessions matter any more."""
    cache = Noted(server)
    cache.start()
    cache.stop()
    assert not cache.ready.is_set()
    server.put(f"{ROOT}/a")
    server.settle()
    server.lose_connection()
    assert cache.told == ["forget", "read"]
    cache.start()
    assert cache.told == ["forget", "read"] * 2


def test_listeners(server: EventServer, caplog: pytest.LogCaptureFixture) -> None:
    """One that raises keeps nobody from being told."""
    cache = Noted(server)
    told: list[str] = []

    def broken(path: str) -> None:
        raise RuntimeError(f"a bug at {path}")

    cache.add_listener(broken)
    cache.add_listener(told.append)
    cache.start()
    server.put(f"{ROOT}/a")
    server.settle()
    assert told == [ROOT, f"{ROOT}/a"]
    assert "Error in a listener of notes" in caplog.text
    cache.remove_listener(told.append)
    cache.remove_listener(told.append)
    server.put(f"{ROOT}/b")
    server.settle()
    assert told == [ROOT, f"{ROOT}/a"]


@pytest.mark.parametrize(("error", "lines"), [(UnimplementedError(), 1), (ConnectionLoss(), 0), (None, 0)])
def test_server_that_is_too_old(
    server: EventServer, caplog: pytest.LogCaptureFixture, error: BaseException | None, lines: int
) -> None:
    def watch(_path: str, _function: Any, on_done: Any) -> None:
        on_done(None, error)

    server.kazoo.watch_recursive = watch
    Noted(server).start()
    logged = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.ERROR]
    assert len(logged) == lines
    assert all("ZooKeeper refuses to watch /root, is it 3.6 or newer?" in line for line in logged)
