# SPDX-License-Identifier: Apache-2.0
"""Which requests wait, in the log (rule J-6), without ZooKeeper."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool import worker as lines_module
from nodepool.launcher.pool.desk import Desk
from nodepool.launcher.pool.worker import FIRST_SECONDS, MAX_LINES, WaitingLines
from nodepool.logconfig import get_annotated_logger
from nodepool.model import reasons
from nodepool.model.reasons import Reason
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import RequestKind, RequestQueue
from nodepool.plan.request_stage import Progress, Stage
from tests.support.manual_clock import ManualClock, monotonic_clock

FULL = reasons.quota_used_up("pool main", "instances", limit=20, used=20, needed=1)


class Pool:
    """A pool and its passes; what waits, and for what, is up to the test."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.queue = RequestQueue()
        self.desk = Desk(self.queue)
        self.requests: dict[str, NodeRequest] = {}
        place = SimpleNamespace(cache=SimpleNamespace(requests=self.requests))
        self.reminders = WaitingLines(cast(Any, place), self.desk, self.queue, logging.getLogger("test.reminders"))

    def add(self, number: int, label: str = "small") -> NodeRequest:
        request = NodeRequest(f"200-{number:04d}")
        request.node_types, request.created_time = [label], self.clock.now
        request.event_id, request.requestor_data = f"e{number}", {"job_name": "unit"}
        self.requests[request.key] = request
        self.queue.put(request)
        return request

    def run_pass(self, seconds: float = 0.0, reason: Reason = FULL) -> None:
        self.clock.pass_seconds(seconds)
        self.desk.explanations.begin_pass()
        for bucket in self.queue.buckets():
            self.desk.explanations.waits(bucket.kind, reason)
        self.reminders.tell()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Pool:
    caplog.set_level(logging.INFO, "test.reminders")
    clock = monotonic_clock(monkeypatch, lines_module)
    monkeypatch.setattr(lines_module, "wall_time", clock)
    return Pool(clock)


def test_one_request(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: a line with ids, age, cause and origin; the next one after a minute. The pool looks when it is time."""
    pool.add(1)
    pool.run_pass()
    assert caplog.messages == []
    waits = pool.reminders.next_look()
    assert waits is not None
    assert waits == pytest.approx(FIRST_SECONDS)
    pool.run_pass(waits)
    line = (
        "[e: e1] [node_request: 200-0001] Waiting for 2 s: "
        "quota: 20 of 20 instances of pool main in use (small; job unit)"
    )
    assert caplog.messages == [line]
    assert vars(caplog.records[0])["code"] == "room.instances"
    assert vars(caplog.records[0])["job"] == "unit"
    pool.run_pass(50)
    assert len(caplog.messages) == 1
    pool.run_pass(pool.reminders.next_look() or 0.0)
    assert caplog.messages[1] == line.replace("for 2 s", "for 60 s")


def test_many_requests_of_a_kind(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: one line for all, about the oldest."""
    for number in range(12):
        pool.add(number)
    pool.run_pass()
    pool.run_pass(FIRST_SECONDS)
    (line,) = caplog.messages
    assert line.startswith("[e: e0] [node_request: 200-0000] Waiting for 2 s with 11 later ones: quota: ")


def test_behind_a_paused_pool(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: with what pauses the pool."""
    pool.add(1)
    reason = reasons.pool_paused("200-0009", FULL)
    pool.run_pass(0.0, reason)
    pool.run_pass(FIRST_SECONDS, reason)
    assert f"Waiting for 2 s: {reason.text} (small; job unit)" in caplog.text


def test_short_waits_and_other_pools(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: nothing is said of requests that wait for other pools, and nothing makes the pool look."""
    pool.add(1)
    for seconds in (0.0, 100.0, 1000.0):
        pool.run_pass(seconds, reasons.FIRST_CHOICE)
    assert caplog.messages == []
    assert pool.reminders.next_look() is None


def test_taken_since_the_pass(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    request = pool.add(1)
    pool.run_pass()
    del pool.requests[request.key]
    pool.run_pass(FIRST_SECONDS)
    assert caplog.messages == []
    pool.queue.discard(request.key)
    pool.run_pass(100)
    assert pool.reminders.next_look() is None


def test_many_kinds(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: hundreds of kinds are not hundreds of lines at once."""
    for number in range(MAX_LINES + 7):
        pool.add(number, f"label{number}")
    pool.run_pass()
    pool.run_pass(FIRST_SECONDS)
    assert len(caplog.messages) == MAX_LINES + 1
    assert caplog.messages[-1] == "Waiting: requests of 7 more kinds"


def test_request_that_pauses_the_pool(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """J-6: told when it began, see Q-9; again after a minute."""
    request = pool.add(1)
    log = get_annotated_logger(logging.getLogger("test.reminders"), node_request_id=request.id)
    handler = cast(Any, SimpleNamespace(request=request, progress=Progress(request.key, pool.clock.now), log=log))
    pool.desk.open(handler, Stage.LOCKING)
    pool.desk.move(request.key, Stage.GATHERING)
    handler.progress.move(Stage.PAUSED, pool.clock.now, FULL)
    for seconds in (0.0, 30.0, 29.0, 1.0, 30.0):
        pool.run_pass(seconds)
    assert caplog.messages == [f"[node_request: 200-0001] Pausing for 60 s already: {FULL.text}"]
    assert vars(caplog.records[0])["code"] == "room.instances"


def test_kind_that_is_not_there(pool: Pool) -> None:
    assert pool.queue.count(RequestKind.of(NodeRequest("200-1"))) == 0
