# SPDX-License-Identifier: Apache-2.0
"""What triage says is applied, without ZooKeeper: order, limits of a pass, errors (rules A-1 to A-18)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.launcher.pool import intake as intake_module
from nodepool.launcher.pool.desk import Desk
from nodepool.launcher.pool.intake import Intake
from nodepool.model import reasons, states
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.plan.nodes import ReadyNodes
from nodepool.plan.queue import Bucket, RequestKind, RequestQueue
from nodepool.plan.request_stage import Stage
from nodepool.plan.triage import Consider, Decline, Fulfil, Launch, Leave, Wait


class Place:
    """A pool; ``verdicts`` says what triage says of a request, by default that it is launched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue = RequestQueue()
        self.desk = Desk(self.queue)
        self.requests: dict[str, NodeRequest] = {}
        self.kinds: dict[str, Any] = {}
        self.verdicts: dict[str, Any] = {}
        self.errors: dict[str, Exception] = {}
        self.replaced = False
        self.paused = False
        self.done: list[tuple[str, str]] = []
        self.kept: list[str | None] = []
        self.passed_over: list[str] = []
        self.left_over: list[str] = []
        self.ready = ReadyNodes()
        self.woken = 0
        self.evicted = 0
        self.more_declines = False
        monkeypatch.setattr(intake_module, "triage_kind", self._triage_kind)
        monkeypatch.setattr(intake_module, "triage", self._triage)
        monkeypatch.setattr(intake_module, "RequestView", self._look)
        pool = SimpleNamespace(
            open_request=self.requests.get, provider_replaced=lambda: self.replaced, held=lambda labels: None
        )
        turns = SimpleNamespace(
            pass_over=lambda request, turns: self.passed_over.append(request.key), end_pass=lambda: self.left_over
        )
        view = SimpleNamespace(pool=pool, turns=turns, room=self, ready=self.ready)
        self.intake = Intake(
            cast(Any, view),
            self.queue,
            self.desk,
            cast(Any, SimpleNamespace(start=self._fulfil, takes=lambda request_id: True)),
            cast(Any, SimpleNamespace(decline_all=self._decline_all, decline=self._decline)),
            cast(Any, SimpleNamespace(launch=self._launch)),
            cast(Any, SimpleNamespace(evict=self._evict)),
            self._wake,
            logging.getLogger("test.intake"),
        )

    # what the view is asked

    def keep_for_tenant(self, kind: RequestKind, cause: Reason) -> None:
        self.kept.append(kind.tenant_name)

    def taken(self, _kind: RequestKind) -> None:
        """Counts for the tenant."""

    # what the parts do

    def _triage_kind(self, kind: RequestKind, _view: Any) -> Any:
        return self.kinds.get(kind.labels[0], Consider())

    def _triage(self, _kind: RequestKind, request: NodeRequest, _view: Any) -> Any:
        if request.key in self.errors:
            raise self.errors[request.key]
        return self.verdicts.get(request.key, Launch())

    def _look(self, _view: Any, _kind: RequestKind, request: NodeRequest) -> Any:
        return SimpleNamespace(handler=SimpleNamespace(request=request), turns=["other"])

    def _fulfil(self, handler: Any, _nodes: Any) -> None:
        self._take("fulfil", handler.request.key)

    def _take(self, how: str, request_id: str) -> None:
        self.done.append((how, request_id))
        self.queue.discard(request_id)

    def _launch(self, _bucket: Bucket, handler: Any, _until: Any, _at_most: int) -> int:
        self._take("launch", handler.request.key)
        return 1

    def _decline(self, request_ids: list[str], _reason: Reason) -> None:
        for request_id in request_ids:
            self._take("decline", request_id)

    def _decline_all(self, bucket: Bucket, reason: Reason) -> bool:
        self._decline(list(bucket), reason)
        return self.more_declines

    def _evict(self) -> None:
        self.evicted += 1

    def _wake(self) -> None:
        self.woken += 1

    # what the test does

    def add(self, request_id: str, label: str = "small") -> NodeRequest:
        request = NodeRequest(request_id)
        request.node_types, request.state = [label], states.REQUESTED
        self.requests[request_id] = request
        self.queue.put(request)
        return request


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(monkeypatch)


def test_order_over_all_kinds(place: Place) -> None:
    """A-1"""
    for request_id, label in (("200-1", "small"), ("100-2", "big"), ("100-3", "small"), ("300-1", "big")):
        place.add(request_id, label)
    assert not place.intake.serve()
    assert [request_id for _, request_id in place.done] == ["100-2", "100-3", "200-1", "300-1"]


@pytest.mark.parametrize(
    ("verdict", "limit", "how"), [(Launch(), "MAX_LAUNCHED", "launch"), (Fulfil(()), "MAX_FULFILLED", "fulfil")]
)
def test_limits_of_a_pass(place: Place, monkeypatch: pytest.MonkeyPatch, verdict: Any, limit: str, how: str) -> None:
    """A-18: then handlers are polled and changes are seen."""
    monkeypatch.setattr(intake_module, limit, 2)
    for number in range(5):
        place.verdicts[place.add(f"100-{number}").key] = verdict
    assert [place.intake.serve(), place.intake.serve(), place.intake.serve()] == [True, True, False]
    assert place.done == [(how, f"100-{number}") for number in range(5)]


