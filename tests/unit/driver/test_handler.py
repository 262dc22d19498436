# SPDX-License-Identifier: Apache-2.0
"""The life of one request in its handler, also while it waits for room (rules A, L, N, Q; reference/driver 3)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from nodepool.driver.framework.handler_hooks import DeadlockAvoidance
from nodepool.driver.handler import NodeRequestHandler
from nodepool.exceptions import QuotaException, ZKConflict
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.reasons import NO_ROOM, quota_used_up
from nodepool.model.status import PoolComponent
from nodepool.plan.launch import PATIENCE_SECONDS
from nodepool.plan.triage import PoolInfo, Progress
from nodepool.plan.triage import Stage as RequestStage
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.support.scripted_driver import ScriptedHandler, Stage

FREE = [(states.READY, None, False)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    modules = [sys.modules[owner.__module__] for owner in (NodeRequestHandler, DeadlockAvoidance)]
    return monotonic_clock(monkeypatch, *modules)


def raises(error: Exception) -> Any:
    def method(*_: Any, **__: Any) -> Any:
        raise error

    return method


def ended(stage: Stage, handler: ScriptedHandler) -> tuple[str | None, list[str]]:
    """State of the request, and who declined it."""
    request = stage.request(handler)
    return request.state, request.declined_by


@pytest.mark.parametrize(
    ("other", "state"), [("none", states.FAILED), *((o, states.REQUESTED) for o in ("here", "away"))]
)
def test_failed_launch(stage: Stage, monkeypatch: pytest.MonkeyPatch, other: str, state: str) -> None:
    """L-6, L-8, A-14, A-15: a failure wins; declined once, failed unless another pool is there, or may come."""
    if other == "here":
        stage.zk.pools.append(PoolComponent("localhost", "test"))
        stage.zk.pools[-1].id = "other"
    elif other == "away":
        away = PoolInfo("away", "two", frozenset({"small"}), 100, paused=False)
        monkeypatch.setattr(stage, "absent_pools", lambda: [away])
    handler = stage.begin("small", "small", "small")
    handler.end(0, states.FAILED)
    handler.end(1, states.ABORTED)
    assert not handler.poll(), "the other launch still runs"
    handler.end(2, states.READY)
    assert handler.poll()
    assert ended(stage, handler) == (state, [stage.launcher_id])
    assert [found for found in stage.nodes() if found[0] != states.ABORTED] == [(states.FAILED, None, False), *FREE]


def test_nodes_that_are_taken_from_us(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-16 is not for this: before a launch, or at the end: the request is `requested` at once, other nodes are free.

    Data of a driver that cannot be stored fail it, and keep no lock.
    """
    with monkeypatch.context() as patch:
        patch.setattr(stage.zk.nodes, "lock_and_save", raises(ZKConflict("it is gone")))
        handler = stage.begin("small")
    assert (handler.done, ended(stage, handler)) == (True, (states.REQUESTED, []))
    handler = stage.begin("small", "small")
    for number in range(2):
        handler.end(number, states.READY)
    stage.zk.deleteRawNode(handler.launched[0].key)
    assert handler.poll()
    assert (ended(stage, handler), stage.request(handler).nodes) == ((states.REQUESTED, []), [])
    assert stage.nodes()[1:] == FREE
    handler = stage.begin("big", "big")
    handler.end(1, states.READY)
    handler.launched[0].driver_data = object()
    handler.end(0, states.FAILED, stored=False)
    assert handler.poll()
    assert stage.request(handler).state == states.FAILED
    assert stage.nodes()[2:] == [(states.BUILDING, handler.request.id, False), *FREE]


@pytest.mark.parametrize(
    ("where", "flag", "after"),
    [
        (RequestStage.GATHERING, {"paused": True}, RequestStage.PAUSED),
        (RequestStage.LAUNCHING, {"paused": True}, RequestStage.PAUSED),
        (RequestStage.ENDING, {"paused": True}, RequestStage.ENDING),
        (RequestStage.DONE, {"paused": True}, RequestStage.DONE),
        (RequestStage.PAUSED, {"paused": False}, RequestStage.GATHERING),
        (RequestStage.WAITING, {"paused": False, "done": False}, RequestStage.WAITING),
        (RequestStage.GATHERING, {"done": True}, RequestStage.DONE),
        (RequestStage.DEFERRED, {"done": True}, RequestStage.DEFERRED),
    ],
)
def test_flags_that_a_driver_sets(
    stage: Stage, where: RequestStage, flag: dict[str, bool], after: RequestStage
) -> None:
    """reference/driver 3: handlers of drivers written for 11.0.0 set `paused` and `done`, and assign `nodeset`."""
    handler = stage.begin("small", "large")
    handler.progress = Progress(handler.request.key, 0.0)
    handler.progress.stage = where
    for name, value in flag.items():
        setattr(handler, name, value)
    assert handler.progress.stage is after
    handler.nodeset = [node := Node("small", id="7")]
    assert (handler.nodeset, handler.node_set.next_label()) == ([node], "large")


