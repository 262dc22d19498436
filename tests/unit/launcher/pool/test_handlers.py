# SPDX-License-Identifier: Apache-2.0
"""Handlers of locked requests are run, polled and ended, without ZooKeeper."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.launcher.events import EventRing
from nodepool.launcher.pool.desk import Desk, RequestEvents
from nodepool.launcher.pool.handlers import LAUNCHES_SECONDS, POLL_SECONDS, Handlers
from nodepool.metrics.catalog import REQUEST_WAIT
from nodepool.model import reasons, states
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import RequestQueue
from nodepool.plan.request_stage import UNFINISHED, Progress, Stage
from tests.support.counted import Counted


class Scripted:
    """A handler that does what the test says."""

    def __init__(self, number: int) -> None:
        self.request = NodeRequest(f"100-{number}")
        self.request.state = states.PENDING
        self.progress = Progress(self.request.key, 0.0)
        self.error: Exception | None = None
        self.to: Stage | None = None
        self.reason = reasons.IMAGE_MISSING
        self.called: list[str] = []
        self.order: list[str] = []
        #: Does it fulfil its request in a poll?
        self.writes = False
        self.awaits_launches = False

    @property
    def done(self) -> bool:
        return self.progress.stage in (Stage.DEFERRED, Stage.DONE)

    @property
    def unfinished(self) -> bool:
        return self.progress.stage in UNFINISHED

    @property
    def launching(self) -> bool:
        return self.progress.stage is Stage.LAUNCHING

    def _do(self, what: str) -> bool:
        self.called.append(what)
        self.order.append(self.request.key)
        if self.error is not None:
            raise self.error
        if self.to is not None:
            self.progress.move(self.to, 1.0, self.reason)
        return self.done

    def run(self) -> None:
        self._do("run")

    def begin_poll(self) -> Callable[[], None] | None:
        if not self.writes:
            self._do("poll")
            return None
        self.order.append(f"begin {self.request.key}")
        return self._end

    def _end(self) -> None:
        self._do("end")

    def hand_over(self) -> None:
        self._do("hand_over")

    def give_back_when_launched(self) -> None:
        self._do("give_back")

    def release_locks(self) -> None:
        self._do("release_locks")

    def move(self, stage: Stage) -> None:
        self.progress.move(stage, 1.0)

    def yields(self) -> bool:
        return True


class Place:
    def __init__(self) -> None:
        self.desk = Desk(RequestQueue())
        self.told: list[str] = []
        self.order: list[str] = []
        self.ring = EventRing()
        events = RequestEvents(self.ring, "l1", "lab/main", lambda _: {})
        self.handlers = Handlers(self.desk, "me", 1.0, self.told.append, events, logging.getLogger("test.handlers"))

    def add(self, number: int, stage: Stage = Stage.GATHERING) -> Scripted:
        handler = Scripted(number)
        self.desk.open(cast(Any, handler), Stage.LOCKING)
        self.desk.move(handler.request.key, Stage.GATHERING)
        if stage is not Stage.GATHERING:
            handler.move(stage)
        return handler

    def locked(self) -> list[str]:
        return [handler.request.key for handler in self.desk.handlers()]


@pytest.fixture
def place() -> Place:
    return Place()


def test_one_error_affects_no_other(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A-19"""
    bad, good = place.add(1, Stage.LAUNCHING), place.add(2, Stage.LAUNCHING)
    bad.error = RuntimeError("no way")
    good.to = Stage.DONE
    place.handlers.poll()
    assert "Error while polling" in caplog.text
    assert place.locked() == [bad.request.key]
    assert place.told == [good.request.key]


@pytest.mark.parametrize("what", ["run_unfinished", "give_back_unfinished"])
def test_one_error_while_serving_affects_no_other(place: Place, caplog: pytest.LogCaptureFixture, what: str) -> None:
    """A-16, A-19: also an error that keeps the request from being declined. It is tried again in the next pass."""
    bad, good = place.add(1), place.add(2)
    bad.error = RuntimeError("launchesComplete() raises")
    good.to = Stage.DONE
    getattr(place.handlers, what)()
    assert f"Error while serving {bad.request}" in caplog.text
    assert place.locked() == [bad.request.key]
    assert place.told == [good.request.key]
    bad.error = ZKConnectionError("away")
    with pytest.raises(ZKConnectionError):
        getattr(place.handlers, what)()


def test_who_awaits_launches_is_not_polled(place: Place) -> None:
    """A-19: the others are, in each pass, and it is as soon as it awaits none."""
    waiting, asked = place.add(1, Stage.LAUNCHING), place.add(2, Stage.LAUNCHING)
    waiting.awaits_launches = True
    place.handlers.poll()
    place.handlers.poll()
    assert (waiting.called, asked.called) == ([], ["poll", "poll"])
    waiting.awaits_launches, waiting.to = False, Stage.DONE
    place.handlers.poll()
    assert waiting.called == ["poll"]
    assert place.locked() == [asked.request.key]


def test_next_look(place: Place) -> None:
    """A-19: launches that tell their end need no pass before that; whoever waits for room, or does not tell, does."""
    assert place.handlers.next_look(held=False) is None
    telling = place.add(1, Stage.LAUNCHING)
    telling.awaits_launches = True
    assert place.handlers.next_look(held=False) == LAUNCHES_SECONDS
    other = place.add(2, Stage.PAUSED)
    other.awaits_launches = True
    assert place.handlers.next_look(held=False) == POLL_SECONDS
    other.move(Stage.GATHERING)
    other.move(Stage.LAUNCHING)
    assert place.handlers.next_look(held=False) == LAUNCHES_SECONDS
    assert place.handlers.next_look(held=True) == POLL_SECONDS
    other.awaits_launches = False
    assert place.handlers.next_look(held=False) == POLL_SECONDS


