# SPDX-License-Identifier: Apache-2.0
"""A request that waits in its handler for room, or for its next launch (rules L, N, Q)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver import handler as driver_handler
from nodepool.driver import handler as handler_module
from nodepool.driver.handler import ABORT
from nodepool.exceptions import QuotaException, ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.reasons import NO_ROOM, quota_used_up
from nodepool.model.request import NodeRequest
from nodepool.plan import nodes
from nodepool.plan.queue import MIN_READY_REQUESTOR
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.support.scripted_driver import ScriptedHandler, ScriptedProvider, Stage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return monotonic_clock(monkeypatch, handler_module, driver_handler)


def test_aborted_launch(stage: Stage, clock: ManualClock) -> None:
    """L-7: not declined; the node goes, another one is launched later, with growing pauses."""
    handler = stage.begin("small")
    for attempt in range(8):
        handler.end(attempt, states.ABORTED)
        assert not handler.poll()
        assert handler.is_paused()
        assert handler.unfinished
        assert stage.nodes()[attempt] == (states.ABORTED, handler.request.id, False)
        handler.run()
        assert len(handler.launched) == attempt + 1, "not at once"
        clock.pass_seconds(ABORT.pause(attempt + 1))
        handler.run()
        assert len(handler.launched) == attempt + 2
        assert not handler.is_paused()
    handler.end(8, states.READY)
    assert handler.poll()
    assert stage.request(handler).declined_by == []


def test_aborted_node_is_taken_meanwhile(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-7, L-9: a launcher that was frozen may hear of its aborted launch before it hears that its session is over."""

    def taken(_handler: Any, node: Node) -> None:
        raise ZKConflict(f"the lock of node {node.id} is lost")

    monkeypatch.setattr(ScriptedHandler, "let_go_of_aborted", taken)
    handler = stage.begin("small")
    handler.end(0, states.ABORTED)
    assert not handler.poll()
    assert handler.is_paused()
    assert handler.nodeset == []


def test_connection_is_lost_while_an_aborted_node_goes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-7: the request is not fulfilled without it, and its lock is given back as soon as that is possible."""

    def lost(_handler: Any, _node: Node) -> None:
        raise ZKConnectionError("connection loss")

    handler = stage.begin("small", "small")
    handler.end(0, states.READY)
    handler.end(1, states.ABORTED)
    with monkeypatch.context() as patch:
        patch.setattr(ScriptedHandler, "let_go_of_aborted", lost)
        with pytest.raises(ZKConnectionError):
            handler.poll()
    assert not handler.poll()
    assert stage.request(handler).state == states.PENDING
    handler.run()
    assert not handler.poll()
    assert stage.request(handler).state == states.PENDING
    assert stage.nodes()[1] == (states.ABORTED, handler.request.id, False)


def test_quota_error_at_once(stage: Stage) -> None:
    """L-7: also when launch() itself raises it."""
    stage.provider.launch_error = QuotaException("full")
    handler = stage.begin("small")
    assert not handler.poll()
    assert handler.is_paused()
    assert [state for state, _, _ in stage.nodes()] == [states.ABORTED]


def test_provider_was_replaced(stage: Stage) -> None:
    """G-5: what a stopped provider refuses to launch is no failed launch."""
    stage.provider.launch_error = RuntimeError("was stopped")
    stage.replaced = True
    handler = stage.begin("small")
    assert not handler.poll()
    assert handler.is_paused()
    assert [state for state, _, _ in stage.nodes()] == [states.ABORTED]


def test_what_is_missing_changes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """E-2: counted anew in each pass, as long as the request waits; the wait began when it began."""
    told = [quota_used_up("pool main", "instances", limit=4, used=used, needed=1) for used in (4, 5)]
    answers = iter(told)
    monkeypatch.setattr(ScriptedHandler, "why_no_room", lambda *_: next(answers))
    stage.provider.room = 0
    handler = stage.begin("small")
    seen = [handler.progress.reason]
    since = handler.progress.since
    handler.run()
    seen.append(handler.progress.reason)
    assert (seen, handler.progress.since) == (told, since)


def test_what_is_missing_cannot_be_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-16: a driver that raises when it is asked what is used up costs the explanation, not the request."""

    def fail(*_: Any) -> Any:
        raise RuntimeError("the cloud is away")

    monkeypatch.setattr(ScriptedHandler, "why_no_room", fail)
    stage.provider.room = 0
    handler = stage.begin("small")
    assert (handler.is_paused(), handler.progress.reason) == (True, NO_ROOM)
    assert stage.request(handler).declined_by == []


def test_no_room(stage: Stage) -> None:
    """Q-8, Q-10, N-9: paused, with an eviction; what is gathered stays, and the rest follows."""
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    assert handler.is_paused()
    assert stage.evictions == 1
    assert stage.request(handler).state == states.PENDING
    handler.end(0, states.READY)
    assert not handler.poll()
    handler.run()
    assert handler.is_paused()
    stage.provider.room = 2
    handler.run()
    assert not handler.is_paused()
    handler.end(1, states.READY)
    assert handler.poll()
    assert len(stage.zk.getNodes()) == 2


