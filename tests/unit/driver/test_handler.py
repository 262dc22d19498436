# SPDX-License-Identifier: Apache-2.0
"""The life of one request in its handler (rules A, L, N, Q; reference/driver 3)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.component import PoolComponent
from nodepool.model.node import Node
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan.request_stage import ImpossibleMove, Progress
from nodepool.plan.request_stage import Stage as RequestStage
from nodepool.plan.triage import PoolInfo
from tests.support.scripted_driver import ScriptedHandler, Stage


def test_fulfilled(stage: Stage) -> None:
    """L-12, N-8: when all nodes are ready: fulfilled, every lock free, nodes still allocated."""
    handler = stage.begin("big", "small")
    assert not handler.poll()
    handler.end(1, states.READY)
    assert not handler.poll()
    handler.end(0, states.READY)
    assert handler.poll()
    assert handler.done
    request = stage.request(handler)
    assert request.state == states.FULFILLED
    assert request.nodes == [node.id for node in handler.launched]
    assert stage.nodes() == [(states.READY, request.id, False)] * 2
    assert not stage.zk.requests.table.is_locked(request.key)
    assert handler.poll(), "still finished"


def test_own_poll(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/driver 3: a driver may have a `poll` of its own; the pool begins that."""
    calls = []

    class Watching(ScriptedHandler):
        def poll(self) -> bool:
            calls.append(super().poll())
            return calls[-1]

    handler = stage.begin("small")
    handler.__class__ = Watching
    assert handler.begin_poll() is None
    handler.end(0, states.READY)
    assert handler.begin_poll() is None
    assert calls == [False, True]
    assert handler.done


def test_failed_launch(stage: Stage) -> None:
    """L-6, A-14, A-15: declined once, nodes unlocked, failed because nobody else is there."""
    handler = stage.begin("small", "small")
    handler.end(0, states.FAILED)
    assert not handler.poll(), "the other launch still runs"
    handler.end(1, states.READY)
    assert handler.poll()
    request = stage.request(handler)
    assert (request.state, request.declined_by) == (states.FAILED, [stage.launcher_id])
    assert stage.nodes() == [(states.FAILED, None, False), (states.READY, None, False)]


