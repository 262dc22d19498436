# SPDX-License-Identifier: Apache-2.0
"""What changed goes into queue, desk and free nodes, without ZooKeeper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool.changes import Changes
from nodepool.launcher.pool.desk import Desk
from nodepool.model import reasons, states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.node_choice import ReadyNodes
from nodepool.plan.queue import RequestQueue
from nodepool.plan.request_stage import Progress, Stage


class Table(dict[str, Any]):
    """A cache of records."""

    def ids(self) -> list[str]:
        return list(self)


class Place:
    def __init__(self) -> None:
        self.requests, self.nodes = Table(), Table()
        self.queue = RequestQueue()
        self.desk = Desk(self.queue)
        self.considered: list[str] = []
        self.seen: list[str] = []
        self.ready = ReadyNodes()
        cache = SimpleNamespace(requests=self.requests, nodes=self.nodes)
        pool = SimpleNamespace(cache=cache, is_open=lambda request: request.state == states.REQUESTED)
        free = SimpleNamespace(consider=self.considered.append, ready=self.ready)
        eviction = SimpleNamespace(node_seen=lambda node: self.seen.append(node.key))
        self.changes = Changes(cast(Any, pool), self.queue, self.desk, cast(Any, free), cast(Any, eviction))

    def put(self, number: int, state: str = states.REQUESTED) -> NodeRequest:
        request = NodeRequest(f"100-{number}")
        request.node_types, request.state = ["small"], state
        self.requests[request.key] = request
        self.changes.request(request.key)
        return request


@pytest.fixture
def place() -> Place:
    return Place()


def test_requests(place: Place) -> None:
    """A-2: only those that may be taken wait."""
    wanted, taken = place.put(1), place.put(2, states.PENDING)
    place.changes.take()
    assert place.queue.ids() == [wanted.key]
    wanted.state, taken.state = states.PENDING, states.REQUESTED
    for request in (wanted, taken):
        place.changes.request(request.key)
    place.changes.take()
    assert place.queue.ids() == [taken.key]


def test_gone(place: Place) -> None:
    """L-11: what is gone leaves queue and desk."""
    waiting, deferred = place.put(1), place.put(2)
    place.changes.take()
    place.desk.defer(deferred.key, reasons.REQUEST_LOCKED)
    place.requests.clear()
    for request in (waiting, deferred):
        place.changes.request(request.key)
    place.changes.take()
    assert place.desk.counts() == {}


def test_what_the_desk_keeps(place: Place) -> None:
    """A-11: what is served or deferred stays out of the queue when it changes, but for another pool's turn."""
    served, deferred, other = place.put(1), place.put(2), place.put(3)
    handler = SimpleNamespace(request=served, progress=Progress(served.key, 0.0))
    place.desk.open(cast(Any, handler), Stage.CHECKING)
    place.desk.defer(deferred.key, reasons.REQUEST_LOCKED)
    place.desk.defer(other.key, reasons.FIRST_CHOICE, others_turn=True)
    place.changes.take()
    assert place.queue.ids() == [other.key]
    assert place.desk.counts() == {Stage.CHECKING: 1, Stage.DEFERRED: 1, Stage.WAITING: 1}


def test_everything(place: Place) -> None:
    """A-19: after a lost connection, '' = any may have changed."""
    for number in range(3):
        place.put(number)
    place.nodes["7"] = Node("small", id="7")
    stale = Node("small", id="8")
    place.ready.put(stale)
    place.changes.request("")
    place.changes.node("")
    place.changes.take()
    assert len(place.queue) == 3
    assert (place.considered, place.seen, len(place.ready)) == (["7"], ["7"], 0)


def test_nodes(place: Place) -> None:
    place.changes.node("9")
    place.changes.take()
    assert (place.considered, place.seen) == (["9"], [])
    place.changes.take()
    assert place.considered == ["9"], "once"
