# SPDX-License-Identifier: Apache-2.0
"""Requests are locked together, without ZooKeeper (rules A-11, A-12)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NodeExistsError

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException
from nodepool.launcher.pool.desk import Desk
from nodepool.launcher.pool.intake import Batch
from nodepool.model import reasons, states
from nodepool.model.reasons import Reason
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import Bucket, RequestQueue
from nodepool.plan.request_stage import Progress, Stage
from nodepool.zk.transactions import TransactionFailed


class Place:
    """A pool with requests ``100-1`` to ``100-5`` in its queue, and what happens with them."""

    def __init__(self) -> None:
        self.queue = RequestQueue()
        self.desk = Desk(self.queue)
        self.requests: dict[str, NodeRequest] = {}
        self.room = 5.0
        self.objection: Reason | None = None
        self.of_others: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.send_error: Exception | None = None
        self.ran: list[str] = []
        self.changed: list[str] = []
        self.failed: list[str] = []
        self.with_node: list[str] = []
        self.taken = 0
        for number in range(1, 6):
            request = NodeRequest(f"100-{number}")
            request.node_types, request.state = ["small"], states.REQUESTED
            self.requests[request.key] = request
            self.queue.put(request)
        turns = SimpleNamespace(
            of_others=lambda kind, request: ["other"] if request.key in self.of_others else [],
            pass_over=lambda request, others: None,
        )
        pool = SimpleNamespace(
            open_request=self.requests.get, zk=SimpleNamespace(requests=SimpleNamespace(send_lock=self._send))
        )
        room = SimpleNamespace(ahead=lambda kind, handler: self.room, taken=self._count)
        view = SimpleNamespace(
            pool=pool,
            room=room,
            turns=turns,
            make_handler=self.make,
            objection=lambda kind, handler: self.objection,
        )
        runner = SimpleNamespace(run=lambda handler: self.ran.append(handler.request.key))
        self.batch = Batch(cast(Any, view), self.desk, cast(Any, runner), self.changed.append, self.failed.append)

    @property
    def bucket(self) -> Bucket:
        return self.queue.buckets()[0]

    def make(self, request: NodeRequest) -> Any:
        key = request.key
        node_set = SimpleNamespace(begin_ahead=lambda: self.with_node.append(key), lock_ahead=lambda: None)
        log = logging.getLogger("test.batch")
        return SimpleNamespace(request=request, progress=Progress(key, 0.0), node_set=node_set, log=log)

    def _send(self, request: NodeRequest, _node: Any) -> Callable[[], None]:
        if self.send_error is not None and request.key != "100-1":
            raise self.send_error

        def end() -> None:
            if request.key in self.errors:
                raise self.errors[request.key]

        return end

    def _count(self, _kind: Any) -> None:
        self.taken += 1

    def launch(self, until: Any = None, at_most: int = 20) -> int:
        head = self.make(self.requests["100-1"].copy())
        return self.batch.launch(self.bucket, head, until, at_most)


@pytest.fixture
def place() -> Place:
    return Place()


def test_together(place: Place) -> None:
    """Each is `pending` with a node of its own, in order."""
    assert place.launch() == 5
    assert place.ran == place.with_node == [f"100-{number}" for number in range(1, 6)]
    assert [handler.request.state for handler in place.desk.handlers()] == [states.PENDING] * 5
    assert place.desk.counts() == {Stage.GATHERING: 5}
    assert (place.taken, len(place.queue)) == (5, 0)


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({"room": 1.0}, ["100-1"]),
        ({"room": 3.0}, ["100-1", "100-2", "100-3"]),
        ({"objection": reasons.IMAGE_MISSING}, ["100-1"]),
    ],
)
def test_only_what_has_room_for_sure(place: Place, change: dict[str, Any], taken: list[str]) -> None:
    for name, value in change.items():
        setattr(place, name, value)
    assert place.launch() == len(taken)
    assert place.ran == taken
    assert place.with_node == (taken if len(taken) > 1 else [])


def test_one_alone(place: Place) -> None:
    """Its node is stored with its lock, too, if there is room for sure."""
    assert place.launch(at_most=1) == 1
    assert place.ran == place.with_node == ["100-1"]


def test_turn_of_another_bucket(place: Place) -> None:
    """A-1"""
    assert place.launch(until=place.requests["100-3"].order_key) == 3


def test_gone_meanwhile(place: Place) -> None:
    """A-2: the pass goes on with what is behind it."""
    del place.requests["100-2"]
    assert place.launch() == 1


def test_turns_of_other_pools(place: Place) -> None:
    place.of_others = {"100-2", "100-4"}
    assert place.launch() == 3
    assert place.desk.counts() == {Stage.GATHERING: 3, Stage.DEFERRED: 2}
    assert not place.desk.keeps("100-2")


def test_locks_of_others(place: Place) -> None:
    """A-11: who holds the lock is waited for a moment; what was changed comes back as a change."""
    place.errors = {
        "100-2": TransactionFailed("/nodepool/requests-lock/100-2", NodeExistsError()),
        "100-3": ZKConflict("changed"),
    }
    assert place.launch() == 3
    assert place.ran == ["100-1", "100-4", "100-5"]
    assert place.desk.counts() == {Stage.GATHERING: 3, Stage.DEFERRED: 1}
    told = place.desk.explain("100-2")
    assert told is not None
    assert told.reason is reasons.REQUEST_LOCKED
    assert place.changed == []


@pytest.mark.parametrize("error", [ZKConnectionError("away"), ZKException("refused")])
def test_error_of_one_lock(place: Place, error: Exception) -> None:
    """A-19: what is locked stays ours; the others are judged again."""
    place.errors = {"100-2": error}
    with pytest.raises(type(error)):
        place.launch()
    assert place.ran == []
    assert place.desk.counts() == {Stage.GATHERING: 4}
    assert place.changed == ["100-2"]


def test_error_between_two_locks(place: Place) -> None:
    """No request is locked without anybody who goes on with it, and none stays on the desk."""
    place.send_error = ZKConnectionError("away")
    with pytest.raises(ZKConnectionError):
        place.launch()
    assert [handler.request.key for handler in place.desk.handlers()] == ["100-1"]
    assert place.desk.counts().keys() <= {Stage.WAITING, Stage.GATHERING}
    assert place.changed == ["100-2"]


def test_error_about_those_behind(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-16: it does not stop the first one."""

    def raising(kind: Any, request: NodeRequest) -> list[str]:
        raise RuntimeError("no way")

    monkeypatch.setattr(place.batch._turns, "of_others", raising)
    assert place.launch() == 1
