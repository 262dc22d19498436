# SPDX-License-Identifier: Apache-2.0
"""The fast path: reserve, check, fulfil in one write; without ZooKeeper (rules A-11, N-2, S-9)."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NodeExistsError

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException
from nodepool.launcher.pool.desk import Desk
from nodepool.launcher.pool.intake import FastPath
from nodepool.launcher.pool.view import FreeNodes
from nodepool.metrics.catalog import REQUEST_WAIT
from nodepool.model import reasons, states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import RequestQueue
from nodepool.plan.request_stage import Progress, Stage
from nodepool.zk.reply import Reply
from nodepool.zk.transactions import TransactionFailed
from tests.support.counted import Counted


class Place:
    """A pool with node ``1``; ``checks`` and ``answers`` are what driver and ZooKeeper say."""

    def __init__(self) -> None:
        self.cached: dict[str, Node] = {}
        self.queue = RequestQueue()
        self.desk = Desk(self.queue)
        self.check: Future[bool] = Future()
        self.check_error: Exception | None = None
        self.notify_error: Exception | None = None
        self.answers: list[Exception | None] = []
        self.sent: list[tuple[NodeRequest, list[Node], bool]] = []
        self.changed: list[str] = []
        self.lingering: list[str] = []
        self.woken = 0
        self.dir_was_there = False
        requests = SimpleNamespace(send_unlocked=self._send, lock_dir_was_there=lambda *_: self.dir_was_there)
        reading = SimpleNamespace(is_reading=lambda record_id: False)
        pool = SimpleNamespace(
            zk=SimpleNamespace(requests=requests),
            cache=SimpleNamespace(nodes=reading, requests=reading),
            launcher=SimpleNamespace(lock_dir_lingers=self.lingering.append),
        )
        nodes = SimpleNamespace(get=self.cached.get, is_locked=lambda node_id: False)
        self.free = FreeNodes(cast(Any, nodes), "one", "main", lambda node_id: None)
        log = logging.getLogger("test.fulfil")
        self.path = FastPath(cast(Any, pool), self.desk, self.free, self._wake, self.changed.append, log)
        self.node = Node("small", id="1")
        self.node.state, self.node.provider, self.node.pool, self.node.version = states.READY, "one", "main", 0
        self.cached["1"] = self.node
        self.free.consider("1")

    def _wake(self) -> None:
        self.woken += 1

    def _send(self, request: NodeRequest, nodes: list[Node], *, lock_dir_exists: bool) -> Reply:
        self.sent.append((request, nodes, lock_dir_exists))
        answer = self.answers[len(self.sent) - 1] if len(self.sent) <= len(self.answers) else None
        reply = Reply()
        if answer is None:
            reply.set()
        else:
            reply.set_exception(answer)
        return reply

    def start(self) -> Any:
        request = NodeRequest("100-1")
        request.node_types, request.state, request.tenant_name = ["small"], states.REQUESTED, "poor"
        self.queue.put(request)

        def check(_node: Node) -> Future[bool]:
            if self.check_error is not None:
                raise self.check_error
            return self.check

        def notify(_node: Node) -> None:
            if self.notify_error is not None:
                raise self.notify_error

        handler = SimpleNamespace(
            request=request,
            progress=Progress(request.key, 0.0),
            startReusableNodeCheck=check,
            nodeReusedNotification=notify,
            provider=SimpleNamespace(name="one"),
            log=logging.getLogger("test.fulfil"),
        )
        self.path.start(cast(Any, handler), [self.node])
        return handler

    @property
    def is_free(self) -> bool:
        return "1" in self.free.ready


@pytest.fixture
def place() -> Place:
    return Place()


def test_fulfilled(place: Place) -> None:
    """N-3, L-12: checked, then one write for request and nodes."""
    handler = place.start()
    assert (place.desk.counts(), place.is_free, place.path.busy) == ({Stage.CHECKING: 1}, False, True)
    place.path.collect()
    assert place.sent == []
    place.check.set_result(True)
    assert place.woken == 1
    place.path.collect()
    ((request, (node,), _),) = place.sent
    assert (request.state, request.nodes) == (states.FULFILLED, ["1"])
    assert (node.allocated_to, node.tenant_name) == ("100-1", "poor")
    assert (handler.request.state, place.node.allocated_to) == (states.REQUESTED, None), "copies are written"
    assert handler.progress.stage is Stage.DONE
    assert (place.desk.counts(), place.path.busy) == ({}, False)


def test_waiting_time(place: Place) -> None:
    """WP-77: it is noted when the request is fulfilled."""
    counted = Counted(REQUEST_WAIT)
    handler = place.start()
    handler.request.created_time = 0.0
    place.check.set_result(True)
    place.path.collect()
    assert counted.new() == {("small", "fulfilled"): 1}


def test_refused_by_the_driver(place: Place) -> None:
    """N-2: the node is set aside, the request judged again."""
    place.check.set_result(False)
    place.start()
    assert (place.sent, place.changed, place.is_free) == ([], ["100-1"], False)
    assert place.desk.counts() == {}
    assert place.free.next_look() is not None


@pytest.mark.parametrize("how", ["error", "cancelled", "raises"])
def test_check_that_fails(place: Place, how: str) -> None:
    if how == "error":
        place.check.set_exception(RuntimeError("no way"))
    elif how == "cancelled":
        place.check.cancel()
    else:
        place.check_error = RuntimeError("no way")
    place.start()
    assert (place.sent, place.changed) == ([], ["100-1"])


def test_error_in_a_notification(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.check.set_result(True)
    place.notify_error = RuntimeError("no way")
    place.start()
    place.path.collect()
    assert place.desk.counts() == {}
    assert "nodeReusedNotification" in caplog.text


def test_held_request(place: Place) -> None:
    """A-11: looked at again in a moment; its node stays free, and another pass gives it to those behind the request."""
    place.check.set_result(True)
    place.answers = [TransactionFailed("/nodepool/requests-lock/100-1", NodeExistsError())]
    place.start()
    assert place.woken == 0
    place.path.collect()
    assert place.woken == 1
    assert (place.desk.counts(), place.is_free, place.changed) == ({Stage.DEFERRED: 1}, True, [])
    told = place.desk.explain("100-1")
    assert told is not None
    assert told.reason is reasons.REQUEST_LOCKED


def test_second_conflict(place: Place) -> None:
    """One is tried again at once, two in a row are not: a cache may be wrong for a while."""
    place.check.set_result(True)
    place.answers = [ZKConflict("changed"), ZKConflict("changed")]
    place.start()
    place.path.collect()
    assert (place.desk.counts(), place.changed) == ({}, ["100-1"])
    place.start()
    place.path.collect()
    assert (place.desk.counts(), place.changed) == ({Stage.DEFERRED: 1}, ["100-1"])


def test_directory_that_was_left(place: Place) -> None:
    """The same again, with the directory of the lock."""
    place.check.set_result(True)
    place.answers = [TransactionFailed("/nodepool/requests-lock/100-1", NodeExistsError())]
    place.dir_was_there = True
    place.start()
    place.path.collect()
    assert [lock_dir_exists for _, _, lock_dir_exists in place.sent] == [False, True]
    assert (place.lingering, place.desk.counts()) == (["100-1"], {})


@pytest.mark.parametrize(("problem", "raised"), [(ZKException("odd"), False), (ZKConnectionError("away"), True)])
def test_no_answer(place: Place, problem: ZKException, raised: bool) -> None:
    """What was written comes back through the cache."""
    place.check.set_result(True)
    place.answers = [problem]
    place.start()
    if raised:
        with pytest.raises(ZKConnectionError):
            place.path.collect()
    else:
        place.path.collect()
    assert (place.desk.counts(), place.changed, place.is_free) == ({}, ["100-1"], True)