# -- launches that are aborted


@pytest.mark.parametrize(("error", "replaced"), [(QuotaException("full"), False), (RuntimeError("was stopped"), True)])
def test_launch_that_is_refused_at_once(stage: Stage, error: Exception, replaced: bool) -> None:
    """L-7: a quota error. G-5: what a provider that was replaced refuses is no failed launch."""
    stage.provider.launch_error, stage.replaced = error, replaced
    handler = stage.begin("small")
    assert (handler.poll(), handler.is_paused()) == (False, True)
    assert [state for state, _, _ in stage.nodes()] == [states.ABORTED]


def test_pauses_after_aborted_launches(stage: Stage, clock: ManualClock) -> None:
    """L-7: not declined; another launch follows, after a pause that grows."""
    handler = stage.begin("small")
    for number, pause in enumerate((1.0, 2.0, 4.0), 1):
        handler.end(number - 1, states.ABORTED)
        assert not handler.poll()
        for seconds, launches in ((pause - 0.1, number), (0.1, number + 1)):
            clock.pass_seconds(seconds)
            handler.run()
            assert len(handler.launched) == launches
    handler.end(3, states.READY)
    assert handler.poll()
    assert ended(stage, handler) == (states.FULFILLED, [])


# -- room


def test_no_room(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-8, Q-10, N-9: paused, with an eviction; what is gathered stays, and the rest follows.

    E-2: what is missing is counted anew in each pass. A-16: if it cannot be told that costs no request.
    """
    found = [quota_used_up("pool main", "instances", limit=4, used=used, needed=1) for used in (4, 5)]
    answers = iter(found)
    monkeypatch.setattr(ScriptedHandler, "why_no_room", lambda *_: next(answers))
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    assert (handler.progress.stage, handler.paused, handler.launching) == (RequestStage.PAUSED, True, False)
    assert (stage.evictions, stage.request(handler).state) == (1, states.PENDING)
    seen, since = [handler.progress.reason], handler.progress.since
    handler.end(0, states.READY)
    assert not handler.poll()
    handler.run()
    assert ([*seen, handler.progress.reason], handler.progress.since) == (found, since)
    monkeypatch.setattr(ScriptedHandler, "why_no_room", raises(RuntimeError("the cloud is away")))
    handler.run()
    assert (handler.is_paused(), handler.progress.reason, ended(stage, handler)[1]) == (True, NO_ROOM, [])
    stage.provider.room = 2
    handler.run()
    assert handler.progress.stage is RequestStage.LAUNCHING
    handler.end(1, states.READY)
    assert handler.poll()
    assert len(stage.zk.getNodes()) == 2


@pytest.mark.parametrize("launched", [False, True])
def test_request_that_is_cancelled(stage: Stage, launched: bool) -> None:
    """L-11: while it waits for room, or at the end of its last launch; its node is free."""
    stage.provider.room = 1
    handler = stage.begin(*["small"] * (1 if launched else 2))
    if not launched:
        handler.end(0, states.READY)
        assert (handler.poll(), handler.is_paused()) == (False, True)
    stage.zk.deleteNodeRequest(handler.request)
    if launched:
        handler.end(0, states.READY)
        handler.poll()
    else:
        handler.run()
    assert (handler.done, stage.nodes()) == (True, FREE)


def test_in_the_way_of_another_request(stage: Stage, clock: ManualClock) -> None:
    """Q-10, Q-12: each waits for what the other holds; the later one is given back, and makes room."""
    first = stage.submit("big", "big")
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    handler.end(0, states.READY)
    assert not handler.poll()
    stage.add_ready("big", allocated_to=first.id)
    first.state = states.PENDING
    stage.zk.requests.send_lock(first)()
    handler.run()
    assert handler.is_paused(), "the other one may have room in a moment"
    clock.pass_seconds(PATIENCE_SECONDS)
    handler.run()
    assert (handler.done, ended(stage, handler)) == (True, (states.REQUESTED, []))
    assert stage.nodes()[0] == (states.DELETING, None, False), "the first one wants another label"
