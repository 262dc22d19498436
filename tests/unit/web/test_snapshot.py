# SPDX-License-Identifier: Apache-2.0
"""One snapshot for all viewers, no older than it may be; who has locks; how long requests waited."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.model import states
from nodepool.model.image import NO_IMAGES
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import BuilderStatus, LauncherStatus
from nodepool.plan.triage import MIN_READY_REQUESTOR
from nodepool.web.snapshot import (
    KNOWN_SECONDS,
    LIFETIME_SECONDS,
    MOST_IDS,
    MOST_KNOWN,
    PROCESSES_SECONDS,
    ChangedRecords,
    LockNames,
    RecordKind,
    SnapshotMaker,
    WaitSummary,
    WaitTimes,
    percentile,
)
from nodepool.zk.caches import NodepoolCache, StatusCache
from tests.support import observed
from tests.support.manual_clock import ManualClock
from tests.support.tables import rows
from tests.support.wait import DEADLINE_SECONDS
from tests.unit.web.rig import set_constants

NOW = 100_000.0


class Records:
    """A cache of records that a test fills.

    :param picture: what it shows instead of its records.
    """

    def __init__(self, picture: Any = None) -> None:
        self.records: dict[str, Any] = {}
        self.picture = picture
        self.locked: set[str] = set()
        self.refreshed = 0
        self.listeners: list[Callable[..., None]] = []
        #: Called before the next copy.
        self.before: Callable[[], None] | None = None

    def values(self) -> list[Any]:
        return list(self.records.values())

    def snapshot(self) -> Any:
        before, self.before = self.before, None
        if before:
            before()
        return dict(self.records) if self.picture is None else self.picture

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


class Status(Records):
    """Status records, of launchers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: list[str] = []
        self.ready = threading.Event()
        self.ready.set()
        self.pools = list
        self.builders = BuilderStatus

    def launchers(self) -> list[LauncherStatus]:
        return [LauncherStatus(host=host, pid=1) for host in self.hosts]


class Place:
    def __init__(self) -> None:
        self.nodes, self.requests, self.maintenance = Records(), Records(), Records({})
        self.caches: Any = SimpleNamespace(
            nodes=self.nodes,
            requests=self.requests,
            pools=Records(),
            images=Records(NO_IMAGES),
            maintenance=self.maintenance,
            ready=True,
        )
        self.status, self.clock, self.time = Status(), ManualClock(), 1_000.0
        self.maker = SnapshotMaker(
            cast("NodepoolCache", self.caches),
            cast("StatusCache", self.status),
            clock=self.clock,
            now=lambda: self.time,
        )

    def put_node(self, node_id: str) -> Node:
        node = Node("small")
        node.id = node_id
        self.nodes.records[node_id] = node
        self.nodes.tell(node_id)
        return node


@pytest.fixture
def place() -> Place:
    return Place()


def test_shows_what_the_caches_have(place: Place) -> None:
    """In whatever order the cache has read nodes, they are in that of their ids."""
    nodes = {node_id: place.put_node(node_id) for node_id in ("0000000003", "0000000001", "0000000002")}
    place.nodes.locked.add("0000000001")
    seen = place.maker.latest().observed
    assert (seen.nodes, list(seen.nodes)) == (nodes, sorted(nodes))
    assert seen.locked == {"0000000001"}
    assert seen.now == 1_000.0


def test_is_made_anew_once_in_its_lifetime(place: Place) -> None:
    first = place.maker.latest()
    assert place.maker.latest() is first
    place.put_node("0000000001")
    assert place.maker.latest().number == first.number, "it is young enough"
    place.clock.now += LIFETIME_SECONDS / 2
    assert place.maker.latest().number == first.number
    place.clock.now += LIFETIME_SECONDS / 2
    second = place.maker.latest()
    assert (second.number, set(second.observed.nodes)) == (first.number + 1, {"0000000001"})
    place.put_node("0000000002")
    place.clock.now += LIFETIME_SECONDS / 2
    assert place.maker.latest(LIFETIME_SECONDS / 2).number == second.number + 1, "a younger one was asked for"
    time_passes = place.maker.latest()
    place.time += 60
    place.clock.now += 60
    later = place.maker.latest()
    assert (later.number, later.observed.now) == (time_passes.number, 1_060.0), "only the time has changed"
    assert later.observed.nodes is time_passes.observed.nodes


