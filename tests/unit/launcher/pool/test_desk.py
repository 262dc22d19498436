# SPDX-License-Identifier: Apache-2.0
"""The desk of a pool, without ZooKeeper: stages, deferred requests, and why a request waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool.desk import Desk
from nodepool.model import reasons
from nodepool.model.reasons import ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import RequestKind, RequestQueue
from nodepool.plan.request_stage import ImpossibleMove, Progress, Stage
from tests.support.manual_clock import ManualClock


class Office:
    """A desk, its queue and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = RequestQueue()
        self.desk = Desk(self.queue, clock=self.clock)

    def submit(self, number: int, *labels: str) -> NodeRequest:
        request = NodeRequest(id=f"100-{number:010d}")
        request.node_types = list(labels or ["small"])
        self.queue.put(request)
        return request

    def open(self, request: NodeRequest, stage: Stage) -> Any:
        handler = SimpleNamespace(request=request, progress=Progress(request.key, 0.0))
        self.desk.open(cast(Any, handler), stage)
        return handler

    def due(self) -> list[str]:
        return [due.request_id for due in self.desk.take_due()]

    def code(self, request: NodeRequest) -> ReasonCode | None:
        explanation = self.desk.explain(request.key)
        return None if explanation is None else explanation.reason.code


@pytest.fixture
def office() -> Office:
    return Office()


def test_served(office: Office) -> None:
    """A request leaves the queue, is locked, and is known until its handler ends."""
    request = office.submit(1)
    handler = office.open(request, Stage.LOCKING)
    assert request.key not in office.queue
    assert office.desk.keeps(request.key)
    assert office.desk.handlers() == []
    office.desk.move(request.key, Stage.GATHERING)
    assert office.desk.handlers() == [handler]
    before = office.desk.paused
    handler.progress.move(Stage.PAUSED, 1.0, reasons.NO_ROOM)
    assert (before, office.desk.paused) == (False, True)
    assert office.code(request) is ReasonCode.ROOM_HIDDEN
    assert office.desk.counts() == {Stage.PAUSED: 1}
    office.desk.close(request.key)
    assert office.desk.counts() == {}
    assert office.code(request) is None


def test_paused_as_long_as_a_request_waits_for_room(office: Office) -> None:
    """A-9: however the last of them goes on, ends or is given back; what its handler does later is of no account."""
    requests = [office.submit(number) for number in range(4)]
    handlers = [office.open(request, Stage.LOCKING) for request in requests]
    for request, handler in zip(requests, handlers, strict=True):
        office.desk.move(request.key, Stage.GATHERING)
        handler.progress.move(Stage.PAUSED, 1.0)
    handlers[0].progress.move(Stage.GATHERING, 2.0)
    office.desk.close(requests[1].key)
    handlers[1].progress.move(Stage.GATHERING, 2.0)
    handlers[1].progress.move(Stage.PAUSED, 2.0)
    seen = [office.desk.paused]
    handlers[2].progress.move(Stage.DONE, 2.0)
    seen.append(office.desk.paused)
    office.desk.defer(requests[3].key, reasons.REQUEST_CHANGED)
    seen.append(office.desk.paused)
    handlers[0].progress.move(Stage.PAUSED, 3.0)
    seen.append(office.desk.paused)
    assert seen == [True, True, False, True]


def test_why_it_is_paused(office: Office) -> None:
    """E-2, A-9: those behind it are told what the first request waits for."""
    assert office.desk.why_paused is reasons.POOL_PAUSED
    room = reasons.quota_used_up("pool main", "cores", limit=8, used=8, needed=4)
    for number, why in ((2, reasons.NO_ROOM), (1, room)):
        request = office.submit(number)
        handler = office.open(request, Stage.LOCKING)
        office.desk.move(request.key, Stage.GATHERING)
        handler.progress.move(Stage.PAUSED, 1.0, why)
    assert office.desk.why_paused == reasons.pool_paused(request.key, room)


def test_impossible_stage(office: Office) -> None:
    request = office.submit(1)
    office.open(request, Stage.CHECKING)
    with pytest.raises(ImpossibleMove, match="cannot go from checking to paused: waiting, then checking"):
        office.desk.move(request.key, Stage.PAUSED)


def test_fast_path(office: Office) -> None:
    request = office.submit(1)
    assert not office.desk.on_fast_path(request.key)
    office.open(request, Stage.CHECKING)
    assert office.desk.on_fast_path(request.key)
    office.desk.move(request.key, Stage.FULFILLING)
    assert office.desk.on_fast_path(request.key)
    assert office.desk.handlers() == []


def test_deferred(office: Office) -> None:
    """A-11: looked at again when its time has come, and not before."""
    soon, later = office.submit(1), office.submit(2)
    office.desk.defer(later.key, reasons.REQUEST_LOCKED, 5.0)
    office.desk.defer(soon.key, reasons.REQUEST_LOCKED, 1.0)
    assert len(office.queue) == 0
    assert office.desk.next_look() == 1.0
    assert office.due() == []
    office.clock.pass_seconds(1.0)
    assert office.due() == [soon.key]
    assert not office.desk.keeps(soon.key)
    assert office.desk.keeps(later.key)
    assert office.desk.next_look() == 4.0


