# SPDX-License-Identifier: Apache-2.0
"""What only a stand-in can show: events and answers of ZooKeeper in any order, late, or never.

An event may overtake the answer to an older read; an answer never overtakes the event of a change that it shows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.serialization import GetChildren

from nodepool.exceptions import ZKConnectionError
from nodepool.model.image import ImagesView
from nodepool.model.node import Node
from nodepool.model.status import MaintenanceRecords, Mode
from nodepool.zk import caches
from nodepool.zk.cache import JointReads, RecordCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import CHANGED, Reply
from nodepool.zk.paths import CONTENDER_MARK, MAINTENANCE, maintenance
from nodepool.zk.transactions import BATCH
from nodepool.zk.wire import Operations
from tests.support.event_server import EventServer

CONTENDER = f"a{CONTENDER_MARK}0000000001"
PROVIDER = maintenance("provider", "cloud-1")


def travel(server: EventServer, rng: random.Random) -> None:
    rng.choice([server.serve, server.deliver_event, server.deliver_answer])()


def any_order(server: EventServer, rng: random.Random, change: Callable[[], None], turns: int) -> None:
    for _ in range(turns):
        dice = rng.random()
        if dice < 0.3:
            change()
        elif dice < 0.31:
            server.lose_connection()
        else:
            travel(server, rng)
    server.settle()


# -- images


def plain_images(view: ImagesView) -> dict[str, Any]:
    """What a view shows, to be compared."""
    return {
        name: (
            *(one.paused, one.build_requested, one.build_locked),
            [(found.id, found.state, found.locked, sorted(found.uploading)) for found in one.builds.values()],
            [
                (found.id, place, each.id, each.record and (each.record.state, each.record.version), each.locked)
                for found in one.builds.values()
                for place, uploads in found.uploads.items()
                for each in uploads
            ],
        )
        for name, one in view.images.items()
    }


@pytest.mark.parametrize("seed", range(30))
def test_images_in_any_order(seed: int) -> None:
    """In the end the view is what is there."""
    server, rng = EventServer(caches.IMAGES), random.Random(seed)

    def change() -> None:
        name, number, place = rng.choice("xy"), rng.choice("12"), rng.choice("pq")
        locks = [caches.build_lock(name), caches.build_id_lock(name, number), caches.upload_lock(name, number, place)]
        records = [
            caches.build(name, number),
            caches.upload(name, number, place, rng.choice(["0000000001", "0000000002"])),
        ]
        others = [
            caches.image(name),
            caches.pause(name),
            caches.build_request(name),
            f"{caches.build(name, number)}/unknown/below",
        ]
        path = rng.choice([*(f"{lock}/{CONTENDER}" for lock in locks), *records, *others])
        if rng.random() < 0.4:
            server.delete(path)
        else:
            state = rng.choice(["ready", "failed", "deleting"])
            server.put(path, **({"state": state, "state_time": 1.0} if rng.random() < 0.9 else {}))

    for _ in range(20):
        change()
    server.events.clear()
    server.delivered = server.counted
    cache = caches.ImageCache(cast(ZooKeeperClient, server))
    any_order(server, rng, change, 400)
    fresh = EventServer(caches.IMAGES)
    fresh.znodes = server.znodes
    expected = caches.ImageCache(cast(ZooKeeperClient, fresh))
    fresh.settle()
    assert (cache.ready.is_set(), expected.ready.is_set(), cache.pending_reads) == (True, True, 0)
    assert plain_images(cache.snapshot()) == plain_images(expected.snapshot())


@pytest.mark.parametrize("seed", range(20))
def test_free_lock_beside_a_build_that_has_ended(seed: int) -> None:
    """R-5: no build looks abandoned whose holder stored its end before the lock was free."""
    server, rng = EventServer(caches.IMAGES), random.Random(seed)
    server.put(caches.build_lock("debian"))
    cache = caches.ImageCache(cast(ZooKeeperClient, server))
    server.settle()
    seen: set[tuple[bool, str | None]] = set()

    def look(_: str) -> None:
        view = cache.snapshot().image("debian")
        seen.add((view.build_locked, view.builds["b1"].state if "b1" in view.builds else None))

    cache.add_listener(look)
    steps: list[Callable[[], None]] = [
        lambda: server.put(f"{caches.build_lock('debian')}/{CONTENDER}"),
        lambda: server.put(caches.build("debian", "b1"), state="building", state_time=1.0),
        lambda: server.put(caches.build("debian", "b1"), state="ready", state_time=2.0),
        lambda: server.delete(f"{caches.build_lock('debian')}/{CONTENDER}"),
    ]
    for step in steps:
        step()
        for _ in range(rng.randrange(6)):
            travel(server, rng)
    server.settle()
    assert ((False, "building") in seen, (False, "ready") in seen) == (False, True)


# -- maintenance


def plain(records: MaintenanceRecords) -> dict[str, tuple[Mode, str]]:
    return {f"{kind} {name}": (found.mode, found.reason) for (kind, name), found in records.items()}


@pytest.mark.parametrize("seed", range(30))
def test_maintenance_in_any_order(seed: int) -> None:
    """MT-10: an unknown kind, and what is below a record, is no record."""
    server, rng = EventServer(MAINTENANCE), random.Random(seed)
    cache = caches.MaintenanceCache(cast(ZooKeeperClient, server))
    last: list[dict[str, tuple[Mode, str]]] = []
    cache.add_listener(lambda: last.append(plain(cache.snapshot())))

    def change() -> None:
        kind, name, dice = rng.choice(["provider", "pool", "host"]), rng.choice("abc"), rng.random()
        if dice < 0.6:
            mode = "quarantine" if kind == "host" else "pause"
            server.put(maintenance(kind, name), mode=mode, reason=str(server.version))
        elif dice < 0.7:
            server.put(rng.choice([maintenance("rack", name), f"{PROVIDER}/below"]), mode="pause")
        elif dice < 0.95:
            server.delete(maintenance(kind, name))
        else:
            server.delete(maintenance(kind, name).rpartition("/")[0])

    any_order(server, rng, change, 300)
    stored = {
        path.removeprefix(f"{MAINTENANCE}/").replace("/", " "): json.loads(data)["reason"]
        for path, (data, _) in server.znodes.items()
        if data and path.count("/") == PROVIDER.count("/") and "/rack/" not in path
    }
    assert (cache.wait_ready(0), cache.pending_reads) == (True, 0)
    assert {name: reason for name, (_, reason) in plain(cache.snapshot()).items()} == stored
    assert last[-1] == plain(cache.snapshot())


def test_bad_maintenance_record(caplog: pytest.LogCaptureFixture) -> None:
    """MT-10: it is logged once for each write, also one without data."""
    server = EventServer(MAINTENANCE)
    cache = caches.MaintenanceCache(cast(ZooKeeperClient, server))
    server.settle()
    for count, fields in enumerate([{}, {"mode": "explode"}, {"mode": "explode"}], 1):
        server.put(PROVIDER, **fields)
        server.settle()
        server.lose_connection()
        server.settle()
        found = [entry for entry in caplog.records if f"Ignoring {PROVIDER}: " in entry.getMessage()]
        assert ([entry.levelname for entry in found], cache.snapshot()) == (["ERROR"] * count, {})


# -- connections that keep what is sent until the test answers


class Connection:
    """Listings of the root are empty, and answered at once."""

    def __init__(self) -> None:
        self.connected, self.closed = True, False
        self.sent: list[tuple[Any, Reply]] = []
        self.tell_session: Callable[[str], None] = lambda state: None
        self.tell: Callable[[int, str], None] = lambda event, path: None

    @property
    def kazoo(self) -> Any:
        if self.closed:
            raise ZKConnectionError("not connected to ZooKeeper")
        return SimpleNamespace(operations=Operations(""), call=self._call, watch_recursive=self._watch)

    def add_session_listener(self, listener: Callable[[str], None]) -> None:
        self.tell_session = listener

    def _watch(self, path: str, function: Callable[[int, str], None], on_done: Any) -> None:
        self.tell = function

    def _call(self, request: Any, reply: Reply) -> None:
        if isinstance(request, GetChildren) and request.path == "/records":
            reply.set([])
        else:
            self.sent.append((request, reply))


@pytest.fixture
def connection() -> Any:
    return Connection()


def answer(read: Reply, state: str, mzxid: int) -> None:
    data = json.dumps({"type": ["small"], "state": state, "state_time": 1.0}).encode()
    read.set([(data, SimpleNamespace(version=mzxid, mzxid=mzxid))])


@pytest.mark.parametrize("late", [False, True])
def test_read_that_is_answered_late_or_never(connection: Any, late: bool) -> None:
    """It was asked for when the connection went: later ones do not wait; what changed meanwhile is read again."""
    cache = RecordCache(connection, "/records", Node.from_dict)
    connection.tell(CHANGED, "/records/a")
    connection.tell_session("suspended")
    connection.tell_session("connected")
    connection.tell(CHANGED, "/records/a")
    connection.tell(CHANGED, "/records/a")
    replies = [reply for _, reply in connection.sent]
    assert len(replies) == 2
    if late:
        answer(replies[0], "building", 3)
        assert (cache.get("a"), cache.is_reading("a")) == (None, True)
    answer(replies[1], "building", 4)
    answer(connection.sent[2][1], "ready", 5)
    record = cache.get("a")
    assert record is not None
    assert (record.state, cache.is_reading("a"), len(connection.sent)) == ("ready", False, 3)


def test_reads_together(connection: Any) -> None:
    """While one is under way, as many as fit; each has an answer of its own, also when the connection goes."""
    reads = JointReads(connection)

    def ask(*paths: str) -> list[Reply]:
        replies = [Reply() for _ in paths]
        for path, reply in zip(paths, replies, strict=True):
            reads.read(path, reply)
        return replies

    first, second, *others = ask("/a", "/b", *(f"/{number}" for number in range(BATCH)))
    connection.sent.pop()[1].set(["A"])
    connection.sent.pop()[1].set([NoNodeError(), *range(BATCH - 1)])
    assert ([first.get(0), *(reply.get(0) for reply in others[:-1])], type(second.error)) == (
        ["A", *range(BATCH - 1)],
        NoNodeError,
    )
    lost = [others[-1], *ask("/a")]
    connection.sent.pop()[1].set_exception(ConnectionLoss())
    assert {type(reply.error) for reply in lost} == {ConnectionLoss}
    kept, refused = ask("/a", "/b")
    connection.closed = True
    connection.sent.pop()[1].set(["A"])
    assert (kept.get(0), type(refused.error), type(ask("/c")[0].error)) == ("A", ZKConnectionError, ZKConnectionError)
