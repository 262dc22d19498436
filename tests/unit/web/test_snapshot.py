# SPDX-License-Identifier: Apache-2.0
"""`SnapshotMaker`: one snapshot for all viewers, no older than it may be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from nodepool.model import states
from nodepool.model.image import NO_IMAGES
from nodepool.model.node import Node
from nodepool.model.status import BuilderStatus, LauncherStatus, PoolStatus
from nodepool.web.snapshot import LIFETIME_SECONDS, MOST_IDS, ChangedRecords, RecordKind, SnapshotMaker
from nodepool.zk.caches import NodepoolCache
from tests.support import observed
from tests.support.manual_clock import ManualClock


class Records:
    """A cache of records that a test fills."""

    def __init__(self) -> None:
        self.records: dict[str, Any] = {}
        self.locked: set[str] = set()
        self.refreshed = 0
        self.listeners: list[Callable[..., None]] = []

    def values(self) -> list[Any]:
        return list(self.records.values())

    def snapshot(self) -> Any:
        return dict(self.records)

    def get(self, record_id: str) -> Any:
        return self.records.get(record_id)

    def locked_ids(self) -> frozenset[str]:
        return frozenset(self.locked)

    def refresh_stale(self) -> None:
        self.refreshed += 1

    def add_listener(self, listener: Callable[..., None]) -> None:
        self.listeners.append(listener)

    def tell(self, *changed: str) -> None:
        for listener in self.listeners:
            listener(*changed)


class Pictures(Records):
    """A cache that has one picture of all."""

    def __init__(self, picture: Any) -> None:
        super().__init__()
        self.picture = picture

    def snapshot(self) -> Any:
        return self.picture


class Caches:
    def __init__(self) -> None:
        self.nodes, self.requests, self.pools = Records(), Records(), Records()
        self.images, self.maintenance = Pictures(NO_IMAGES), Pictures({})
        self.ready = True


class Told(Records):
    """Status records."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: list[str] = []
        self.ready = threading.Event()
        self.ready.set()

    def pools(self) -> list[PoolStatus]:
        return []

    def launchers(self) -> list[LauncherStatus]:
        return [LauncherStatus(host=host, pid=1) for host in self.hosts]

    def builders(self) -> BuilderStatus:
        return BuilderStatus()


class Place:
    def __init__(self) -> None:
        self.caches, self.told, self.clock, self.time = Caches(), Told(), ManualClock(), 1_000.0
        self.maker = SnapshotMaker(
            cast("NodepoolCache", self.caches), self.told, clock=self.clock, now=lambda: self.time
        )

    def put_node(self, node_id: str) -> Node:
        node = Node("small")
        node.id = node_id
        self.caches.nodes.records[node_id] = node
        self.caches.nodes.tell(node_id)
        return node


def test_shows_what_the_caches_have() -> None:
    place = Place()
    node = place.put_node("0000000001")
    place.caches.nodes.locked.add("0000000001")
    seen = place.maker.latest().observed
    assert seen.nodes == {"0000000001": node}
    assert seen.locked == {"0000000001"}
    assert seen.now == 1_000.0


def test_waits_of_requests_that_end() -> None:
    """WP-99"""
    place = Place()
    ended = observed.request(1, "gpu", state=states.FULFILLED)
    ended.created_time, ended.state_time = 900.0, 940.0
    place.caches.requests.records[ended.key] = ended
    for changed in (ended.key, ended.key, "", "200-0000000009"):
        place.caches.requests.tell(changed)
    assert place.maker.latest().waits.of_label("gpu", 1_000.0).p50 == 40.0
    assert place.maker.latest().waits.of_label("gpu", 1_000.0).count == 1


def test_nodes_are_in_the_order_of_their_ids() -> None:
    """In whatever order the cache has read them: lists by id rely on it."""
    place = Place()
    for node_id in ("0000000003", "0000000001", "0000000002"):
        place.put_node(node_id)
    assert list(place.maker.latest().observed.nodes) == ["0000000001", "0000000002", "0000000003"]


def test_counts_follow_the_nodes() -> None:
    """A record that is replaced, one that is changed in place, and more of them than are noted one by one."""
    place = Place()
    nodes = [place.put_node(f"{number:010}") for number in range(MOST_IDS + 5)]
    assert sum(place.maker.latest().observed.node_index.counts.values()) == len(nodes)
    for changed in (nodes[:1], nodes):
        for node in changed:
            node.state = states.HOLD
            place.caches.nodes.tell(node.key)
        place.clock.now += LIFETIME_SECONDS
        assert place.maker.latest().observed.node_index.held == changed


def test_is_the_same_until_something_changes() -> None:
    place = Place()
    first = place.maker.latest()
    assert place.maker.latest() is first
    place.time += 60
    place.clock.now += 60
    later = place.maker.latest()
    assert (later.number, later.observed.now) == (first.number, 1_060.0), "only the time has changed"
    assert later.observed.nodes is first.observed.nodes


