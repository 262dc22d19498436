# SPDX-License-Identifier: Apache-2.0
"""The life of one request in its handler (behaviour.md A, L, N, Q; driver-api.md 3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver import handler as handler_module
from nodepool.driver.handler import FIRST_ABORT_SECONDS, LAST_ABORT_SECONDS
from nodepool.exceptions import QuotaException, ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.component import PoolComponent
from nodepool.plan import standoff
from nodepool.plan.assignment import PoolInfo
from nodepool.plan.queue import MIN_READY_REQUESTOR
from tests.support.scripted_driver import ScriptedHandler, ScriptedProvider, Stage


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr(handler_module, "time", SimpleNamespace(monotonic=lambda: time[0]))
    return time


@pytest.fixture
def stage() -> Stage:
    return Stage()


def paused(handler: ScriptedHandler) -> bool:
    # A call, because mypy does not know that `run` changes the attribute.
    return handler.paused


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
    assert not stage.zk.requests.table.is_locked(request.id or "")
    assert handler.poll(), "still finished"


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


def test_aborted_launch(stage: Stage, now: list[float]) -> None:
    """L-7: not declined; the node goes, another one is launched later, with growing pauses."""
    handler = stage.begin("small")
    for attempt in range(8):
        handler.end(attempt, states.ABORTED)
        assert not handler.poll()
        assert paused(handler)
        assert handler.unfinished
        assert stage.nodes()[attempt] == (states.ABORTED, handler.request.id, False)
        handler.run()
        assert len(handler.launched) == attempt + 1, "not at once"
        now[0] += min(LAST_ABORT_SECONDS, FIRST_ABORT_SECONDS * 2**attempt)
        handler.run()
        assert len(handler.launched) == attempt + 2
        assert not paused(handler)
    handler.end(8, states.READY)
    assert handler.poll()
    assert stage.request(handler).declined_by == []


def test_quota_error_at_once(stage: Stage) -> None:
    """L-7: also when launch() itself raises it."""
    stage.provider.launch_error = QuotaException("full")
    handler = stage.begin("small")
    assert not handler.poll()
    assert paused(handler)
    assert [state for state, _, _ in stage.nodes()] == [states.ABORTED]


def test_no_room(stage: Stage) -> None:
    """Q-8, Q-10, N-9: paused, with relief; what is gathered stays, and the rest follows."""
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    assert paused(handler)
    assert stage.relieved == 1
    assert stage.request(handler).state == states.PENDING
    handler.end(0, states.READY)
    assert not handler.poll()
    handler.run()
    assert paused(handler)
    stage.provider.room = 2
    handler.run()
    assert not paused(handler)
    handler.end(1, states.READY)
    assert handler.poll()
    assert len(stage.zk.getNodes()) == 2


def test_in_the_way_of_another_request(stage: Stage, now: list[float]) -> None:
    """Q-10, Q-12: each waits for what the other holds; the later one is given back."""
    first = stage.submit("big", "big")
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    handler.end(0, states.READY)
    assert not handler.poll()
    stage.add_ready("big", allocated_to=first.id)
    first.state = states.PENDING
    stage.zk.requests.lock_and_save(first)
    handler.run()
    assert paused(handler), "the other one may have room in a moment"
    now[0] += standoff.PATIENCE_SECONDS
    handler.run()
    assert handler.done
    assert stage.request(handler).state == states.REQUESTED
    assert stage.nodes()[0] == (states.READY, None, False)


def test_the_look_for_requests_in_the_way(stage: Stage, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-10: it goes through all nodes, and passes are many: once in a while is enough."""
    looks: list[float] = []
    monkeypatch.setattr(standoff, "stands_before", lambda *_: looks.append(now[0]))
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    handler.end(0, states.READY)
    begun = now[0]
    for _ in range(50):
        handler.run()
        now[0] += 1
    assert looks == [begun, *(begun + standoff.PATIENCE_SECONDS * turn for turn in (1, 2, 3, 4))]