def test_kinds(place: Place) -> None:
    """A-4 to A-7: one verdict for all requests of a kind."""
    place.kinds = {
        "a": Decline(reasons.POOL_DISABLED),
        "b": Leave(reasons.FIRST_CHOICE),
        "c": Wait(reasons.POOL_PAUSED),
    }
    for number, label in enumerate("aabbcc"):
        place.add(f"100-{number}", label)
    place.more_declines = True
    assert place.intake.serve()
    assert place.done == [("decline", "100-0"), ("decline", "100-1")]
    told = [place.desk.explain(f"100-{number}") for number in (2, 4)]
    assert [one.reason for one in told if one is not None] == [reasons.FIRST_CHOICE, reasons.POOL_PAUSED]


def test_head_that_waits(place: Place) -> None:
    """The kind waits with it; the other kinds go on."""
    first, behind, other = place.add("100-1"), place.add("100-2"), place.add("100-3", "big")
    place.verdicts[first.key] = Wait(reasons.NO_ROOM, first_of_tenant=True)
    assert not place.intake.serve()
    assert place.done == [("launch", other.key)]
    assert place.kept == [None]
    told = [place.desk.explain(request.key) for request in (first, behind)]
    assert [one.reason.code for one in told if one is not None] == [ReasonCode.ROOM_HIDDEN, ReasonCode.WAIT_ORDER]


def test_work_follows_the_kinds_not_the_queue(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of requests of a kind only the first is looked at, and none gets a case of its own."""
    asked: list[str] = []

    def full(_kind: RequestKind, request: NodeRequest, _view: Any) -> Wait:
        asked.append(request.key)
        return Wait(reasons.POOL_PAUSED)

    monkeypatch.setattr(intake_module, "triage", full)
    for number in range(5000):
        place.add(f"100-{number:010d}", "small" if number % 2 else "big")
    assert not place.intake.serve()
    assert sorted(asked) == ["100-0000000000", "100-0000000001"]
    assert place.desk.snapshot().requests == []
    told = place.desk.explain("100-0000004999")
    assert told is not None
    assert told.reason.text.startswith("2500th of 2500 requests in front of the limit: the pool is paused")


def test_head_that_is_declined(place: Place) -> None:
    """A-13: and all that are like it."""
    place.verdicts[place.add("100-1").key] = Decline(reasons.EXCEEDS_QUOTA)
    place.add("100-2")
    place.intake.serve()
    assert place.done == [("decline", "100-1"), ("decline", "100-2")]


@pytest.mark.parametrize(("reason", "noted"), [(reasons.FIRST_CHOICE, ["100-1"]), (reasons.SIBLING_SERVES, [])])
def test_head_for_another_pool(place: Place, reason: Reason, noted: list[str]) -> None:
    """A-5: it alone is left; a change of it is looked at."""
    place.verdicts[place.add("100-1").key] = Leave(reason)
    place.add("100-2")
    place.intake.serve()
    assert (place.done, place.passed_over) == ([("launch", "100-2")], noted)
    assert place.desk.counts() == {Stage.DEFERRED: 1}
    assert not place.desk.keeps("100-1")


def test_taken_when_nodes_are_left_over(place: Place) -> None:
    """A-5: after this pool's own requests."""
    request = place.add("100-1")
    request.node_types = []
    place.verdicts["100-1"] = Leave(reasons.FIRST_CHOICE)
    place.left_over = ["100-1", "100-9"]
    assert place.intake.serve()
    assert place.queue.ids() == ["100-1"]


def test_gone_since_the_pass_began(place: Place) -> None:
    """A-2"""
    place.add("100-1")
    place.add("100-2")
    del place.requests["100-1"]
    place.intake.serve()
    assert place.done == [("launch", "100-2")]
    assert len(place.queue) == 0


def test_paused_by_a_launch(place: Place) -> None:
    """A-9: nothing more of that kind; the others are judged by triage."""
    for number in range(2):
        place.add(f"100-{number}")
    place.paused = True
    place.intake.serve()
    assert place.done == [("launch", "100-0")]


def test_error_while_judging(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A-16: it declines one request, and those behind it have their turn."""
    place.errors[place.add("100-1").key] = RuntimeError("no way")
    place.add("100-2")
    place.intake.serve()
    assert place.done == [("decline", "100-1"), ("launch", "100-2")]
    assert "no way" in caplog.text


def test_error_of_a_provider_that_was_replaced(place: Place) -> None:
    """G-5: its successor judges in the next pass."""
    place.errors[place.add("100-1").key] = RuntimeError("was stopped")
    place.replaced = True
    place.intake.serve()
    assert (place.done, place.woken, len(place.queue)) == ([], 1, 1)


def test_lost_connection(place: Place) -> None:
    place.errors[place.add("100-1").key] = ZKConnectionError("away")
    with pytest.raises(ZKConnectionError):
        place.intake.serve()
    assert len(place.queue) == 1


def test_deferred_requests_come_back(place: Place) -> None:
    """A-11, Q-12: those that exist, and whose look is of use."""
    for number in range(4):
        place.add(f"100-{number}")
    answers: list[Any] = [None, lambda: True, lambda: 1 / 0, None]
    for number, pointless in enumerate(answers):
        place.desk.defer(f"100-{number}", reasons.NO_ROOM, 0.0, pointless)
    del place.requests["100-3"]
    place.intake.serve()
    assert place.done == [("launch", "100-0"), ("launch", "100-2")]
    assert place.evicted == 1
    assert place.desk.counts() == {Stage.DEFERRED: 1}