def test_in_the_way_of_another_request(stage: Stage, clock: ManualClock) -> None:
    """Q-10, Q-12: each waits for what the other holds; the later one is given back, and makes room."""
    first = stage.submit("big", "big")
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    handler.end(0, states.READY)
    assert not handler.poll()
    stage.add_ready("big", allocated_to=first.id)
    first.state = states.PENDING
    stage.zk.requests.lock_and_save(first)
    handler.run()
    assert handler.is_paused(), "the other one may have room in a moment"
    clock.pass_seconds(nodes.PATIENCE_SECONDS)
    handler.run()
    assert handler.done
    assert stage.request(handler).state == states.REQUESTED
    assert stage.nodes()[0] == (states.DELETING, None, False), "the first one wants another label"


def test_the_look_for_requests_in_the_way(stage: Stage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-10: it goes through all nodes, and passes are many: once in a while is enough."""
    looks: list[float] = []
    monkeypatch.setattr(nodes, "stands_before", lambda *_: looks.append(clock.now))
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    handler.end(0, states.READY)
    begun = clock.now
    for _ in range(50):
        handler.run()
        clock.pass_seconds(1)
    assert looks == [begun, *(begun + nodes.PATIENCE_SECONDS * turn for turn in (1, 2, 3, 4))]


def test_no_room_for_min_ready(stage: Stage) -> None:
    """Q-7, M-7: given back, without a pause and without an eviction, if the room was used up meanwhile."""
    stage.provider.room = 0
    handler = stage.begin("small", requestor=MIN_READY_REQUESTOR)
    assert handler.done
    assert stage.evictions == 0
    request = stage.request(handler)
    assert (request.state, request.declined_by) == (states.REQUESTED, [])


def test_no_room_and_no_pause() -> None:
    """Q-12: a driver that does not pause gives the request back at once, as it was."""

    class Static(ScriptedProvider):
        PAUSE_AT_QUOTA = False

    stage = Stage(Static)
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    assert not handler.is_paused()
    assert not handler.done, "a launch still runs"
    handler.end(0, states.READY)
    assert handler.poll()
    request = stage.request(handler)
    assert (request.state, request.nodes, request.declined_by) == (states.REQUESTED, [], [])
    assert stage.nodes() == [(states.READY, None, False)]


@pytest.mark.parametrize("launched", [False, True])
def test_can_never_fit_any_more(stage: Stage, launched: bool) -> None:
    """Q-11: a paused request is declined when a reload made it impossible; nodes go when their launch is over."""
    stage.provider.room = 1 if launched else 0
    handler = stage.begin("small", "small")
    assert handler.is_paused()
    stage.provider.limit = 1
    handler.run()
    assert not handler.is_paused()
    if launched:
        assert stage.nodes() == [(states.BUILDING, handler.request.id, True)]
        assert not handler.poll()
        handler.end(0, states.READY)
        assert handler.poll()
        assert stage.nodes() == [(states.READY, None, False)]
    assert stage.request(handler).state == states.FAILED


def test_launch_failed_while_waiting_for_room(stage: Stage) -> None:
    """L-6: nobody waits for room for the rest of a set that is lost already."""
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    handler.end(0, states.FAILED)
    handler.run()
    assert handler.done
    assert stage.request(handler).state == states.FAILED
    assert len(handler.launched) == 1


def test_launch_aborted_while_waiting_for_room(stage: Stage) -> None:
    """L-7: the aborted one does not use up the room that it waits for."""
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    handler.end(0, states.ABORTED)
    handler.run()
    assert handler.is_paused()
    assert stage.nodes() == [(states.ABORTED, handler.request.id, False)]
    stage.provider.room = 3
    handler.run()
    assert len(handler.launched) == 3


@pytest.mark.parametrize("launched", [False, True])
def test_cancelled_while_paused(stage: Stage, launched: bool) -> None:
    """Q-13: dropped at the next run; a node that is launched just now is not let go before it is known."""
    stage.provider.room = 1 if launched else 0
    handler = stage.begin("small", "small")
    stage.zk.deleteNodeRequest(handler.request)
    handler.run()
    assert not handler.is_paused()
    assert handler.done is not launched
    if launched:
        assert stage.nodes() == [(states.BUILDING, handler.request.id, True)]
        handler.end(0, states.READY)
        assert handler.poll()
        assert stage.nodes() == [(states.READY, None, False)]


def test_decline_is_not_stored_and_its_reason_goes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-15, A-16: the last decline fails a request. The connection was lost over it, and now the pool can serve it."""

    def lost(request: NodeRequest, *_args: Any, **_options: Any) -> None:
        request.to_dict(1.0)
        raise ZKConnectionError("connection loss")

    stage.provider.room = 0
    handler = stage.begin("small")
    with monkeypatch.context() as patch:
        patch.setattr(ScriptedHandler, "getDeclinedReasons", lambda _handler: ["no image"])
        patch.setattr(stage.zk.requests, "finish", lost)
        with pytest.raises(ZKConnectionError):
            handler.run()
    assert handler.request.state == states.FAILED
    stage.provider.room = 1
    handler.run()
    handler.end(0, states.READY)
    assert handler.poll()
    assert stage.request(handler).state == states.FULFILLED
