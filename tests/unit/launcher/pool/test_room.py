# SPDX-License-Identifier: Apache-2.0
"""Whether there is room for another request, without ZooKeeper (rules A-8 to A-10)."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool.room import Room
from nodepool.logconfig import ContextLogger, get_annotated_logger
from nodepool.model.node import Node
from nodepool.model.quota import QuotaInformation
from nodepool.model.reasons import ReasonCode
from nodepool.plan.queue import RequestKind


class Place:
    """A pool whose tenant ``poor`` may have two instances."""

    labels = frozenset({"small"})

    def __init__(self) -> None:
        self.max_concurrency = -1.0
        self.running = 0
        self.used = 0
        self.reason: str | None = None
        self.provider = SimpleNamespace(name="one", pausedReason=lambda: self.reason)
        none = SimpleNamespace(values=list)
        self.cache = SimpleNamespace(requests=none, nodes=none)
        self.desk = SimpleNamespace(paused=False)
        self.room = Room(cast(Any, self), cast(Any, self.desk), logging.getLogger("test.room"))

    def launches_running(self) -> int:
        return self.running

    def tenant_limits(self) -> dict[str, dict[str, float]]:
        return {"poor": {"instances": 2}}

    def tenant_use(self, name: str) -> QuotaInformation:
        return QuotaInformation(instances=self.used)


def kind(tenant: str | None = "poor") -> RequestKind:
    return RequestKind(("small",), None, frozenset(), tenant, True, False)


def handler(room: float) -> Any:
    log = get_annotated_logger(logging.getLogger("test.room"), node_request_id="200-1")
    provider = SimpleNamespace(name="one")
    return SimpleNamespace(provider=provider, log=log, room_ahead=lambda: _told(room))


def _told(room: float) -> float:
    """As the quota of a provider, which all requests share."""
    ContextLogger(logging.getLogger("test.quota")).error("Provider one: a label can never work")
    return room


@pytest.fixture
def place() -> Place:
    return Place()


def test_pool_and_provider(place: Place) -> None:
    before = (place.room.paused, place.room.provider_paused)
    place.desk.paused, place.reason = True, "HTTP 503"
    assert [before, (place.room.paused, place.room.provider_paused)] == [(False, None), (True, "HTTP 503")]


@pytest.mark.parametrize(
    ("says", "limit", "running", "ahead"),
    [(math.inf, -1, 5, math.inf), (4, -1, 5, 4), (4, 7, 5, 2), (1, 7, 5, 1), (4, 5, 5, 0)],
)
def test_requests_that_have_room_for_sure(place: Place, says: float, limit: float, running: int, ahead: float) -> None:
    """A-10: as many as driver and ``max-concurrency`` allow."""
    place.max_concurrency, place.running = limit, running
    assert place.room.ahead(kind("rich"), handler(says)) == ahead


def test_errors_met_on_the_way_have_the_ids(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """J-5"""
    place.room.ahead(kind("rich"), handler(1))
    assert caplog.messages == ["[node_request: 200-1] Provider one: a label can never work"]


def test_tenants_with_limits_go_one_by_one(place: Place) -> None:
    """A-8: what one of them takes is known only when it has its nodes."""
    assert place.room.ahead(kind(), handler(10)) == 1


def test_tenant(place: Place) -> None:
    """Q-15, and the order within a tenant for the rest of the pass."""
    node = Node("small")
    node.resources = {"instances": 1}
    place.used = 1
    place.room.begin_pass()
    assert (place.room.tenant_limited(kind()), place.room.tenant_limited(kind("rich"))) == (True, False)
    assert place.room.tenant_shortage(kind(), [node]) is None
    shortage = place.room.tenant_shortage(kind(), [node, node])
    assert shortage is not None
    assert (shortage.code, shortage.text) == (
        ReasonCode.ROOM_TENANT,
        "tenant poor uses 1 of 2 instances, 2 more needed",
    )
    assert place.room.tenant_order(kind()) is None
    place.room.keep_for_tenant(kind(), shortage)
    order = place.room.tenant_order(kind())
    assert order is not None
    assert order.code is ReasonCode.WAIT_TENANT_ORDER
    assert (order.numbers, order.text.rpartition(": ")[2]) == (shortage.numbers, shortage.text)
    place.room.begin_pass()
    assert place.room.tenant_order(kind()) is None


def test_place_of_a_tenant_without_limits(place: Place) -> None:
    """Q-16"""
    node = Node("small")
    node.tenant_name = "rich"
    assert place.room.has_place(node)