def test_lines_of_a_request_that_fails(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J-3: the cause, whose request it is, and what other pools said."""
    caplog.set_level("INFO")
    said = {"lab/main": Reason(ReasonCode.LABEL_UNKNOWN, "label(s) small not available in this pool")}
    monkeypatch.setattr(stage, "declines_of_others", lambda request_id: said)
    handler = stage.begin("small")
    handler.request.requestor_data = {"job_name": "unit"}
    handler.end(0, states.FAILED)
    handler.pw.launch_ended(handler.nodeset[0], "error.status", "no flavor")
    assert handler.poll()
    place = f"{handler.provider.name}/{handler.pool.name}"
    cause = f"node {handler.nodeset[0].id} failed to launch: no flavor"
    lines = [record for record in caplog.records if "ing node request" in record.getMessage()]
    assert [record.getMessage().split("] ")[-1] for record in lines] == [
        f"Declining node request: {cause} (small; job unit)",
        f"Failing node request: every pool declined it: {place}: {cause} (small; job unit)",
    ]
    assert {vars(record)["code"] for record in lines} == {"launch.failed"}
    assert {(vars(record)["provider"], vars(record)["pool"]) for record in lines} == {tuple(place.split("/"))}


def test_other_pools_may_still_serve(stage: Stage) -> None:
    """A-15"""
    other = PoolComponent("localhost", "test")
    other.id = "other"
    stage.zk.pools.append(other)
    handler = stage.begin("small")
    handler.end(0, states.FAILED)
    assert handler.poll()
    assert stage.request(handler).state == states.REQUESTED


def test_pools_that_may_come_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-15: a launch fails while the launcher that could do better is being restarted."""
    away = PoolInfo("away", "two", frozenset({"small"}), 100, paused=False)
    monkeypatch.setattr(stage, "absent_pools", lambda: [away])
    handler = stage.begin("small")
    handler.end(0, states.FAILED)
    assert handler.poll()
    request = stage.request(handler)
    assert (request.state, request.declined_by) == (states.REQUESTED, [stage.launcher_id])


def test_failure_wins(stage: Stage) -> None:
    """L-8"""
    handler = stage.begin("small", "small")
    handler.end(0, states.ABORTED)
    handler.end(1, states.FAILED)
    assert handler.poll()
    assert stage.request(handler).state == states.FAILED


def test_cancelled_while_launching(stage: Stage) -> None:
    """L-11: when the launches are complete ready nodes go to the pool."""
    handler = stage.begin("small")
    stage.zk.deleteNodeRequest(handler.request)
    assert not handler.poll()
    handler.end(0, states.READY)
    assert handler.poll()
    assert stage.nodes() == [(states.READY, None, False)]


def test_error_while_serving(stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A-16: declined; nodes that are launched already go when that is over."""
    answers = iter([True])
    monkeypatch.setattr(ScriptedHandler, "hasRemainingQuota", lambda handler, label: next(answers))
    handler = stage.begin("small", "small")
    assert "Declining the request because of an error" in caplog.text
    assert not handler.done
    assert stage.nodes() == [(states.BUILDING, handler.request.id, True)]
    assert not handler.unfinished
    handler.end(0, states.READY)
    assert handler.poll()
    request = stage.request(handler)
    assert (request.state, request.declined_by) == (states.FAILED, [stage.launcher_id])
    assert stage.nodes() == [(states.READY, None, False)]


def test_connection_lost_while_gathering(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-8, A-19: a set that is not complete is not fulfilled; `run` goes on where it was."""
    lock_and_save, troubles = stage.zk.nodes.lock_and_save, [True, False]

    def shaky(node: Any, identifier: str = "", under: Any = None) -> None:
        if troubles.pop() if troubles else False:
            raise ZKConnectionError("away for a moment")
        lock_and_save(node)

    monkeypatch.setattr(stage.zk.nodes, "lock_and_save", shaky)
    with pytest.raises(ZKConnectionError):
        stage.begin("small", "small")
    handler = stage.handler
    handler.end(0, states.READY)
    assert handler.unfinished
    assert not handler.poll()
    assert stage.request(handler).state == states.PENDING
    handler.run()
    handler.end(1, states.READY)
    assert handler.poll()
    assert len(set(stage.request(handler).nodes)) == 2


def test_node_taken_from_us_before_its_launch(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-16 is not for this: the request goes back to `requested` at once, not a minute later."""

    def conflict(node: Any, identifier: str = "", under: Any = None) -> None:
        raise ZKConflict("it is gone")

    monkeypatch.setattr(stage.zk.nodes, "lock_and_save", conflict)
    handler = stage.begin("small")
    assert handler.done
    request = stage.request(handler)
    assert (request.state, request.declined_by) == (states.REQUESTED, [])


def test_node_deleted_before_it_is_handed_out(stage: Stage) -> None:
    """A node znode deleted under us: the request is given back, the other nodes are free."""
    handler = stage.begin("small", "small")
    for number in range(2):
        handler.end(number, states.READY)
    stage.zk.deleteRawNode(handler.launched[0].key)
    assert handler.poll()
    request = stage.request(handler)
    assert (request.state, request.nodes) == (states.REQUESTED, [])
    assert stage.nodes() == [(states.READY, None, False)]


def test_node_that_cannot_be_stored(stage: Stage) -> None:
    """Bad data of a driver wedges neither the request nor the locks."""
    handler = stage.begin("small", "small")
    handler.end(1, states.READY)
    handler.launched[0].driver_data = object()
    handler.end(0, states.FAILED, stored=False)
    assert handler.poll()
    assert stage.request(handler).state == states.FAILED
    assert stage.nodes() == [(states.BUILDING, handler.request.id, False), (states.READY, None, False)]


def test_give_back_when_launched(stage: Stage) -> None:
    """G-6: a request of a pool that goes waits for its launches, then for another pool."""
    handler = stage.begin("small")
    handler.give_back_when_launched()
    assert not handler.done
    handler.end(0, states.READY)
    assert handler.poll()
    assert stage.request(handler).state == states.REQUESTED
    assert stage.nodes() == [(states.READY, None, False)]


def test_unlock_logs_and_goes_on(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """reference/driver 3: errors are logged, not raised."""
    handler = stage.begin("small", "small")
    stage.zk.deleteRawNode(handler.launched[0].key)
    handler.unlockNodeSet(clear_allocation=True)
    assert stage.nodes() == [(states.BUILDING, None, False)]
    assert "is gone" in caplog.text


def test_no_place_for_the_tenant(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-8, Q-15: others were faster; what is there is freed for them, when its launch has ended, and counts no more."""
    places = iter([True, False])
    monkeypatch.setattr(stage, "tenant_has_place", lambda node, *, reused=False: next(places))
    handler = stage.begin("small", "small", tenant_name="poor")
    assert len(handler.launched) == 1
    assert [state for state, _, _ in stage.nodes()] == [states.BUILDING], "the second one is gone"
    assert not handler.poll(), "the launch still runs"
    handler.end(0, states.READY)
    assert handler.poll()
    assert stage.request(handler).state == states.REQUESTED
    assert stage.nodes() == [(states.READY, None, False)]
    (node,) = stage.zk.nodeIterator()
    assert node.tenant_name is None


def test_stages(stage: Stage) -> None:
    """One request from its lock to its end: each flag of reference/driver 3 follows from the stage."""
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    assert (handler.progress.stage, handler.paused, handler.launching) == (RequestStage.PAUSED, True, False)
    stage.provider.room = 2
    handler.run()
    seen: list[RequestStage] = [handler.progress.stage]
    for number in range(2):
        handler.end(number, states.READY)
    assert handler.poll()
    seen.append(handler.progress.stage)
    assert seen == [RequestStage.LAUNCHING, RequestStage.DONE]


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
    """reference/driver 3: handlers of drivers written for 11.0.0 set `paused` and `done`."""
    handler = stage.begin("small")
    handler.progress = Progress(handler.request.key, 0.0)
    handler.progress.stage = where
    for name, value in flag.items():
        setattr(handler, name, value)
    assert handler.progress.stage is after


def test_request_that_ended_is_not_begun_again(stage: Stage) -> None:
    handler = stage.begin("small")
    handler.end(0, states.READY)
    assert handler.poll()
    with pytest.raises(ImpossibleMove, match="cannot go from done to gathering"):
        handler.done = False


def test_nodeset_can_be_assigned(stage: Stage) -> None:
    """Drivers written for 11.0.0 do so; what is missing then is gathered."""
    handler = stage.begin("small", "large")
    node = Node("small", id="7")
    handler.nodeset = [node]
    assert handler.nodeset == [node]
    assert handler.node_set.next_label() == "large"
    handler.nodeset = []
    assert handler.node_set.next_label() == "small"
