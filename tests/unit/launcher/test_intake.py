# SPDX-License-Identifier: Apache-2.0
"""What a pass takes from the queue, by single steps: verdicts, batches, declines (rules A). Whole ones: test_pool."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NodeExistsError

from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.launcher.events import EventRing
from nodepool.launcher.pool.desk import Desk, RequestEvents
from nodepool.launcher.pool.intake import BATCH, OLD_REQUEST_SECONDS, START_SECONDS, Batch, Declines, Intake
from nodepool.metrics.catalog import REQUEST_WAIT
from nodepool.model import reasons, states
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.plan.nodes import ReadyNodes
from nodepool.plan.queue import Bucket, RequestQueue
from nodepool.plan.request_stage import Progress, Stage
from nodepool.plan.triage import Consider, Decline, Leave, Wait
from nodepool.zk.reply import Reply
from nodepool.zk.transactions import TransactionFailed
from tests.support.counted import Counted
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.unit.launcher.conftest import home

LOG = logging.getLogger("test.intake")
HELD = TransactionFailed("/nodepool/requests-lock/100-2", NodeExistsError())
AWAY = ZKConnectionError("away")


class Pool:
    """A pool ``me`` whose queue has the requests that a test adds; what is said to ZooKeeper is kept."""

    launcher_id, place = "me", "lab/main"

    def __init__(self) -> None:
        self.queue = RequestQueue()
        self.desk = Desk(self.queue)
        self.requests: dict[str, NodeRequest] = {}
        self.launcher = SimpleNamespace(label_hint=lambda labels: f"; hint for {', '.join(labels)}")
        self.pools = [SimpleNamespace(id="me")]
        self.nodes: list[Any] = []
        self.cache = SimpleNamespace(nodes=SimpleNamespace(values=lambda: self.nodes))
        self.zk = SimpleNamespace(requests=self)
        self.locks: list[str] = []
        self.written: list[NodeRequest] = []
        #: What the answer about a request is; "send" = of all calls, before anything is sent.
        self.errors: dict[str, Exception] = {}

    def add(self, *names: str, label: str = "small", created: float = 5001.0) -> list[str]:
        for name in names:
            request = NodeRequest(name)
            request.node_types, request.state, request.created_time = [label], states.REQUESTED, created
            self.requests[name] = request
            self.queue.put(request)
        return list(names)

    def open_request(self, request_id: str) -> NodeRequest | None:
        return self.requests.get(request_id)

    def held(self, labels: object) -> None:
        """Nothing is held back."""

    def provider_replaced(self) -> bool:
        return False

    def registered_pools(self) -> list[Any]:
        return self.pools

    def absent_pools(self) -> list[Any]:
        return []

    def declines_of_others(self, request_id: str) -> dict[str, Reason | None]:
        return {}

    def send_lock(self, request: NodeRequest, node: object) -> Callable[[], None]:
        if self.locks and "send" in self.errors:
            raise self.errors["send"]
        self.locks.append(request.key)

        def end() -> None:
            if request.key in self.errors:
                raise self.errors[request.key]

        return end

    def send_unlocked(self, request: NodeRequest) -> Reply:
        self.written.append(request)
        reply = Reply()
        if request.key in self.errors:
            reply.set_exception(self.errors[request.key])
        else:
            reply.set([])
        return reply

    def lock_dir_was_there(self, request: NodeRequest, failed: object) -> bool:
        return False

    def code(self, request_id: str) -> ReasonCode | None:
        found = self.desk.explain(request_id)
        return None if found is None else found.reason.code


@pytest.fixture
def pool() -> Pool:
    return Pool()


# -- requests that are locked together


class Batches(Batch):
    """Takes ``100-1`` to ``100-5`` together, as far as room, turns and ``objection`` let it."""

    def __init__(self, pool: Pool) -> None:
        self.place, self.room, self.objection = pool, 5.0, False
        self.others: set[str] = set()
        self.ran: list[str] = []
        self.with_node: list[str] = []
        self.again: list[str] = []
        pool.add(*(f"100-{number}" for number in range(1, 6)))
        turns = SimpleNamespace(
            of_others=lambda kind, request: ["other"] if request.key in self.others else [],
            pass_over=lambda request, others: None,
        )
        view = SimpleNamespace(
            pool=pool,
            ahead=lambda kind, handler: self.room,
            tenants=SimpleNamespace(add=lambda kind: None),
            turns=turns,
            make_handler=self.make,
            objection=lambda kind, handler: reasons.IMAGE_MISSING if self.objection else None,
        )
        handlers = SimpleNamespace(run=lambda handler: self.ran.append(handler.request.key))
        super().__init__(cast(Any, view), pool.desk, cast(Any, handlers), self.again.append, lambda _: None)

    def make(self, request: NodeRequest) -> Any:
        node_set = SimpleNamespace(begin_ahead=lambda: self.with_node.append(request.key), lock_ahead=lambda: None)
        return SimpleNamespace(request=request, progress=Progress(request.key, 0.0), node_set=node_set, log=LOG)

    def take(self, until: str = "", at_most: int = 20) -> int:
        head = self.make(self.place.requests["100-1"].copy())
        last = self.place.requests[until].order_key if until else None
        return self.launch(self.place.queue.buckets()[0], head, last, at_most)


@pytest.fixture
def batch(pool: Pool) -> Batches:
    return Batches(pool)


@pytest.mark.parametrize(
    ("change", "limits", "taken"),
    [
        ({}, {}, "12345"),
        # Only what has room for sure; the others are judged when it is their turn.
        ({"room": 1.0}, {}, "1"),
        ({"room": 3.0}, {}, "123"),
        ({"objection": True}, {}, "1"),
        ({}, {"at_most": 2}, "12"),
        # then it is the turn of another kind.
        ({}, {"until": "100-3"}, "123"),
        # it is left to another pool, and those behind it are not.
        ({"others": {"100-2", "100-4"}}, {}, "135"),
    ],
)
def test_taken_together(batch: Batches, change: dict[str, Any], limits: dict[str, Any], taken: str) -> None:
    """A-11: each is `pending` with a node of its own, in order."""
    vars(batch).update(change)
    assert batch.take(**limits) == len(taken)
    assert "".join(name[-1] for name in batch.ran) == taken
    sure = batch.room > 1 and not batch.objection
    assert batch.with_node == (batch.ran if sure else [])
    handlers = batch.place.desk.handlers()
    assert [(one.request.state, one.progress.stage) for one in handlers] == [(states.PENDING, Stage.GATHERING)] * len(
        taken
    )
    assert batch.place.desk.counts().get(Stage.DEFERRED, 0) == len(batch.others)


def test_one_that_vanished(batch: Batches) -> None:
    """A-2: the batch stops in the middle; what is behind it is taken in the same pass, by its own turn."""
    del batch.place.requests["100-3"]
    assert batch.take() == 2
    assert batch.place.queue.ids() == ["100-3", "100-4", "100-5"]


@pytest.mark.parametrize(
    ("errors", "raised", "ran", "again", "deferred"),
    [
        # who holds the lock is waited for; what was changed comes back as a change.
        ({"100-2": HELD, "100-3": ZKConflict("changed")}, False, "145", "", ["100-2"]),
        # what is locked stays ours; of the one without an answer that is not known.
        ({"100-2": AWAY}, True, "", "2", []),
        # What was not sent is not locked.
        ({"send": AWAY}, True, "", "2", []),
    ],
)
def test_locks_in_trouble(
    batch: Batches, errors: dict[str, Exception], raised: bool, ran: str, again: str, deferred: list[str]
) -> None:
    """A-11, A-19: no request is locked that nothing goes on with."""
    batch.place.errors = errors
    if raised:
        with pytest.raises(ZKConnectionError):
            batch.take()
    else:
        batch.take()
    assert ("".join(name[-1] for name in batch.ran), "".join(name[-1] for name in batch.again)) == (ran, again)
    assert [name for name in batch.place.requests if batch.place.code(name) is ReasonCode.REQUEST_LOCKED] == deferred
    kept = {handler.request.key for handler in batch.place.desk.handlers()}
    assert kept == {name for name in batch.place.locks if name not in errors}
    assert Stage.LOCKING not in batch.place.desk.counts()


# -- requests that are declined


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    monkeypatch.setattr(home(Declines), "wall_time", lambda: 5000.0)
    return monotonic_clock(monkeypatch, home(Declines))


def declines(pool: Pool) -> Declines:
    events = RequestEvents(EventRing(), "l1", pool.place, pool.declines_of_others)
    return Declines(cast(Any, pool), pool.desk, pool.queue, events, LOG)


def test_declined_together(pool: Pool, clock: ManualClock) -> None:
    """A-14, A-15, A-11, WP-77: a copy is written; one that vanished, is held or belongs to others stops none behind it.
    A request fails with the last pool, and then its time is noted.
    """
    made, counted = declines(pool), Counted(REQUEST_WAIT)
    pool.add("100-1", "100-2", "100-4", "100-5")
    pool.add("100-3", created=4999.0)
    del pool.requests["100-2"]
    pool.errors["100-4"] = ZKConflict("held")
    made.decline(["100-1", "100-2", "100-3", "100-4", "100-5"], reasons.IMAGE_MISSING)
    assert [(one.id, one.declined_by, one.state) for one in pool.written] == [
        (name, ["me"], states.FAILED) for name in ("100-1", "100-4", "100-5")
    ]
    assert pool.requests["100-1"].declined_by == []
    assert [pool.code(name) for name in ("100-1", "100-3", "100-4", "100-5")] == [
        *(ReasonCode.IMAGE_MISSING, ReasonCode.WAIT_OTHER_LAUNCHERS),
        *(ReasonCode.REQUEST_LOCKED, ReasonCode.IMAGE_MISSING),
    ]
    assert counted.new() == {("small", "failed"): 2}
    assert len(pool.queue) == 0
    pool.pools.append(SimpleNamespace(id="other"))
    clock.pass_seconds(START_SECONDS + OLD_REQUEST_SECONDS)
    made.decline(pool.add("100-6", created=1.0), reasons.IMAGE_MISSING)
    assert pool.written[-1].state == states.REQUESTED
    assert counted.new() == {("small", "failed"): 2}
    pool.errors["100-7"] = AWAY
    with pytest.raises(ZKConnectionError):
        made.decline(pool.add("100-7"), reasons.IMAGE_MISSING)


def test_more_than_fit_in_a_pass(pool: Pool, clock: ManualClock) -> None:
    """A-14: the rest is declined in a later pass."""
    names = pool.add(*(f"100-{number:04}" for number in range(BATCH + 1)))
    (bucket,) = pool.queue.buckets()
    assert declines(pool).decline_all(bucket, reasons.IMAGE_MISSING)
    assert pool.queue.ids() == names[-1:]
    assert not declines(pool).decline_all(bucket, reasons.IMAGE_MISSING)
    assert len(pool.written) == BATCH + 1


def test_nodes_of_launchers_that_are_away(pool: Pool, clock: ManualClock) -> None:
    """A-15: just after the start nothing is declined as long as there are some: their labels are not known."""
    made = declines(pool)
    pool.nodes = [SimpleNamespace(launcher=name) for name in ("me", None, "host-PoolWorker.two-main-1")]
    made.decline(pool.add("100-1"), reasons.IMAGE_MISSING)
    assert (pool.written, pool.code("100-1")) == ([], ReasonCode.WAIT_OTHER_LAUNCHERS)
    clock.pass_seconds(START_SECONDS + 1)
    made.decline(["100-1"], reasons.IMAGE_MISSING)
    assert [one.id for one in pool.written] == ["100-1"]


# -- verdicts


class Passes(Intake):
    """An intake whose parts note what they are given; ``kinds`` and ``verdicts`` are what triage says."""

    def __init__(self, pool: Pool) -> None:
        self.place = pool
        self.kinds: dict[str, Any] = {}
        self.verdicts: dict[str, Any] = {}
        self.done: list[str] = []
        self.kept: list[Reason] = []
        self.passed: list[str] = []
        self.left_over: list[str] = []
        self.more_declines = False
        turns = SimpleNamespace(
            pass_over=lambda request, others: self.passed.append(request.key), end_pass=lambda: self.left_over
        )
        tenants = SimpleNamespace(reserve=lambda kind, cause: self.kept.append(cause), add=lambda kind: None)
        view = SimpleNamespace(pool=pool, turns=turns, tenants=tenants, ready=ReadyNodes())
        # In the place of the fast path, which gets nothing, of `Declines`, of `Batch` and of `Eviction`.
        part: Any = SimpleNamespace(
            decline_all=self.decline_all, launch=self.launch, evict=lambda: self.done.append("evict")
        )
        super().__init__(cast(Any, view), pool.queue, pool.desk, part, part, part, part, lambda: None, LOG)

    def decline_all(self, bucket: Bucket, reason: Reason) -> bool:
        for name in list(bucket):
            self.done.append(f"decline {name}")
            self.place.queue.discard(name)
        return self.more_declines

    def launch(self, bucket: Bucket, handler: Any, until: object, at_most: int) -> int:
        self.done.append(f"launch {handler.request.key}")
        self.place.queue.discard(handler.request.key)
        return 1


@pytest.fixture
def passes(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Triage, which has tables of its own, is replaced: no argument takes another one."""
    made, module = Passes(pool), home(Intake)
    monkeypatch.setattr(module, "triage_kind", lambda kind, view: made.kinds.get(kind.labels[0], Consider()))
    monkeypatch.setattr(module, "triage", lambda kind, request, view: made.verdicts.get(request.key, module.Launch()))

    def look(view: object, kind: object, request: NodeRequest) -> Any:
        return SimpleNamespace(handler=SimpleNamespace(request=request), turns=["other"])

    monkeypatch.setattr(module, "RequestView", look)
    return made