def test_not_complete(place: Place) -> None:
    """Viewers see that what they see is old. Status records are part of what is complete; locks are not asked for."""
    first = place.maker.latest()
    place.caches.ready = False
    place.time += 60
    second = place.maker.latest()
    assert (first.complete, second.complete, second.number) == (True, False, first.number + 1)
    assert (second.observed.now, place.maker.complete) == (1_060.0, False)
    place.maker.refresh()
    assert place.nodes.refreshed == 0
    place.caches.ready = True
    place.maker.refresh()
    assert (place.maker.complete, place.nodes.refreshed) == (True, 1)
    place.status.ready.clear()
    assert not place.maker.complete


class Owners:
    """Who has the locks."""

    def __init__(self) -> None:
        self.made = 0
        self.asked: list[str] = []
        self.name: str | None = "launcher l1"
        self.error: Exception | None = None

    def make(self, _client: Any) -> Any:
        self.made += 1
        return self

    def of_node(self, node_id: str) -> str | None:
        self.asked.append(node_id)
        if self.error is not None:
            raise self.error
        return self.name


def names(owners: Owners, clock: ManualClock, *, connected: bool = True) -> LockNames:
    return LockNames(cast(Any, SimpleNamespace(connected=connected)), owners.make, clock)


def test_owner_of_a_lock_is_asked_once_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-100: without a connection the last answer holds; what is kept is bounded."""
    set_constants(monkeypatch, LockNames, WAIT_SECONDS=DEADLINE_SECONDS)
    owners, clock = Owners(), ManualClock()
    assert (names(owners, clock, connected=False).of_node("1"), owners.asked) == (None, [])
    known = names(owners, clock)
    assert [known.of_node("1") for _ in range(3)] == ["launcher l1"] * 3
    assert owners.asked == ["1"]
    clock.pass_seconds(KNOWN_SECONDS)
    owners.error = ZKConnectionError("away")
    assert known.of_node("1") == "launcher l1"
    owners.error, owners.name = None, None
    assert (known.of_node("1"), owners.made, len(owners.asked)) == (None, 1, 3)
    clock.pass_seconds(PROCESSES_SECONDS)
    known.of_node("1")
    assert owners.made == 2
    for _ in range(2):
        for number in range(2 * MOST_KNOWN):
            known.of_node(str(number))
    assert len(owners.asked) >= 4 + 3 * MOST_KNOWN, "the first ones were forgotten"


def ended(number: int, seconds: float, *labels: str, ago: float = 0.0) -> NodeRequest:
    request = observed.request(number, *labels or ("gpu",), state=states.FULFILLED)
    request.state_time = NOW - ago
    request.created_time = request.state_time - seconds
    return request


def waits_of(*requests: NodeRequest | None) -> WaitTimes:
    waits = WaitTimes()
    for request in requests:
        waits.note(request)
    return waits


def test_waits_of_a_label() -> None:
    """WP-99: once for each label; a record that is read again does not count again; clocks may differ."""
    waits = waits_of(*(ended(number, float(number)) for number in range(1, 101)))
    assert waits.of_label("gpu", NOW) == WaitSummary(100, 0, 50.0, 95.0)
    assert waits.of_label("arm", NOW) == WaitSummary(0, 0, None, None)
    waits = waits_of(ended(1, 30.0, "gpu", "gpu", "arm"), ended(2, 10.0, "gpu", "gpu"))
    assert waits.of_label("gpu", NOW) == WaitSummary(2, 1, 10.0, 30.0)
    assert waits.of_label("arm", NOW) == WaitSummary(1, 1, 30.0, 30.0)
    assert waits_of(*[ended(1, -2.0)] * 3).of_label("gpu", NOW) == WaitSummary(1, 0, 0.0, 0.0)


def test_changes_that_are_not_taken(place: Place) -> None:
    """They stay small, although there is no viewer for weeks."""
    for number in range(2 * MOST_IDS):
        place.put_node(str(number))
        place.clock.now += LIFETIME_SECONDS
        place.maker.latest()
        place.nodes.records.clear()
    assert place.maker.take_changes()[RecordKind.NODES] == {""}
    changes = ChangedRecords()
    for number in range(2 * MOST_IDS):
        changes.note(RecordKind.NODES, str(number))
    assert len(changes.take()[RecordKind.NODES]) == MOST_IDS


@rows(__file__, "test_percentile")
def test_percentile(values: list[float], percent: int, found: float | None) -> None:
    """WP-99: a wait that there was, no mean of two."""
    assert percentile(values, percent) == found


def test_waits_that_do_not_count() -> None:
    """WP-99"""
    failed, of_min_ready, without_time = ended(1, 5.0), ended(2, 5.0), ended(3, 5.0)
    failed.state, of_min_ready.requestor, without_time.created_time = states.FAILED, MIN_READY_REQUESTOR, None
    waits = waits_of(failed, of_min_ready, without_time, ended(4, 5.0, ago=4000.0), None)
    assert waits.of_label("gpu", NOW).count == 0
