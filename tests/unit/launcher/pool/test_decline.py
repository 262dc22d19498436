# SPDX-License-Identifier: Apache-2.0
"""Declining requests that the pool has not locked, without ZooKeeper (rules A-14, A-15)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.launcher.events import EventRing
from nodepool.launcher.pool import intake as decline_module
from nodepool.launcher.pool.desk import Desk, RequestEvents
from nodepool.launcher.pool.intake import BATCH, START_SECONDS, Declines
from nodepool.metrics.catalog import REQUEST_WAIT
from nodepool.model import reasons, states
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import RequestKind, RequestQueue
from nodepool.plan.request_stage import Stage
from tests.support.counted import Counted
from tests.support.manual_clock import ManualClock, monotonic_clock


class Place:
    """A pool ``me``, and the requests that it writes."""

    launcher_id = "me"
    place = "lab/main"

    def __init__(self) -> None:
        self.launcher = SimpleNamespace(label_hint=lambda labels: f"; hint for {', '.join(labels)}")
        self.others: dict[str, Reason | None] = {}
        self.requests: dict[str, NodeRequest] = {}
        self.pools = [SimpleNamespace(id="me")]
        self.nodes: list[Any] = []
        self.error: Exception | None = None
        self.written: list[NodeRequest] = []
        self.cache = SimpleNamespace(nodes=SimpleNamespace(values=lambda: self.nodes))
        self.zk = SimpleNamespace(requests=SimpleNamespace(send_unlocked=self._send))
        self.queue = RequestQueue()
        self.desk = Desk(self.queue)
        self.ring = EventRing()
        self.declines = self.make()

    def make(self) -> Declines:
        events = RequestEvents(self.ring, "l1", "lab/main", self.declines_of_others)
        return Declines(cast(Any, self), self.desk, self.queue, events, logging.getLogger("test.decline"))

    def registered_pools(self) -> list[Any]:
        return self.pools

    def absent_pools(self) -> list[Any]:
        return []

    def declines_of_others(self, request_id: str) -> dict[str, Reason | None]:
        return self.others

    def open_request(self, request_id: str) -> NodeRequest | None:
        return self.requests.get(request_id)

    def _send(self, request: NodeRequest) -> Any:
        self.written.append(request)
        return self.error

    def add(self, number: int = 1, created: float = 0.0) -> NodeRequest:
        request = NodeRequest(f"100-{number:04d}")
        request.node_types, request.state, request.created_time = ["gpu"], states.REQUESTED, created
        self.requests[request.key] = request
        self.queue.put(request)
        return request

    def code(self, request: NodeRequest) -> ReasonCode | None:
        told = self.desk.explain(request.key)
        return None if told is None else told.reason.code


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return monotonic_clock(monkeypatch, decline_module)


@pytest.fixture
def place(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Place:
    def result(reply: Exception | None) -> None:
        if reply is not None:
            raise reply

    monkeypatch.setattr(decline_module, "result", result)
    monkeypatch.setattr(decline_module, "wall_time", lambda: 5000.0)
    made = Place()
    clock.pass_seconds(START_SECONDS + 1)
    return made


def test_declined(place: Place) -> None:
    """A-14, A-15: a copy is written; the reason is kept."""
    request = place.add()
    place.declines.decline([request.key], reasons.IMAGE_MISSING)
    (written,) = place.written
    assert (written.declined_by, written.state) == (["me"], states.FAILED)
    assert request.declined_by == []
    assert len(place.queue) == 0
    assert place.code(request) is ReasonCode.IMAGE_MISSING


def test_waiting_time(place: Place) -> None:
    """WP-77: it is noted when the last pool declines the request, which fails it."""
    counted = Counted(REQUEST_WAIT)
    place.declines.decline([place.add().key], reasons.IMAGE_MISSING)
    assert counted.new() == {("gpu", "failed"): 1}
    place.pools.append(SimpleNamespace(id="other"))
    place.declines.decline([place.add(2).key], reasons.IMAGE_MISSING)
    assert counted.new() == {("gpu", "failed"): 1}


def test_others_may_serve_it(place: Place) -> None:
    place.pools.append(SimpleNamespace(id="other"))
    place.declines.decline([place.add().key], reasons.IMAGE_MISSING)
    assert place.written[0].state == states.REQUESTED


def test_taken_meanwhile(place: Place) -> None:
    request = place.add()
    del place.requests[request.key]
    place.declines.decline([request.key], reasons.IMAGE_MISSING)
    assert place.written == []


def test_more_than_fit_in_a_pass(place: Place) -> None:
    for number in range(BATCH + 1):
        place.add(number)
    (bucket,) = place.queue.buckets()
    assert bucket.kind == RequestKind.of(place.add(0))
    assert place.declines.decline_all(bucket, reasons.IMAGE_MISSING)
    assert not place.declines.decline_all(bucket, reasons.IMAGE_MISSING)
    assert len(place.written) == BATCH + 1


def test_held_by_somebody(place: Place) -> None:
    """A-11: looked at again soon."""
    request = place.add()
    place.error = ZKConflict("held")
    place.declines.decline([request.key], reasons.IMAGE_MISSING)
    assert place.desk.counts() == {Stage.DEFERRED: 1}
    assert place.code(request) is ReasonCode.REQUEST_LOCKED


def test_lost_connection(place: Place) -> None:
    place.error = ZKConnectionError("away")
    with pytest.raises(ZKConnectionError):
        place.declines.decline([place.add().key], reasons.IMAGE_MISSING)


def test_right_after_the_start(place: Place) -> None:
    """A-15: what is older than the launcher others may serve who are not back yet."""
    place.declines = place.make()
    old, new = place.add(1, created=4999.0), place.add(2, created=5001.0)
    place.declines.decline([old.key, new.key], reasons.IMAGE_MISSING)
    assert [request.id for request in place.written] == [new.id]
    assert place.code(old) is ReasonCode.WAIT_OTHER_LAUNCHERS


def test_nodes_of_launchers_that_are_away(place: Place) -> None:
    """A-15: their labels are not known."""
    place.declines = place.make()
    place.nodes = [SimpleNamespace(launcher="me"), SimpleNamespace(launcher="host-PoolWorker.two-main-1")]
    place.declines.decline([place.add(created=5001.0).key], reasons.IMAGE_MISSING)
    assert place.written == []


def test_lines(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """J-3: cause, labels, who asked; that it fails, with what the other pools said."""
    caplog.set_level(logging.INFO, "test.decline")
    place.others["cloud/main"] = Reason(ReasonCode.LABEL_BROKEN, "label gpu cannot be served: no such flavor")
    request = place.add()
    request.event_id, request.tenant_name, request.requestor_data = "E", "t1", {"job_name": "unit"}
    place.declines.decline([request.key], Reason(ReasonCode.LABEL_UNKNOWN, "label(s) gpu not available in this pool"))
    ids, about = f"[e: E] [node_request: {request.id}] ", "(gpu; job unit, tenant t1)"
    assert caplog.messages == [
        f"{ids}Declining node request: label(s) gpu not available in this pool; hint for gpu {about}",
        f"{ids}Failing node request: every pool declined it: cloud/main: label gpu cannot be served: "
        f"no such flavor {about}",
    ]
    assert [vars(record)["code"] for record in caplog.records] == ["label.unknown", "label.broken"]
    told = place.desk.explain(request.key)
    assert told is not None
    assert told.reason.text.endswith("hint for gpu")


def test_only_unknown_labels_have_a_hint(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """J-3."""
    caplog.set_level(logging.INFO, "test.decline")
    place.pools.append(SimpleNamespace(id="other"))
    place.declines.decline([place.add().key], reasons.IMAGE_MISSING)
    (line,) = caplog.messages
    assert line.endswith("Declining node request: images are not available (gpu)")