def test_lost_connection_ends_the_pass(place: Place) -> None:
    place.add(1).error = ZKConnectionError("away")
    with pytest.raises(ZKConnectionError):
        place.handlers.poll()
    assert len(place.desk.handlers()) == 1


def test_requests_are_fulfilled_together(place: Place) -> None:
    """No answer is waited for before all is sent."""
    for number in (1, 2, 3):
        handler = place.add(number, Stage.LAUNCHING)
        handler.writes, handler.to, handler.order = True, Stage.DONE, place.order
    place.handlers.poll()
    assert place.order[:3] == ["begin 100-1", "begin 100-2", "begin 100-3"]
    assert sorted(place.order[3:]) == sorted(place.told) == ["100-1", "100-2", "100-3"]
    assert place.locked() == []


@pytest.mark.parametrize("error", [RuntimeError("no way"), ZKConnectionError("away")])
def test_every_write_that_was_begun_is_waited_for(place: Place, error: Exception) -> None:
    """Whatever goes wrong with another request, before or after (A-19)."""
    writing = [place.add(number, Stage.LAUNCHING) for number in (1, 2, 3)]
    for handler in writing:
        handler.writes, handler.to = True, Stage.DONE
    writing[1].error = place.add(4, Stage.LAUNCHING).error = error
    with contextlib.suppress(ZKConnectionError):
        place.handlers.poll()
    assert [handler.called for handler in writing] == [["end"]] * 3
    assert place.locked() == ["100-2", "100-4"]


def test_order(place: Place) -> None:
    """Q-10: those that wait for room, in order of service."""
    for number, stage in ((3, Stage.PAUSED), (1, Stage.PAUSED), (2, Stage.LAUNCHING)):
        place.add(number, stage).order = place.order
    place.handlers.run_unfinished()
    assert place.order == ["100-1", "100-3"]


def test_conflict_while_running(place: Place) -> None:
    handler = place.add(1)
    handler.error = ZKConflict("changed")
    place.handlers.run_unfinished()
    assert place.locked() == [handler.request.key]


def test_declined(place: Place) -> None:
    """A-14: the reason is kept."""
    handler = place.add(1)
    handler.to = Stage.DONE
    handler.request.state, handler.request.declined_by = states.REQUESTED, ["me"]
    place.handlers.run_unfinished()
    explanation = place.desk.explain(handler.request.key)
    assert explanation is not None
    assert explanation.reason is reasons.IMAGE_MISSING
    (event,) = place.ring.last(10)
    assert (event.subject, event.what, event.code) == (f"request {handler.request.id}", "declined", "image.missing")


@pytest.mark.parametrize("outcome", [states.FULFILLED, states.FAILED, states.REQUESTED])
def test_waiting_time(place: Place, outcome: str) -> None:
    """WP-77: it is noted when the request has an answer."""
    counted = Counted(REQUEST_WAIT)
    handler = place.add(1)
    handler.to = Stage.DONE
    handler.request.node_types, handler.request.created_time, handler.request.state = ["gpu"], 0.0, outcome
    place.handlers.run_unfinished()
    assert counted.new() == ({} if outcome == states.REQUESTED else {("gpu", outcome): 1})


def test_given_back(place: Place) -> None:
    """Q-12, G-6: it is deferred for a moment."""
    handler = place.add(1, Stage.PAUSED)
    handler.to, handler.request.state = Stage.DEFERRED, states.REQUESTED
    place.handlers.give_back_unfinished()
    assert handler.called == ["give_back"]
    assert place.desk.counts() == {Stage.DEFERRED: 1}
    assert place.desk.keeps(handler.request.key)


def test_session_lost(place: Place) -> None:
    """L-9: forgotten only when it holds nothing any more."""
    first, second = place.add(1), place.add(2, Stage.LAUNCHING)
    second.error = ZKConnectionError("away again")
    with pytest.raises(ZKConnectionError):
        place.handlers.release_all()
    assert place.locked() == [second.request.key]
    second.error = None
    place.handlers.release_all()
    assert place.desk.counts() == {}
    assert [handler.progress.stage for handler in (first, second)] == [Stage.DONE, Stage.DONE]


def test_end_of_the_launcher(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """G-14: a driver's error keeps no other request."""
    bad, good = place.add(1), place.add(2)
    bad.error = RuntimeError("no way")
    place.handlers.hand_over()
    assert "is left as it is" in caplog.text
    assert good.called == ["hand_over"]


def test_ended_by_the_end_of_the_launcher(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-14, TR-4: a request that is fulfilled then is told of as all others are."""
    noted: list[str] = []
    monkeypatch.setattr("nodepool.launcher.pool.desk.note", lambda request: noted.append(request.key))
    fulfilled, given_back = place.add(1, Stage.LAUNCHING), place.add(2)
    fulfilled.to, given_back.to = Stage.DONE, Stage.DEFERRED
    given_back.request.state = states.REQUESTED
    place.handlers.hand_over()
    assert noted == [fulfilled.request.key, given_back.request.key]
    assert place.locked() == []
