# SPDX-License-Identifier: Apache-2.0
"""One snapshot for all viewers, no older than it may be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.model.image import NO_IMAGES
from nodepool.model.node import Node
from nodepool.model.status import BuilderStatus
from nodepool.web.snapshot import LIFETIME_SECONDS, MOST_IDS, RecordKind, SnapshotMaker
from tests.support.manual_clock import ManualClock


class Records:
    """A cache of records that a test fills."""

    def __init__(self, shown: Any = None) -> None:
        self.shown = {} if shown is None else shown
        self.locked: frozenset[str] = frozenset()
        self.refreshed = 0
        self.listeners: list[Callable[..., None]] = []

    def values(self) -> list[Any]:
        return []

    def snapshot(self) -> Any:
        return dict(self.shown) if isinstance(self.shown, dict) else self.shown

    def locked_ids(self) -> frozenset[str]:
        return self.locked

    def refresh_stale(self) -> None:
        self.refreshed += 1

    def add_listener(self, listener: Callable[..., None]) -> None:
        self.listeners.append(listener)


class Place:
    """A maker of snapshots, and what it looks at."""

    def __init__(self) -> None:
        self.nodes, self.clock, self.time = Records(), ManualClock(), 1_000.0
        others = {name: Records() for name in ("requests", "pools", "maintenance")}
        self.caches: Any = SimpleNamespace(nodes=self.nodes, images=Records(NO_IMAGES), ready=True, **others)
        ready = threading.Event()
        ready.set()
        self.status: Any = SimpleNamespace(
            ready=ready, launchers=list, pools=list, builders=BuilderStatus, add_listener=lambda _listener: None
        )
        self.maker = SnapshotMaker(
            cast(Any, self.caches), cast(Any, self.status), clock=self.clock, now=lambda: self.time
        )

    def put_node(self, node_id: str) -> Node:
        node = Node("small")
        node.id = node_id
        self.nodes.shown[node_id] = node
        for listener in self.nodes.listeners:
            listener(node_id)
        return node


@pytest.fixture
def place() -> Place:
    return Place()


def test_shows_what_the_caches_have(place: Place) -> None:
    """In whatever order the cache has read nodes, they are in that of their ids."""
    nodes = {node_id: place.put_node(node_id) for node_id in ("0000000003", "0000000001", "0000000002")}
    place.nodes.locked = frozenset({"0000000001"})
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


def test_changes_that_are_not_taken(place: Place) -> None:
    """They stay small, although there is no viewer for weeks."""
    for number in range(2 * MOST_IDS):
        place.put_node(str(number))
        place.clock.now += LIFETIME_SECONDS
        place.maker.latest()
        place.nodes.shown.clear()
    assert place.maker.take_changes()[RecordKind.NODES] == {""}
    for number in range(2 * MOST_IDS):
        place.put_node(str(number))
    place.clock.now += LIFETIME_SECONDS
    place.maker.latest()
    assert len(place.maker.take_changes()[RecordKind.NODES]) == MOST_IDS
