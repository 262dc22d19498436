# SPDX-License-Identifier: Apache-2.0
"""Rules of a pool with edges of their own: limits of tenants, room that is made, whose turn a request is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.driver.framework.fact import NotKnown
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.exceptions import RuntimeConfigurationException, ZKConnectionError
from nodepool.launcher.pool.view import TenantCheck
from nodepool.launcher.shared import FORGET_SECONDS, MAX_PASSED, TURN_SECONDS, WINDOW, FreeCounts, Turns
from nodepool.model import states
from nodepool.model.node import Node, QuotaInformation
from nodepool.model.reasons import tenant_limit
from nodepool.model.request import NodeRequest
from nodepool.plan.triage import PoolInfo, RequestKind, first_choice
from tests.support.manual_clock import ManualClock
from tests.support.tables import rows
from tests.unit.launcher.conftest import Records

# -- limits of tenants

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
        self.clock, self.nodes = clock or ManualClock(), Records()
        super().__init__(FreeCounts(cast(Any, self.nodes)), self.clock)
        self.begin_pass(pool.id, POOLS)

    def leaves(self, request: NodeRequest) -> bool:
        """Does the pool leave a request to others? If so it is passed over."""
        others = self.of_others(RequestKind.of(request), request)
        if others:
            self.pass_over(request, others)
        return bool(others)


def requests_of(owner: PoolInfo) -> Iterator[NodeRequest]:
    """Requests whose first choice is a pool."""
    for number in range(100_000):
        request = NodeRequest(f"200-{number:010}")
        request.node_types = ["small"]
        if first_choice(request.key, POOLS) is owner:
            yield request


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
