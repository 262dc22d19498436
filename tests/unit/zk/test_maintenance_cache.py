# SPDX-License-Identifier: Apache-2.0
"""The cache of maintenance records shows what ZooKeeper has, in whatever order events and answers come."""

from __future__ import annotations

import json
import logging
import random
from typing import Any, cast

import pytest

from nodepool.model.maintenance import MaintenanceRecords, Mode
from nodepool.zk import paths
from nodepool.zk.caches import MaintenanceCache
from nodepool.zk.client import ZooKeeperClient
from tests.support.event_server import EventServer

PROVIDER = paths.maintenance("provider", "cloud-1")


@pytest.fixture
def server() -> EventServer:
    return EventServer(paths.MAINTENANCE)


def cache_of(server: EventServer) -> MaintenanceCache:
    return MaintenanceCache(cast(ZooKeeperClient, server))


def plain(records: MaintenanceRecords) -> dict[str, tuple[Mode, str]]:
    return {f"{kind} {name}": (found.mode, found.reason) for (kind, name), found in records.items()}


def test_no_tree(server: EventServer) -> None:
    cache = cache_of(server)
    assert not cache.ready.is_set()
    server.settle()
    assert cache.wait_ready(0)
    assert plain(cache.snapshot()) == {}
    server.put(PROVIDER, mode="pause", reason="network")
    server.settle()
    assert plain(cache.snapshot()) == {"provider cloud-1": (Mode.PAUSE, "network")}


def test_listeners(server: EventServer) -> None:
    cache = cache_of(server)
    told: list[int] = []
    cache.add_listener(lambda: told.append(len(cache.snapshot())))
    server.settle()
    server.put(PROVIDER, mode="pause")
    server.settle()
    server.put(PROVIDER, mode="pause")
    server.settle()
    server.delete(PROVIDER)
    server.settle()
    assert told == [0, 1, 0], "nothing is told of what is as before"


def test_listener_that_raises_keeps_nobody_from_being_told(
    server: EventServer, caplog: pytest.LogCaptureFixture
) -> None:
    cache = cache_of(server)
    told: list[bool] = []

    def broken() -> None:
        raise RuntimeError("a bug")

    def other() -> None:
        told.append(True)

    cache.add_listener(broken)
    cache.add_listener(other)
    server.settle()
    assert told == [True]
    assert "Error in a listener" in caplog.text
    cache.remove_listener(other)
    server.put(PROVIDER, mode="pause")
    server.settle()
    assert told == [True]


def test_bad_record_is_told_once_and_hides_no_other(server: EventServer, caplog: pytest.LogCaptureFixture) -> None:
    """MT-10."""
    server.put(paths.maintenance("label", "gpu"), mode="quarantine")
    server.put(PROVIDER, mode="pause")
    cache = cache_of(server)
    server.settle()
    assert plain(cache.snapshot()) == {"provider cloud-1": (Mode.PAUSE, "")}
    server.put(PROVIDER, mode="drain")
    server.settle()
    errors = [entry for entry in caplog.records if entry.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "/nodepool/maintenance/label/gpu" in errors[0].getMessage()
    server.put(paths.maintenance("label", "gpu"), mode="pause")
    server.settle()
    assert sorted(plain(cache.snapshot())) == ["label gpu", "provider cloud-1"]


def test_unknown_kind(server: EventServer) -> None:
    """A later release may have more of them."""
    server.put(paths.maintenance("rack", "r1"), mode="pause")
    cache = cache_of(server)
    server.settle()
    assert plain(cache.snapshot()) == {}


def test_lost_connection(server: EventServer) -> None:
    server.put(PROVIDER, mode="pause")
    cache = cache_of(server)
    server.settle()
    server.tell_session("suspended")
    assert not cache.ready.is_set()
    assert plain(cache.snapshot()) == {"provider cloud-1": (Mode.PAUSE, "")}, "what is known still holds"
    server.delete(PROVIDER)
    server.put(paths.maintenance("pool", "cloud-1%2Fmain"), mode="pause")
    server.lose_connection()
    server.settle()
    assert plain(cache.snapshot()) == {"pool cloud-1/main": (Mode.PAUSE, "")}


@pytest.mark.parametrize("seed", range(40))
def test_any_order(server: EventServer, seed: int) -> None:
    rng = random.Random(seed)
    cache = cache_of(server)
    moves: list[Any] = [server.serve, server.deliver_event, server.deliver_answer]
    for number in range(200):
        dice = rng.random()
        kind, name = rng.choice(["provider", "pool", "host"]), rng.choice("abc")
        if dice < 0.2:
            server.put(
                paths.maintenance(kind, name), mode="quarantine" if kind == "host" else "pause", reason=str(number)
            )
        elif dice < 0.3:
            server.delete(paths.maintenance(kind, name))
        elif dice < 0.32:
            server.lose_connection()
        else:
            rng.choice(moves)()
    server.settle()
    assert cache.wait_ready(0)
    stored = {
        path.removeprefix(f"{paths.MAINTENANCE}/").replace("/", " "): data for path, (data, _) in server.znodes.items()
    }
    assert {name: reason for name, (_, reason) in plain(cache.snapshot()).items()} == {
        name: json.loads(data)["reason"] for name, data in stored.items() if data
    }
