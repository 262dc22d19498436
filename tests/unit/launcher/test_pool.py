# SPDX-License-Identifier: Apache-2.0
"""A pool serves requests: the passes of its worker, by their effects in ZooKeeper (rules A, L, N, Q, G-6, G-14)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.clock import monotonic
from nodepool.driver.fake import FakeProvider
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.framework.fact import NotKnown
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.driver.statemachine import StateMachineHandler
from nodepool.exceptions import RuntimeConfigurationException, ZKConflict, ZKConnectionError
from nodepool.launcher.pool.intake import LAUNCHES_SECONDS, POLL_SECONDS, Declines, Intake
from nodepool.launcher.pool.view import EVICTION_SECONDS, Pool, TenantCheck
from nodepool.launcher.pool.worker import RESUME_LOOK_SECONDS, PoolWorker
from nodepool.launcher.shared import FORGET_SECONDS, MAX_PASSED, TURN_SECONDS, WINDOW, FreeCounts, Turns
from nodepool.metrics.catalog import REQUEST_WAIT
from nodepool.model import states
from nodepool.model.node import Node, QuotaInformation
from nodepool.model.reasons import ERROR_JUDGING, NO_ROOM, Reason, ReasonCode, tenant_limit
from nodepool.model.request import NodeRequest
from nodepool.plan.triage import PoolInfo, RequestKind, first_choice
from nodepool.zk.connection import Reply
from nodepool.zk.nodes import RequestStore
from tests.support.counted import Counted
from tests.support.local_launcher import fake_provider
from tests.support.manual_clock import ManualClock
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.tables import rows
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Log, Patch, Records, Still, home, locked, raising


@pytest.fixture
def worker(launcher: StillLauncher) -> PoolWorker:
    return launcher.worker()


def fulfil(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, *request_ids: str) -> list[list[str]]:
    """The nodes of each."""
    for request_id in request_ids:
        done: Callable[[], bool] = lambda: znodes.request_state(request_id) == "fulfilled"  # noqa: B023, E731
        launcher.passes(worker, f"{request_id} is fulfilled", done)
    return [(znodes.request(request_id) or {})["nodes"] for request_id in request_ids]


def reason(worker: PoolWorker, request_id: str) -> Reason:
    """Why a request waits."""
    found = worker.desk.explain(request_id)
    assert found is not None, "it is not known"
    return found.reason


def code(worker: PoolWorker, request_id: str) -> ReasonCode:
    return reason(worker, request_id).code


# -- launches that another launcher has left


@pytest.mark.parametrize("held", ["a node", "the request"])
def test_locks_that_are_seen_to_go_one_by_one(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch, held: str
) -> None:
    """L-18: what is still locked for a moment is looked at again, also without another event of a launch."""
    monkeypatch.setattr(FakeProvider, "canResume", lambda provider, node: True)
    monkeypatch.setattr(StateMachineHandler, "resume", StateMachineHandler.launch)
    request = znodes.submit(["small"] * 2, state="pending")
    ready, building = (znodes.add_node(state, allocated_to=request) for state in ("ready", "building"))
    with locked(znodes, f"nodes/{ready}/lock" if held == "a node" else f"requests-lock/{request}"):
        launcher.passes(worker, "it is known", lambda: request in worker.context.interrupted)
        assert (worker.run_once() or 0.0) <= RESUME_LOOK_SECONDS
        assert (worker.handlers, znodes.node_lockers(building)) == ([], [])
    launcher.settle()
    assert sorted(fulfil(launcher, worker, znodes, request)[0]) == [ready, building]
    assert not worker.context.interrupted


# -- what is taken


@pytest.mark.parametrize(("ready", "limit"), [(0, "MAX_LAUNCHED"), (5, "MAX_FULFILLED")])
def test_order_and_size_of_passes(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch, ready: int, limit: str
) -> None:
    """A-1, A-18: priority, then relative priority, then age; a pass takes some, and the next one comes at once."""
    monkeypatch.setattr(home(Intake), limit, 2)
    monkeypatch.setattr(StateMachineHandler, "room_ahead", lambda _: 10.0)
    for _ in range(ready):
        znodes.add_node("ready")
    places = [("300", 0), ("200", 2), ("200", 1), ("200", 1), ("100", 9)]
    ids = [znodes.submit(["small"], priority, relative_priority=relative) for priority, relative in places]
    expected = [ids[i] for i in (4, 2, 3, 1, 0)]
    launcher.knows_requests(5)
    counted = Counted(REQUEST_WAIT)
    for first in (0, 2, 4):
        assert (worker.run_once() == 0.0) == (first < 4)
        left = [request_id for request_id in expected if znodes.request_state(request_id) == "requested"]
        assert left == expected[first + 2 :]
    assert len({node for nodes in fulfil(launcher, worker, znodes, *ids) for node in nodes}) == 5
    # WP-77: the time until the answer is noted.
    assert sum(counted.new().values()) == 5


def test_shares_of_what_came_just_now(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """FS-3: the room of a tenant is that of all its requests, also of those that come in the pass that takes them."""
    sections = [
        fake_provider(name, (label,), cloud=cloud_name, pool_max_servers=2)
        for name, label in (("one", "small"), ("two", "big"))
    ]
    launcher = still(sections, tenant_shares=[{"tenant-name": "late"}])
    worker = launcher.worker()
    znodes.add_node("in-use", tenant_name="early")
    znodes.add_node("in-use", type=["big"], provider="two", tenant_name="late")
    launcher.settle()

    def limits() -> bool:
        launcher.worker("two").run_once()
        return len([pool for pool in znodes.pools() if pool.get("limits")]) == 2

    launcher.passes(worker, "the limits are known", limits)
    for tenant in ("early", "late"):
        znodes.submit(["small"], tenant_name=tenant)
    launcher.knows_requests(2)
    launcher.settle()
    worker.run_once()
    made = [node for node in znodes.nodes().values() if node["state"] != "in-use"]
    assert [node["tenant_name"] for node in made] == ["late"]


def test_many_tenants_wait_for_a_host(still: Still, znodes: PoolZnodes, monkeypatch: Patch) -> None:
    """FS-1: the driver is asked once a pass what all of them wait for; the first one in the order gets the host."""
    hosts = [{"name": "127.2.4.1", "labels": ["small"], "host-key-checking": False}]
    pools = [{"name": "main", "nodes": hosts}]
    launcher = still([{"name": "one", "driver": "static", "pools": pools}], tenant_shares=[{"tenant-name": "t7"}])
    worker = launcher.worker()
    znodes.add_node("in-use", tenant_name="t0")
    wait_for("the host is there", lambda: len(znodes.free_nodes()) == 1)
    requests = [znodes.submit(["small"], tenant_name=f"t{number % 20}") for number in range(40)]
    launcher.knows_requests(40)
    launcher.passes(worker, "one is served", lambda: "fulfilled" in map(znodes.request_state, requests))
    assert [znodes.request_state(request) for request in requests[:3]] == ["requested", "fulfilled", "requested"]
    asked: list[str] = []
    monkeypatch.setattr(worker.context.provider, "waitReason", lambda pool, *_: asked.append(pool))
    worker.run_once()
    assert asked == ["main"]
    assert len(worker.desk.explanations.told()) == 20


def test_what_would_yield_does_not_begin(still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """FS-6, Q-12: a request that would give its nodes back at once to an older one with nodes is not taken."""
    section = fake_provider("one", ("small", "big"), cloud=cloud_name, pool_max_cores=9)
    section["pools"][0]["labels"][1]["cores"] = 4
    launcher = still([section], tenant_shares=[{"tenant-name": "old"}])
    worker = launcher.worker()
    znodes.add_node("in-use", tenant_name="old", resources={"instances": 1, "cores": 3})
    old = znodes.submit(["big", "big"], tenant_name="old")
    launcher.passes(worker, "it waits with a node", lambda: worker.desk.paused and len(znodes.nodes()) == 2)
    launcher.passes(worker, "that is ready", lambda: "ready" in [node["state"] for node in znodes.nodes().values()])
    many, one = (znodes.submit(["small"] * count, tenant_name="new") for count in (3, 1))
    launcher.passes(worker, "the single one is served", lambda: znodes.request_state(one) == "fulfilled")
    assert znodes.request_state(many) == "requested"
    assert znodes.request_state(old) == "pending"
    assert cloud.calls["create"] == 2


def test_work_follows_the_kinds_not_the_queue(
    still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, monkeypatch: Patch
) -> None:
    """A-7, A-9: of requests that are alike the first one is looked at in a pass, and none while the pool is paused.

    Projects alone make no difference.
    """
    sections = [fake_provider("one", ("small", "big"), cloud=cloud_name, pool_max_servers=1)]
    launcher = still(sections, fair_projects=True)
    worker, made = launcher.worker(), []
    fulfil(launcher, worker, znodes, znodes.submit(["small"]))
    make = FakeProvider.getRequestHandler

    def note(provider: FakeProvider, pool: Any, request: NodeRequest) -> Any:
        made.append(request.id)
        return make(provider, pool, request)

    monkeypatch.setattr(FakeProvider, "getRequestHandler", note)
    projects = ({"project_name": str(number)} for number in range(20))
    ids = [znodes.submit([label], requestor_data=next(projects)) for label in ["small", "big"] * 10]
    launcher.passes(worker, "one waits", lambda: worker.desk.paused and len(worker.queue) == 19)
    worker.run_once()
    assert set(made) <= {*ids[:4]}
    assert {code(worker, request_id) for request_id in ids[1:]} == {ReasonCode.WAIT_ORDER, ReasonCode.WAIT_POOL_PAUSED}


@pytest.mark.parametrize("raised", [True, False])
def test_driver_that_declines(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch, raised: bool
) -> None:
    """A-13, A-16: a request is declined for what its driver says or raises; those behind it have their turn."""

    make = FakeProvider.getRequestHandler

    def judge(handler: StateMachineHandler) -> list[str]:
        return ["no flavor", "no image"] if handler.request.id == bad else []

    def make_or_raise(provider: FakeProvider, pool: Any, request: NodeRequest) -> Any:
        if request.id == bad:
            raise RuntimeError("no way")
        return make(provider, pool, request)

    if raised:
        monkeypatch.setattr(FakeProvider, "getRequestHandler", make_or_raise)
    else:
        monkeypatch.setattr(StateMachineHandler, "getDeclinedReasons", judge)
    bad, good = znodes.submit(["small"]), znodes.submit(["small"], requestor="someone else", tenant_name="other")
    fulfil(launcher, worker, znodes, good)
    assert znodes.request_state(bad) == "failed"
    said = Reason(ReasonCode.DRIVER_DECLINED, "no flavor; no image")
    assert reason(worker, bad) == (ERROR_JUDGING if raised else said)


def test_provider_that_was_replaced_in_the_middle(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch
) -> None:
    """G-5: its errors decline nothing; its successor judges."""
    request_id = znodes.submit(["small"])
    launcher.settle()
    with monkeypatch.context() as patch:
        patch.setattr(FakeProvider, "getRequestHandler", raising(RuntimeError("was stopped")))
        patch.setattr(Pool, "provider_replaced", lambda _: True)
        worker.run_once()
    fulfil(launcher, worker, znodes, request_id)


def test_tenants_of_hosts_are_changed(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch
) -> None:
    """A-24: a node that is free already is for the tenants of the configuration that the pass works with."""
    node, kind = znodes.add_node("ready"), RequestKind.of(NodeRequest())
    ready = worker.context.free.ready
    launcher.passes(worker, "the node is known", lambda: node in ready)
    assert ready.could_serve(["small"], kind)
    provider = launcher.nodepool.providers.running["one"]
    monkeypatch.setattr(type(worker.context.pool_config), "tenantsOfNode", lambda *_: ["a"])
    monkeypatch.setattr(provider, "provider", copy(provider.provider))
    worker.run_once()
    assert not ready.could_serve(["small"], kind)


def test_nodes_that_the_first_choice_lacks(still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """A-5: a pool with ready nodes serves what is left to a pool without them, after its own, without a wait."""
    launcher = still([fake_provider(name, cloud=cloud_name) for name in ("one", "two")])
    worker = launcher.worker("one")
    ids = [znodes.submit(["small"]) for _ in range(8)]
    for _ in ids:
        znodes.add_node("ready", provider="one")
    launcher.knows_requests(len(ids))
    for _ in range(2):
        launcher.settle()
        worker.run_once()
    assert {znodes.request_state(request_id) for request_id in ids} == {"fulfilled"}


def test_what_was_put_off(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes) -> None:
    """Q-8, Q-12: as long as a look is of no use room is made; an error of the question is no reason to wait."""
    unused = znodes.add_node("ready", type=["big"])
    launcher.passes(worker, "the node is known", lambda: unused in worker.context.free.ready)
    useless, asked = (znodes.submit(["small"]) for _ in range(2))
    worker.desk.defer(useless, NO_ROOM, 0.0, lambda: True)
    worker.desk.defer(asked, NO_ROOM, 0.0, raising(ZeroDivisionError()))
    fulfil(launcher, worker, znodes, asked)
    assert (code(worker, useless), znodes.request_state(useless)) == (NO_ROOM.code, "requested")
    assert (znodes.node(unused) or {})["state"] == "deleting"


def test_clock_is_set_back(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch) -> None:
    """Q-8: the pause between two evictions does not last longer by that."""
    free, now = worker.context.free, monotonic()
    unused = [znodes.add_node("ready", type=["big"]) for _ in range(2)]
    launcher.passes(worker, "they are known", lambda: all(node in free.ready for node in unused))
    free.evict()
    assert len(free.ready) == 1
    monkeypatch.setattr(home(Pool), "wall_time", lambda: 1000.0)
    for seconds, left in ((EVICTION_SECONDS - 10, 1), (EVICTION_SECONDS + 60, 0)):
        monkeypatch.setattr(home(Pool), "monotonic", lambda: now + seconds)  # noqa: B023
        free.evict()
        assert len(free.ready) == left


def test_nodes_of_launchers_that_are_away(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch
) -> None:
    """A-15: just after the start nothing is declined as long as there are some: their labels are not known."""
    znodes.add_node("in-use", launcher="host-PoolWorker.two-main-1")
    request_id = znodes.submit(["gpu"])
    launcher.passes(worker, "it is known", lambda: worker.desk.explain(request_id))
    assert code(worker, request_id) is ReasonCode.WAIT_OTHER_LAUNCHERS
    monkeypatch.setattr(home(Declines), "START_SECONDS", 0.0)
    monkeypatch.setattr(home(Declines), "OLD_REQUEST_SECONDS", 0.0)
    launcher.passes(worker, "it is declined", lambda: znodes.request_state(request_id) == "failed")


def test_requests_from_before_the_start(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes) -> None:
    """A-15: just after the start they wait for launchers that may come back; those behind them are declined at once."""
    old, new = znodes.submit(["gpu"], created_time=1.0), znodes.submit(["gpu"])
    launcher.knows_requests(2)
    worker.run_once()
    assert [znodes.request_state(request_id) for request_id in (old, new)] == ["requested", "failed"]
    assert code(worker, old) is ReasonCode.WAIT_OTHER_LAUNCHERS


# -- locks and answers


@pytest.mark.parametrize("how", ["ready node", "decline"])
def test_lock_directory_that_was_left(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, how: str
) -> None:
    """A-11: it has no contender: the request is not put off for it."""
    if how == "ready node":
        znodes.add_node("ready")
    request_id = znodes.submit(["small" if how == "ready node" else "gpu"])
    launcher.settle()
    znodes.kazoo.create(f"/nodepool/requests-lock/{request_id}")
    for _ in range(2):
        launcher.settle()
        worker.run_once()
    assert znodes.request_state(request_id) == ("fulfilled" if how == "ready node" else "failed")


@pytest.mark.parametrize("check", [lambda *_: False, raising(RuntimeError("no way"))])
def test_ready_node_that_is_of_no_use(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch, check: Callable[..., bool]
) -> None:
    """N-2: one that the driver refuses keeps neither a request waiting nor the worker busy."""
    refused = znodes.add_node("ready")
    launcher.passes(worker, "the node is known", lambda: refused in worker.context.free.ready)
    with monkeypatch.context() as patch:
        patch.setattr(StateMachineHandler, "checkReusableNode", check)
        (nodes,) = fulfil(launcher, worker, znodes, znodes.submit(["small"]))
        assert nodes != [refused]
        launcher.settle()
        worker.run_once()
        assert (worker.run_once() or 0) > 1.0
        assert refused not in worker.context.free.ready


def test_node_that_changes_all_the_time(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: Patch
) -> None:
    """A-11: after a conflict a request is tried again at once; after a second one in a moment."""
    plain = RequestStore.send_unlocked
    replies: list[Reply] = []

    def changed(store: RequestStore, *arguments: Any, **options: Any) -> Reply:
        if len(replies) == 2:
            return plain(store, *arguments, **options)
        replies.append(Reply())
        replies[-1].set_exception(ZKConflict("changed"))
        return replies[-1]

    monkeypatch.setattr(RequestStore, "send_unlocked", changed)
    znodes.add_node("ready")
    request_id = znodes.submit(["small"])
    launcher.passes(worker, "two conflicts", lambda: len(replies) == 2)
    assert code(worker, request_id) is ReasonCode.REQUEST_CHANGED
    monkeypatch.setattr(StateMachineHandler, "nodeReusedNotification", raising(RuntimeError("no way")))
    fulfil(launcher, worker, znodes, request_id)
    assert not znodes.node_lockers(next(iter(znodes.nodes())))


# -- what is launched


def test_polls(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: Patch, caplog: Log
) -> None:
    """A-19: who tells the end of its launches is not asked; an error of one handler stops no other."""
    bad, silent, good = (znodes.submit(["small"]) for _ in range(3))
    complete = StateMachineHandler.launchesComplete

    def asked(handler: StateMachineHandler) -> bool:
        if handler.request.id == bad:
            raise RuntimeError("no way")
        assert handler.request.id != silent
        return complete(handler)

    with monkeypatch.context() as patch:
        patch.setattr(StateMachineHandler, "awaits_launches", property(lambda handler: handler.request.id == silent))
        patch.setattr(StateMachineHandler, "launchesComplete", asked)
        fulfil(launcher, worker, znodes, good)
        assert [znodes.request_state(i) for i in (bad, silent)] == ["pending"] * 2
        assert "Error while polling" in caplog.text
        assert worker.run_once() == POLL_SECONDS
    with monkeypatch.context() as patch:
        patch.setattr(StateMachineHandler, "awaits_launches", True)
        assert worker.run_once() == LAUNCHES_SECONDS
    fulfil(launcher, worker, znodes, bad, silent)


# -- the end of a pool


@pytest.mark.parametrize("launch", ["runs", "ends", "its driver raises"])
def test_stop(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: Patch, launch: str
) -> None:
    """G-14, L-12: others serve the request, with its free ready node, unless its launch ends at the last moment.

    What is being made for its node is not known yet: that stays locked.
    """
    ready = znodes.add_node("ready")
    cloud.set(hang=True)
    request_id = znodes.submit(["small", "small"])
    launcher.passes(worker, "one is launched, one is taken", lambda: len(znodes.nodes("building")) == 1)
    wait_for("its instance is known", lambda: any(node["external_id"] for node in znodes.nodes("building").values()))
    (building,) = znodes.nodes("building")
    finish = RequestStore.finish

    def late(store: RequestStore, *arguments: Any, **settings: Any) -> None:
        cloud.set(hang=False)
        wait_for("both are ready", lambda: len(znodes.nodes("ready")) == 2 and worker.context.launches() == 0)
        finish(store, *arguments, **settings)

    if launch == "ends":
        monkeypatch.setattr(RequestStore, "finish", late)
    if launch == "its driver raises":
        with monkeypatch.context() as patch:
            patch.setattr(StateMachineHandler, "hand_over", raising(RuntimeError("no way")))
            worker.on_stop()
        assert znodes.request_state(request_id) == "pending"
    path = f"/nodepool/nodes/{building}"
    before = znodes.kazoo.exists(path).version
    worker.on_stop()
    # What its launch writes after that is refused: ready for a request that another launcher serves, it would be lost.
    assert znodes.kazoo.exists(path).version > before
    assert znodes.pools() == []
    assert znodes.request_state(request_id) == ("fulfilled" if launch == "ends" else "requested")
    assert znodes.request_lockers(request_id) == []
    assert znodes.node_lockers(ready) == []
    cloud.set(hang=False)
    wait_for("the launch ended", lambda: worker.context.launches() == 0)
    if launch != "ends":
        assert list(znodes.free_nodes()) == [ready]
        assert znodes.node_lockers(building)


# -- rules with edges of their own: limits of tenants, whose turn a request is


FULL = tenant_limit("poor", "instances", limit=3, used=3, needed=1)
ERRORS = {
    "broken": RuntimeConfigurationException("no flavor"),
    "unknown": NotKnown("no answer yet"),
    "away": ZKConnectionError("not connected to ZooKeeper"),
    "wrong": ValueError("a bug"),
}


class Cloud(QuotaSupport):
    name = "one"

    def quotaNeededByLabel(self, label: str, pool: Any) -> QuotaInformation:
        if label in ERRORS:
            raise ERRORS[label]
        return QuotaInformation(cores=4 if label == "large" else 1, instances=1)

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        return QuotaInformation()

    def getProviderLimits(self) -> QuotaInformation:
        return QuotaInformation()


class Tenants(TenantCheck):
    """The check of a pool where the tenant ``poor`` may have 3 instances and 6 cores."""

    pool_name = "main"
    pool_config = SimpleNamespace(name="main")
    labels = frozenset({"small", "large", *ERRORS})

    def __init__(self) -> None:
        self.maxima: dict[str, dict[str, float]] = {"poor": {"instances": 3, "cores": 6}}
        self.use = QuotaInformation()
        self.asked = 0
        self.provider: Any = Cloud()
        self.requests: list[NodeRequest] = []
        self.nodes: list[Node] = []
        values = {name: SimpleNamespace(values=lambda name=name: getattr(self, name)) for name in ("requests", "nodes")}
        self.cache = SimpleNamespace(**values)
        self.log = logging.getLogger("test.tenants")
        super().__init__(cast(Any, self))

    def tenant_limits(self) -> dict[str, dict[str, float]]:
        return self.maxima

    def tenant_use(self, name: str) -> QuotaInformation:
        self.asked += 1
        return self.use.copy()

    def allows(self, *labels: str, tenant: str | None = "poor") -> bool:
        return self.exceeded(kind(*labels, tenant=tenant)) is None


def kind(*labels: str, tenant: str | None = "poor") -> RequestKind:
    request = NodeRequest()
    request.node_types, request.tenant_name = list(labels), tenant
    return RequestKind.of(request)


def stored(node_id: str, tenant: str, cores: float) -> Node:
    node = Node("small", node_id)
    node.tenant_name, node.resources = tenant, {"cores": cores, "instances": 1}
    return node


@pytest.fixture
def tenants() -> Tenants:
    return Tenants()


@rows(__file__, "tenant_limits")
def test_limits(tenants: Tenants, labels: str, tenant: str | None, used: int, allowed: bool) -> None:
    """Q-15, Q-16: limits minus use minus need must not be negative. The use is counted once in a pass."""
    tenants.use = QuotaInformation(instances=used)
    assert {tenants.allows(*labels.split(), tenant=tenant) for _ in range(10)} == {allowed}
    assert tenants.asked == (tenant == "poor")


def test_accepted_in_this_pass(tenants: Tenants) -> None:
    """A-8: what was accepted a moment ago counts; the next pass sees it as nodes."""
    assert tenants.allows("small", "small")
    tenants.add(kind("small", "small"))
    assert not tenants.allows("small", "small")
    assert tenants.allows("small")
    tenants.begin_pass()
    assert tenants.allows("small", "small")
    tenants.add(kind("small", tenant="rich"))


def test_what_others_are_about_to_make_counts(tenants: Tenants) -> None:
    """Q-15: a request that some launcher works on will need room for the nodes that it does not have yet."""
    for request_id, tenant, labels in (("1", "poor", ["small", "large"]), ("2", "rich", ["large"])):
        tenants.requests.append(NodeRequest(request_id))
        tenants.requests[-1].node_types, tenants.requests[-1].tenant_name = labels, tenant
        tenants.requests[-1].state = states.PENDING
    assert not tenants.allows("small", "small")
    assert tenants.allows("small")
    tenants.begin_pass()
    large, foreign = stored("01", "poor", 4), stored("02", "rich", 4)
    large.type, large.allocated_to, foreign.allocated_to = ["large"], "1", "2"
    tenants.nodes, tenants.use = [large, foreign], QuotaInformation(instances=1, cores=4)
    assert tenants.allows("small"), "a node that is there counts once"
    assert not tenants.allows("small", "small")
    tenants.begin_pass()
    tenants.requests[0].state = states.FULFILLED
    assert tenants.allows("small", "small")


@pytest.mark.parametrize(("held", "labels", "waits"), [(0, 2, True), (1, 2, True), (2, 2, False), (0, 4, False)])
def test_order_of_a_tenant(tenants: Tenants, held: int, labels: int, waits: bool) -> None:
    """A-8: who needs less is not faster. One that needs more than there will be soon stops none behind it."""
    tenants.nodes = [stored(f"0{number}", "poor", 1) for number in range(3)]
    for node in tenants.nodes[:held]:
        node.state = states.HOLD
    assert tenants.reserved_for(kind("small")) is None
    tenants.reserve(kind(*["small"] * labels), FULL)
    assert (tenants.reserved_for(kind("small")) is FULL) == waits
    assert (
        tenants.reserved_for(kind("small", tenant="rich")) is tenants.reserved_for(kind("small", tenant=None)) is None
    )
    tenants.begin_pass()
    assert tenants.reserved_for(kind("small")) is None
    tenants.maxima = {}
    tenants.reserve(kind("small"), FULL)
    assert tenants.reserved_for(kind("small")) is None, "A-16: a reload between two looks"


# -- whose turn it is

POOLS = [
    PoolInfo(f"pool-{number}", f"cloud-{number}", frozenset({"small"}), 100, paused=False, name="main")
    for number in range(3)
]


class Turn(Turns):
    """Of the first pool, or of another one."""

    def __init__(self, pool: PoolInfo = POOLS[0], clock: ManualClock | None = None) -> None:
        self.clock, self.nodes = (clock or ManualClock()).rules(), Records()
        super().__init__(FreeCounts(cast(Any, self.nodes)))
        self.begin_pass(pool.id, POOLS)

    def leaves(self, request: NodeRequest) -> bool:
        """Does the pool leave a request to others? If so it is passed over."""
        others = self.of_others(RequestKind.of(request), request)
        if others:
            self.pass_over(request, others)
        return bool(others)


def requests() -> Iterator[NodeRequest]:
    for number in range(100_000):
        request = NodeRequest(f"200-{number:010}")
        request.node_types = ["small"]
        yield request


def requests_of(owner: PoolInfo) -> Iterator[NodeRequest]:
    """Requests whose first choice is a pool."""
    return (request for request in requests() if first_choice(request.key, POOLS) is owner)


REQUEST = next(requests_of(POOLS[1]))


def test_not_passed_over_for_ever() -> None:
    """A-5: nor when nothing of its own is near. What was long ago is forgotten."""
    turn = Turn()
    for _ in range(MAX_PASSED):
        assert turn.leaves(REQUEST)
        turn.clock.pass_seconds(2 * TURN_SECONDS)
    assert not turn.leaves(REQUEST)
    turn = Turn()
    assert [turn.leaves(request) for request in islice(requests_of(POOLS[1]), WINDOW + 1)] == [True] * WINDOW + [False]
    turn.clock.pass_seconds(2 * FORGET_SECONDS)
    turn.begin_pass(POOLS[0].id, POOLS)
    assert turn.leaves(REQUEST)


def test_pools_that_share_a_cloud(still: Still, cloud_name: str) -> None:
    """A-25, FS-4: together they have no more chance, and no more room, than their cloud has."""
    sections = [fake_provider(name, cloud=f"{cloud_name}-{name}", limits={"instances": 20}) for name in ("one", "two")]
    sections[0]["pools"].append({**sections[0]["pools"][0], "name": "second"})
    launcher = still(sections, tenant_shares=[{"tenant-name": "a"}])
    pools = launcher.worker().context.registered_pools

    def published() -> bool:
        for worker in launcher.nodepool.pool_threads.current():
            worker.run_once()
        return all(pool.limits and pool.capacity for pool in pools())

    wait_for("all are published", published)
    shared = {pool.provider_name: (pool.limits.get("*instances"), pool.capacity.get("*")) for pool in pools()}
    assert shared == {"one": (20, 20), "two": (None, None)}
    turns = Turns(launcher.nodepool.free_counts)
    turns.begin_pass("", pools())
    chosen = Counter(turns.of_others(RequestKind.of(one), one)[0].provider_name for one in islice(requests(), 2000))
    assert 0.45 < chosen["one"] / 2000 < 0.55


def test_error_defers(tenants: Tenants, caplog: pytest.LogCaptureFixture) -> None:
    """A-8: one line for each error, and again when it had worked meanwhile; what cannot be judged holds up no other."""
    for label in ("broken", "broken", "unknown", "away", "wrong"):
        assert not tenants.allows(label)
    assert caplog.text.count("could not be checked, its requests wait: RuntimeConfigurationException: no flavor") == 1
    assert "its requests wait: NotKnown: no answer yet" in caplog.text
    assert caplog.text.count("Traceback") == 1
    assert tenants.allows("small")
    assert not tenants.allows("wrong")
    assert caplog.text.count("Traceback") == 2
    tenants.reserve(kind("broken"), FULL)
    assert tenants.reserved_for(kind("small")) is None
    tenants.provider = object()
    tenants.begin_pass()
    assert tenants.allows(*["small"] * 10), "static hosts count with what others use only"