def test_current_makes_nothing() -> None:
    """Its number while `latest` would give it as it is; None when that would make another one."""
    place = Place()
    assert place.maker.current() is None
    number = place.maker.latest().number
    assert place.maker.current() == number
    place.put_node("0000000001")
    assert place.maker.current() == number, "it is young enough"
    place.clock.now += LIFETIME_SECONDS
    assert place.maker.current() is None
    assert place.maker.latest().number == place.maker.current() == number + 1
    place.caches.ready = False
    assert place.maker.current() is None, "it does not say yet that it is not complete"


def test_is_made_anew_once_in_its_lifetime() -> None:
    place = Place()
    first = place.maker.latest()
    place.put_node("0000000001")
    assert place.maker.latest() is first
    place.clock.now += LIFETIME_SECONDS
    second = place.maker.latest()
    assert (second.number, set(second.observed.nodes)) == (first.number + 1, {"0000000001"})


def test_changes_are_told_with_the_snapshot_that_shows_them() -> None:
    place = Place()
    place.maker.latest()
    place.maker.take_changes()
    place.put_node("0000000001")
    place.told.hosts.append("launcher-1")
    place.told.tell()
    place.caches.maintenance.tell()
    place.maker.latest()
    assert not place.maker.take_changes(), "the snapshot is older"
    place.clock.now += LIFETIME_SECONDS
    place.maker.latest()
    assert place.maker.take_changes() == {
        RecordKind.NODES: {"0000000001"},
        RecordKind.LAUNCHERS: {""},
        RecordKind.PROVIDERS: {""},
    }
    assert not place.maker.take_changes()


def test_changes_for_which_nobody_asks() -> None:
    """What there is to tell stays small, although there is no viewer for weeks."""
    place = Place()
    for number in range(2 * MOST_IDS):
        place.put_node(str(number))
        place.clock.now += LIFETIME_SECONDS
        place.maker.latest()
        place.caches.nodes.records.clear()
    assert place.maker.take_changes()[RecordKind.NODES] == {""}


def test_connection_goes() -> None:
    """Viewers are told that what they see is old."""
    place = Place()
    first = place.maker.latest()
    place.caches.ready = False
    place.time += 60
    second = place.maker.latest()
    assert (first.complete, second.complete, second.number) == (True, False, first.number + 1)
    assert second.observed.now == 1_060.0
    assert not place.maker.complete


def test_status_records_are_read_anew() -> None:
    """They are part of what is complete."""
    place = Place()
    place.told.ready.clear()
    assert not place.maker.complete


def test_error_while_it_is_made() -> None:
    """The next one is made anew, of everything."""
    place = Place()
    place.maker.latest()
    node = place.put_node("0000000001")
    place.clock.now += LIFETIME_SECONDS
    snapshot = place.caches.requests.snapshot

    def fail() -> Any:
        place.caches.requests.snapshot = snapshot  # type: ignore[method-assign]
        raise MemoryError

    place.caches.requests.snapshot = fail  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        place.maker.latest()
    place.clock.now += LIFETIME_SECONDS
    assert place.maker.latest().observed.nodes == {"0000000001": node}


def test_change_while_it_is_made() -> None:
    """It causes another snapshot."""
    place = Place()
    snapshot = place.caches.requests.snapshot

    def change_and_copy() -> Any:
        place.caches.requests.snapshot = snapshot  # type: ignore[method-assign]
        place.caches.nodes.tell("0000000002")
        return snapshot()

    place.caches.requests.snapshot = change_and_copy  # type: ignore[method-assign]
    first = place.maker.latest()
    place.clock.now += LIFETIME_SECONDS
    assert place.maker.latest().number == first.number + 1


def test_many_changes() -> None:
    changes = ChangedRecords()
    for number in range(2 * MOST_IDS):
        changes.note(RecordKind.NODES, str(number))
    assert len(changes.take()[RecordKind.NODES]) == MOST_IDS


def test_changes_from_another_thread() -> None:
    """Nothing is lost between two calls."""
    changes, found = ChangedRecords(), set[str]()
    ids = {str(number) for number in range(MOST_IDS)}

    def note_all() -> None:
        for one in sorted(ids):
            changes.note(RecordKind.NODES, one)

    thread = threading.Thread(target=note_all)
    thread.start()
    while thread.is_alive():
        found |= changes.take().get(RecordKind.NODES, frozenset())
    thread.join()
    assert found | changes.take().get(RecordKind.NODES, frozenset()) == ids


def test_locked_nodes_are_asked_for() -> None:
    """WP-61: not while nothing is known of ZooKeeper."""
    place = Place()
    place.caches.ready = False
    place.maker.refresh()
    assert place.caches.nodes.refreshed == 0
    place.caches.ready = True
    place.maker.refresh()
    assert place.caches.nodes.refreshed == 1


def test_younger_snapshot() -> None:
    """Viewers are told of one that was made just now, also while an older one is still good for others."""
    place = Place()
    old = place.maker.latest().number
    place.put_node("0000000001")
    place.clock.now += LIFETIME_SECONDS / 2
    assert place.maker.latest().number == old
    assert place.maker.latest(LIFETIME_SECONDS / 2).number == old + 1