def test_deferred_anew(office: Office) -> None:
    """The last deferral counts."""
    request = office.submit(1)
    office.desk.defer(request.key, reasons.REQUEST_LOCKED, 1.0)
    office.desk.defer(request.key, reasons.OTHER_LAUNCHERS, 3.0)
    office.clock.pass_seconds(1.0)
    assert office.due() == []
    assert office.code(request) is ReasonCode.WAIT_OTHER_LAUNCHERS
    office.clock.pass_seconds(2.0)
    assert office.due() == [request.key]
    assert office.desk.next_look() is None


def test_error_loses_no_deferred_request(office: Office) -> None:
    """Those that were not handed out before an error are still due."""
    requests = [office.submit(number) for number in range(3)]
    for request in requests:
        office.desk.defer(request.key, reasons.REQUEST_LOCKED, 1.0)
    office.clock.pass_seconds(1.0)
    assert next(office.desk.take_due()).request_id == requests[0].key
    assert office.due() == [request.key for request in requests[1:]]


def test_deferred_again_without_a_delay(office: Office) -> None:
    """It is handed out once in a pass."""
    for number in range(2):
        office.desk.defer(office.submit(number).key, reasons.REQUEST_LOCKED, 0.0)
    seen = []
    for due in office.desk.take_due():
        seen.append(due.request_id)
        office.desk.defer(due.request_id, due.reason, 0.0)
    assert len(seen) == 2
    assert len(office.due()) == 2


def test_turn_of_another_pool(office: Office) -> None:
    """A-5: a change of such a request is looked at all the same."""
    request = office.submit(1)
    office.desk.defer(request.key, reasons.FIRST_CHOICE, 1.0, others_turn=True)
    assert not office.desk.keeps(request.key)
    office.desk.wake(request.key)
    office.clock.pass_seconds(1.0)
    assert office.due() == []
    assert office.desk.next_look() is None


def test_given_back(office: Office) -> None:
    """Q-12: the story of a request goes on when its handler gave it back."""
    request = office.submit(1)
    handler = office.open(request, Stage.LOCKING)
    office.desk.move(request.key, Stage.GATHERING)
    handler.progress.move(Stage.DEFERRED, 1.0, reasons.NO_READY_NODE)
    office.desk.defer(request.key, handler.progress.reason, 1.0, pointless=lambda: True)
    assert office.desk.counts() == {Stage.DEFERRED: 1}
    office.clock.pass_seconds(1.0)
    (due,) = office.desk.take_due()
    assert (due.reason, due.delay_seconds) == (reasons.NO_READY_NODE, 1.0)
    assert due.pointless is not None
    assert [move.target for move in handler.progress.moves] == [
        *(Stage.LOCKING, Stage.GATHERING, Stage.DEFERRED, Stage.WAITING)
    ]


def test_ended_by_a_driver_in_a_way_of_its_own(office: Office) -> None:
    """reference/driver 3: a handler that sets `done` itself, with the request given back."""
    request = office.submit(1)
    handler = office.open(request, Stage.LOCKING)
    handler.progress.move(Stage.DONE, 1.0)
    office.desk.defer(request.key, reasons.REQUEST_CHANGED, 1.0)
    assert office.desk.counts() == {Stage.DEFERRED: 1}


def test_gone(office: Office) -> None:
    """L-11: nothing is kept of a request that does not exist."""
    deferred, declined = office.submit(1), office.submit(2)
    office.desk.defer(deferred.key, reasons.REQUEST_LOCKED)
    office.queue.discard(declined.key)
    office.desk.explanations.declined(declined.key, reasons.IMAGE_MISSING)
    assert office.code(declined) is ReasonCode.IMAGE_MISSING
    for request in (deferred, declined):
        office.desk.gone(request.key)
        assert office.desk.explain(request.key) is None
    office.clock.pass_seconds(1.0)
    assert office.due() == []


def test_explanations_of_a_kind(office: Office) -> None:
    """One for all requests of the kind; each tells its place."""
    first, second = office.submit(1), office.submit(2)
    assert office.code(first) is ReasonCode.WAIT_ORDER
    office.desk.explanations.begin_pass()
    office.desk.explanations.waits(RequestKind.of(first), reasons.NO_READY_NODE)
    assert office.code(first) is ReasonCode.WAIT_READY_NODE
    told = office.desk.explain(second.key)
    assert told is not None
    assert (told.stage, told.reason.code) == (Stage.WAITING, ReasonCode.WAIT_ORDER)
    assert told.reason.text == "2nd of 2 requests in front of the limit: no ready node and the pool launches none"


def test_snapshot(office: Office) -> None:
    office.submit(1)
    deferred, served = office.submit(2), office.submit(3, "big")
    office.desk.defer(deferred.key, reasons.REQUEST_LOCKED)
    office.open(served, Stage.CHECKING)
    found = office.desk.snapshot()
    assert found.counts == {Stage.WAITING: 1, Stage.DEFERRED: 1, Stage.CHECKING: 1}
    assert [(kind.labels, count) for kind, count, _ in found.kinds] == [(("small",), 1)]
    assert {(told.request_id, told.reason.code) for told in found.requests} == {
        (deferred.key, ReasonCode.REQUEST_LOCKED),
        (served.key, ReasonCode.SERVED_CHECKING),
    }