@pytest.mark.parametrize("more", [True, False])
def test_verdicts_of_kinds(passes: Passes, pool: Pool, more: bool) -> None:
    """A-4 to A-7: one for all requests of a kind; a pass goes on with those that may be served."""
    passes.kinds = {
        "a": Decline(reasons.POOL_DISABLED),
        "b": Leave(reasons.FIRST_CHOICE),
        "c": Wait(reasons.POOL_PAUSED),
    }
    for name in ("a1", "b1", "b2", "c1", "d1", "a2"):
        pool.add(name, label=name[0])
    passes.more_declines = more
    assert passes.serve() is more
    assert passes.done == ["decline a1", "decline a2", "launch d1"]
    codes = [pool.code(name) for name in ("b1", "b2", "c1")]
    assert codes == [reasons.FIRST_CHOICE.code, ReasonCode.WAIT_ORDER, reasons.POOL_PAUSED.code]


@pytest.mark.parametrize(
    ("verdict", "done", "codes", "kept", "passed"),
    [
        # The kind waits with its first one.
        (Wait(reasons.NO_ROOM, first_of_tenant=True), [], [ReasonCode.ROOM_HIDDEN, ReasonCode.WAIT_ORDER], 1, 0),
        (Wait(reasons.NO_ROOM), [], [ReasonCode.ROOM_HIDDEN, ReasonCode.WAIT_ORDER], 0, 0),
        # and all that are like it.
        (Decline(reasons.EXCEEDS_QUOTA), ["decline 100-1", "decline 100-2"], [None, None], 0, 0),
        # it alone is left to another pool, or to the one that has it.
        (Leave(reasons.FIRST_CHOICE), ["launch 100-2"], [reasons.FIRST_CHOICE.code, None], 0, 1),
        (Leave(reasons.SIBLING_SERVES), ["launch 100-2"], [reasons.SIBLING_SERVES.code, None], 0, 0),
    ],
)
def test_verdicts_of_heads(
    passes: Passes, pool: Pool, verdict: Any, done: list[str], codes: list[Any], kept: int, passed: int
) -> None:
    """A-5, A-8, A-13: what becomes of the first of a kind, and of those behind it; other kinds go on."""
    pool.add("100-1", "100-2")
    pool.add("100-9", label="big")
    passes.verdicts["100-1"] = verdict
    passes.serve()
    assert passes.done == [*done, "launch 100-9"]
    assert [pool.code(name) for name in ("100-1", "100-2")] == codes
    assert (len(passes.kept), len(passes.passed)) == (kept, passed)


def test_passed_over_and_deferred(passes: Passes, pool: Pool) -> None:
    """A-5, A-11, Q-8, Q-12: what was left to others is taken when nodes are left over. What was put off comes back as
    long as it exists, unless a look is of no use: then room is made.
    """
    pool.add("100-1")
    pool.requests["100-1"].node_types = []
    passes.verdicts["100-1"] = Leave(reasons.FIRST_CHOICE)
    passes.left_over = ["100-1", "100-9"]
    assert passes.serve()
    assert pool.queue.ids() == ["100-1"]
    passes.left_over = []
    pool.queue.clear()
    useless: list[Any] = [None, lambda: True, lambda: bool(1 / 0), None]
    for name, pointless in zip(pool.add(*(f"200-{number}" for number in range(4))), useless, strict=True):
        pool.desk.defer(name, reasons.NO_ROOM, 0.0, pointless)
    del pool.requests["200-3"]
    passes.serve()
    assert passes.done == ["evict", "launch 200-0", "launch 200-2"]
    assert pool.desk.counts() == {Stage.DEFERRED: 1}
