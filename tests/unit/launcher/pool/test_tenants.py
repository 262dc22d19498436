# SPDX-License-Identifier: Apache-2.0
"""Tenant limits (rules A-8, Q-15, Q-16)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.driver.framework.quota_support import QuotaSupport, QuotaUnknown
from nodepool.exceptions import RuntimeConfigurationException, ZKConnectionError
from nodepool.launcher.pool.view import SETTLE_SECONDS, TenantCheck, has_place
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.quota import QuotaInformation
from nodepool.model.reasons import tenant_limit
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import RequestKind

FULL = tenant_limit("poor", "instances", limit=3, used=3, needed=1)


def allows(check: TenantCheck, kind: RequestKind, ready: Iterable[Node] | None = None) -> bool:
    return check.exceeded(kind, ready) is None


class Cloud(QuotaSupport):
    name = "one"

    def quotaNeededByLabel(self, label: str, pool: Any) -> QuotaInformation:
        if label == "broken":
            raise RuntimeConfigurationException("no flavor")
        if label == "unknown":
            raise QuotaUnknown("no answer yet")
        if label == "away":
            raise ZKConnectionError("not connected to ZooKeeper")
        if label == "wrong":
            raise ValueError("a bug")
        return QuotaInformation(cores=4 if label == "large" else 1, instances=1)

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        return QuotaInformation()

    def getProviderLimits(self) -> QuotaInformation:
        return QuotaInformation()


class Pool:
    """What `TenantCheck` sees of the pool's context."""

    pool_name = "main"
    pool_config = SimpleNamespace(name="main")
    labels = frozenset({"small", "large", "broken", "unknown", "away", "wrong"})

    def __init__(self) -> None:
        self.limits: dict[str, dict[str, float]] = {"poor": {"instances": 3, "cores": 6}}
        self.use = QuotaInformation()
        self.asked = 0
        self.provider: Any = Cloud()
        self.requests: list[NodeRequest] = []
        self.nodes: list[Node] = []

    @property
    def cache(self) -> Any:
        requests, nodes = (SimpleNamespace(values=lambda: self.requests), SimpleNamespace(values=lambda: self.nodes))
        return SimpleNamespace(requests=requests, nodes=nodes)

    def tenant_limits(self) -> dict[str, dict[str, float]]:
        return self.limits

    def tenant_use(self, name: str) -> QuotaInformation:
        self.asked += 1
        return self.use.copy()


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def check(pool: Pool) -> TenantCheck:
    return TenantCheck(cast(Any, pool), logging.getLogger("test.tenants"))


def kind(*labels: str, tenant: str | None = "poor") -> RequestKind:
    request = NodeRequest()
    request.node_types = list(labels)
    request.tenant_name = tenant
    return RequestKind.of(request)


def test_limits(pool: Pool, check: TenantCheck) -> None:
    """Q-15: limits minus use minus need must not be negative."""
    assert allows(check, kind("small", "small", "small"))
    assert not allows(check, kind("small", "small", "small", "small"))
    assert allows(check, kind("large", "small", "small"))
    assert not allows(check, kind("large", "large")), "cores"
    pool.use = QuotaInformation(instances=3)
    check.begin_pass()
    assert not allows(check, kind("small"))


def test_not_limited(pool: Pool, check: TenantCheck) -> None:
    """Q-16"""
    pool.use = QuotaInformation(instances=1000)
    assert allows(check, kind(*["small"] * 100, tenant="rich"))
    assert allows(check, kind(*["small"] * 100, tenant=None))
    assert pool.asked == 0


def test_labels_of_other_pools_do_not_count(check: TenantCheck) -> None:
    """Q-15"""
    assert allows(check, kind("small", *["elsewhere"] * 10))


def test_accepted_in_this_pass(pool: Pool, check: TenantCheck) -> None:
    """A-8: what was accepted a moment ago counts; the next pass sees it as nodes."""
    assert allows(check, kind("small", "small"))
    check.add(kind("small", "small"))
    assert not allows(check, kind("small", "small"))
    assert allows(check, kind("small"))
    check.begin_pass()
    assert allows(check, kind("small", "small"))
    check.add(kind("small", tenant="rich"))


def test_use_is_counted_once_a_pass(pool: Pool, check: TenantCheck) -> None:
    """What a check costs does not depend on how many requests wait."""
    for _ in range(10):
        allows(check, kind("small"))
    assert pool.asked == 1


def test_error_defers(pool: Pool, check: TenantCheck, caplog: pytest.LogCaptureFixture) -> None:
    """A-8: also the second time in a pass. It is said once for each error, and again when it had worked meanwhile."""
    for _ in range(3):
        assert not allows(check, kind("broken"))
    assert caplog.text.count("could not be checked, its requests wait: RuntimeConfigurationException: no flavor") == 1
    assert not allows(check, kind("unknown"))
    assert "its requests wait: QuotaUnknown: no answer yet" in caplog.text
    assert not allows(check, kind("away"))
    assert "Traceback" not in caplog.text
    assert not allows(check, kind("wrong"))
    assert caplog.text.count("Traceback") == 1
    assert allows(check, kind("small"))
    assert not allows(check, kind("wrong"))
    assert caplog.text.count("Traceback") == 2