def test_no_room_for_min_ready(stage: Stage) -> None:
    """Q-7, M-7: declined, without a pause and without relief."""
    stage.provider.room = 0
    handler = stage.begin("small", requestor=MIN_READY_REQUESTOR)
    assert handler.done
    assert stage.relieved == 0
    assert stage.request(handler).state == states.FAILED


def test_no_room_and_no_pause() -> None:
    """Q-12: a driver that does not pause gives the request back at once, as it was."""

    class Static(ScriptedProvider):
        PAUSE_AT_QUOTA = False

    stage = Stage(Static)
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    assert not paused(handler)
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
    assert paused(handler)
    stage.provider.limit = 1
    handler.run()
    assert not paused(handler)
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
    assert paused(handler)
    assert stage.nodes() == [(states.ABORTED, handler.request.id, False)]
    stage.provider.room = 3
    handler.run()
    assert len(handler.launched) == 3


def test_cancelled_while_launching(stage: Stage) -> None:
    """L-11: when the launches are complete ready nodes go to the pool."""
    handler = stage.begin("small")
    stage.zk.deleteNodeRequest(handler.request)
    assert not handler.poll()
    handler.end(0, states.READY)
    assert handler.poll()
    assert stage.nodes() == [(states.READY, None, False)]


@pytest.mark.parametrize("launched", [False, True])
def test_cancelled_while_paused(stage: Stage, launched: bool) -> None:
    """Q-13: dropped at the next run; a node that is launched just now is not let go before it is known."""
    stage.provider.room = 1 if launched else 0
    handler = stage.begin("small", "small")
    stage.zk.deleteNodeRequest(handler.request)
    handler.run()
    assert not paused(handler)
    assert handler.done is not launched
    if launched:
        assert stage.nodes() == [(states.BUILDING, handler.request.id, True)]
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

    def shaky(node: Any, identifier: str = "") -> None:
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

    def conflict(node: Any, identifier: str = "") -> None:
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
    stage.zk.deleteRawNode(handler.launched[0].id or "")
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


def test_provider_was_replaced(stage: Stage) -> None:
    """G-5: what a stopped provider refuses to launch is no failed launch."""
    stage.provider.launch_error = RuntimeError("was stopped")
    stage.replaced = True
    handler = stage.begin("small")
    assert not handler.poll()
    assert paused(handler)
    assert [state for state, _, _ in stage.nodes()] == [states.ABORTED]


def test_give_back_when_launched(stage: Stage) -> None:
    """G-6: a request of a pool that goes waits for its launches, then for another pool."""
    handler = stage.begin("small")
    handler.give_back_when_launched()
    assert not handler.done
    handler.end(0, states.READY)
    assert handler.poll()
    assert stage.request(handler).state == states.REQUESTED
    assert stage.nodes() == [(states.READY, None, False)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"images": False, "limit": 0}, "images are not available"),
        ({"limit": 0}, "it would exceed quota"),
        ({"broken": ["small"], "images": False}, "node type(s) [small] not available"),
    ],
)
def test_decline_reasons(stage: Stage, change: dict[str, Any], reason: str) -> None:
    """A-13, Q-14: the first that matches."""
    vars(stage.provider).update(change)
    handler = stage.begin("small")
    assert handler.decline_reasons == [reason]
    assert stage.request(handler).state == states.FAILED
    assert stage.nodes() == []


def test_disabled_pool() -> None:
    """A-13, A-21: before everything else."""
    stage = Stage(pool={"max-servers": 0})
    stage.provider.broken = ["small"]
    assert stage.begin("small").decline_reasons == ["pool is disabled by max_servers"]


def test_unknown_label(stage: Stage) -> None:
    """A-13"""
    handler = stage.begin("small", "unknown", "other")
    assert handler.decline_reasons == ["node type(s) [other, unknown] not available"]


def test_unlock_logs_and_goes_on(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """driver-api.md 3: errors are logged, not raised."""
    handler = stage.begin("small", "small")
    stage.zk.deleteRawNode(handler.launched[0].id or "")
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
