# SPDX-License-Identifier: Apache-2.0
"""A cache of records by kind has what ZooKeeper has, in whatever order events and answers come."""

from __future__ import annotations

import json
import random
from typing import Any, cast

import pytest

from nodepool.zk.cache import RecordsByKind
from nodepool.zk.client import ZooKeeperClient
from tests.support.event_server import EventServer

ROOT = "/root"


class Numbers(RecordsByKind[int]):
    def __init__(self, server: EventServer) -> None:
        super().__init__(cast(ZooKeeperClient, server), ROOT, ("pool", "builder"), "Error in a listener")
        self.told: list[dict[str, int]] = []
        self.add_listener(lambda: self.told.append(self.plain()))
        self.start()

    def _entry(self, kind: str, name: str, data: bytes, stat: Any) -> int:
        return int(json.loads(data or b"{}").get("number", 0))

    def plain(self) -> dict[str, int]:
        return {f"{kind}/{name}": number for kind, names in self._entries.items() for name, number in names.items()}


@pytest.fixture
def server() -> EventServer:
    return EventServer(ROOT)


def test_life(server: EventServer) -> None:
    cache = Numbers(server)
    server.settle()
    server.put(f"{ROOT}/pool/a", number=1)
    server.settle()
    server.put(f"{ROOT}/pool/a", number=2)
    server.settle()
    server.delete(f"{ROOT}/pool/a")
    server.settle()
    assert cache.told == [{}, {"pool/a": 1}, {"pool/a": 2}, {}]


def test_what_is_no_record(server: EventServer) -> None:
    """Neither a kind that is not known nor a znode below a record."""
    server.put(f"{ROOT}/rack/a", number=1)
    server.put(f"{ROOT}/pool/a", number=2)
    server.put(f"{ROOT}/pool/a/lock", number=3)
    cache = Numbers(server)
    server.settle()
    server.put(f"{ROOT}/rack/b", number=4)
    server.put(f"{ROOT}/pool/a/below", number=5)
    server.settle()
    server.delete(f"{ROOT}/pool/a/below")
    server.settle()
    assert cache.plain() == {"pool/a": 2}
    assert cache.told == [{"pool/a": 2}]


@pytest.mark.parametrize("gone", [ROOT, f"{ROOT}/pool", f"{ROOT}/pool/a"])
def test_what_went_without_a_connection(server: EventServer, gone: str) -> None:
    server.put(f"{ROOT}/pool/a", number=1)
    cache = Numbers(server)
    server.settle()
    server.delete(gone)
    server.lose_connection()
    assert cache.plain() == {"pool/a": 1}, "what was known holds until all was read anew"
    server.settle()
    assert cache.plain() == {}
    assert cache.ready.is_set()


@pytest.mark.parametrize("seed", range(40))
def test_any_order(server: EventServer, seed: int) -> None:
    rng = random.Random(seed)
    cache = Numbers(server)
    moves: list[Any] = [server.serve, server.deliver_event, server.deliver_answer]
    for number in range(300):
        dice = rng.random()
        path = f"{ROOT}/{rng.choice(['pool', 'builder'])}/{rng.choice('abc')}"
        if dice < 0.2:
            server.put(path, number=number)
        elif dice < 0.3:
            server.delete(path)
        elif dice < 0.31:
            server.delete(path.rpartition("/")[0])
        elif dice < 0.33:
            server.lose_connection()
        else:
            rng.choice(moves)()
    server.settle()
    stored = {path[len(ROOT) + 1 :]: json.loads(data)["number"] for path, (data, _) in server.znodes.items() if data}
    assert cache.plain() == stored
    assert cache.pending_reads == 0
    assert cache.told[-1] == stored