def pending(request_id: str, *labels: str, tenant: str = "poor") -> NodeRequest:
    request = NodeRequest(request_id)
    request.node_types, request.tenant_name, request.state = list(labels), tenant, states.PENDING
    return request


def test_what_others_are_about_to_make_counts(pool: Pool, check: TenantCheck) -> None:
    """Q-15: a request that some launcher works on will need room for the nodes that it does not have yet."""
    pool.requests = [pending("1", "small", "large"), pending("2", "large", tenant="rich")]
    assert not allows(check, kind("small", "small"))
    assert allows(check, kind("small"))
    check.begin_pass()
    large, foreign = stored("01", "poor", 4), stored("02", "rich", 4)
    large.type, large.allocated_to, foreign.allocated_to = ["large"], "1", "2"
    pool.nodes, pool.use = [large, foreign], QuotaInformation(instances=1, cores=4)
    assert allows(check, kind("small")), "a node that is there counts once"
    assert not allows(check, kind("small", "small"))
    check.begin_pass()
    pool.requests[0].state = states.FULFILLED
    assert allows(check, kind("small", "small"))


def test_who_needs_less_is_not_faster(pool: Pool, check: TenantCheck) -> None:
    """Requests of a tenant that is at its limit wait in their order, those of others do not."""
    pool.use = QuotaInformation(instances=2)
    pair, single = kind("small", "small"), kind("small")
    assert check.reserved_for(pair) is None
    assert not allows(check, pair)
    check.reserve(pair, FULL)
    assert check.reserved_for(single) is FULL
    assert check.reserved_for(kind("small", tenant="rich")) is None
    assert check.reserved_for(kind("small", tenant=None)) is None
    check.begin_pass()
    assert check.reserved_for(single) is None


@pytest.mark.parametrize(("held", "waits"), [(0, True), (1, True), (2, False)])
def test_nobody_waits_for_what_does_not_fit(pool: Pool, check: TenantCheck, held: int, waits: bool) -> None:
    """A request that needs more than there will be in the near future stops none behind it."""
    pool.nodes = [stored(f"0{number}", "poor", 1) for number in range(3)]
    for node in pool.nodes[:held]:
        node.state = states.HOLD
    check.reserve(kind("small", "small"), FULL)
    assert (check.reserved_for(kind("small")) is FULL) == waits
    check.begin_pass()
    check.reserve(kind("large", "large"), FULL)
    assert check.reserved_for(kind("small")) is None, "more than the limit"


def test_limits_that_were_taken_away_meanwhile(pool: Pool, check: TenantCheck) -> None:
    """A-16: a reload between two looks declines no request."""
    pool.use = QuotaInformation(instances=3)
    assert not allows(check, kind("small"))
    pool.limits = {}
    check.reserve(kind("small"), FULL)
    assert check.reserved_for(kind("small")) is None


def test_nobody_waits_for_one_that_cannot_be_judged(check: TenantCheck) -> None:
    assert not allows(check, kind("broken"))
    check.reserve(kind("broken"), FULL)
    assert check.reserved_for(kind("small")) is None


def test_driver_without_quota(pool: Pool, check: TenantCheck) -> None:
    """Static hosts count with what others use only."""
    pool.provider = object()
    assert allows(check, kind(*["small"] * 10))


class Cache:
    """Nodes of several tenants."""

    def __init__(self, *nodes: tuple[str, str, float]) -> None:
        self.settled = True
        self.refreshed = False
        self.nodes = SimpleNamespace(
            values=lambda: [stored(*node) for node in nodes],
            refresh_stale=self._refresh_stale,
            wait_settled=self._wait_settled,
        )

    def _refresh_stale(self) -> None:
        self.refreshed = True

    def _wait_settled(self, seconds: float) -> bool:
        assert seconds == SETTLE_SECONDS
        assert self.refreshed, "what others took is under their locks"
        return self.settled


def stored(node_id: str, tenant: str, cores: float) -> Node:
    node = Node("small", node_id)
    node.tenant_name, node.resources = tenant, {"cores": cores, "instances": 1}
    return node


def test_place_of_a_stored_node() -> None:
    """Q-15: of several launchers that fill the same room the first has its place, by the ids of the nodes."""
    limits: dict[str, dict[str, float]] = {"poor": {"instances": 2, "cores": 6}}
    cache: Any = Cache(("01", "poor", 1), ("02", "rich", 9), ("03", "poor", 1), ("04", "poor", 1))
    assert has_place(stored("01", "poor", 1), limits, cache)
    assert has_place(stored("03", "poor", 1), limits, cache), "it is in the cache already, but counts once"
    assert not has_place(stored("04", "poor", 1), limits, cache)
    assert not has_place(stored("05", "poor", 1), limits, cache), "its own record may not be in the cache yet"
    assert not has_place(stored("03", "poor", 6), limits, cache)
    assert has_place(stored("05", "rich", 100), limits, cache), "Q-16: no limits"
    assert not has_place(stored("01", "poor", 1), limits, cache, reused=True), "04 may have been found in order before"
    few: Any = Cache(("01", "poor", 1), ("04", "poor", 1))
    assert has_place(stored("01", "poor", 1), limits, few, reused=True)
    cache.settled = False
    assert not has_place(stored("01", "poor", 1), limits, cache), "nobody knows"
    assert has_place(stored("05", "rich", 1), limits, cache)
