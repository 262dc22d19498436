# SPDX-License-Identifier: Apache-2.0
"""What a pool does with a waiting request (rules A): each rule alone, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from nodepool.model import reasons
from nodepool.model.node import Node
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.plan.nodes import ReadyNodes
from nodepool.plan.queue import MIN_READY_REQUESTOR, RequestKind
from nodepool.plan.triage import (
    Consider,
    Decline,
    Fulfil,
    HeadVerdict,
    KindVerdict,
    Launch,
    Leave,
    Verdict,
    Wait,
    triage,
    triage_kind,
)

TENANT_FULL = reasons.tenant_limit("poor", "instances", limit=2, used=2, needed=1)
PAUSED = reasons.pool_paused("100-0", reasons.quota_used_up("pool main", "cores", limit=8, used=8, needed=4))
TENANT_ORDER = Reason(ReasonCode.WAIT_TENANT_ORDER, "another one first")


def ready(*labels: str) -> ReadyNodes:
    found = ReadyNodes()
    for number, label in enumerate(labels):
        node = Node(label, id=str(number))
        node.state = "ready"
        found.put(node)
    return found


@dataclass
class View:
    """A pool with room for all that comes; each test changes something."""

    launches: bool = True
    ready: ReadyNodes = field(default_factory=ReadyNodes)
    sibling_serves: bool = False
    turn_of_another: bool = False
    max_concurrency: float = -1
    launches_running: int = 0
    paused: bool = False
    why_paused: Reason = PAUSED
    provider_paused: str | None = None
    basic_objection: Reason | None = None
    objection: Reason | None = None
    tenant_limited: bool = False
    tenant_order: Reason | None = None
    tenant_full: Reason | None = None
    shortage_of_ready: Reason | None = None
    shortage: Reason | None = None
    verdict: Verdict = field(default_factory=Consider)
    agreed: bool = False
    hold: Reason | None = None

    def tenant_shortage(self, nodes: Sequence[Node] | None = None) -> Reason | None:
        return self.tenant_full if nodes is None else self.shortage_of_ready

    def no_ready_node(self, labels: Sequence[str]) -> Reason:
        return reasons.NO_READY_NODE

    def screened(self, kind: RequestKind) -> Verdict:
        return self.verdict

    def held(self, kind: RequestKind) -> Reason | None:
        return self.hold

    def driver_agreed(self, kind: RequestKind) -> bool:
        return self.agreed


def request(*labels: str, reuse: bool = True) -> NodeRequest:
    made = NodeRequest("100-1")
    made.node_types = list(labels)
    made.reuse = reuse
    return made


def judge(view: View, *labels: str, reuse: bool = True) -> HeadVerdict:
    head = request(*labels, reuse=reuse)
    return triage(RequestKind.of(head), head, view)


def judge_kind(view: View) -> KindVerdict:
    return triage_kind(RequestKind.of(request("small")), view)


@pytest.mark.parametrize("verdict", [Leave(reasons.FIRST_CHOICE), Decline(reasons.POOL_DISABLED), Consider()])
def test_screening_comes_first(verdict: Verdict) -> None:
    """A-2 to A-6: what the registry says holds for the whole kind."""
    assert judge_kind(View(verdict=verdict)) == verdict


def test_what_an_operator_holds_back_waits() -> None:
    """MT-3, MT-5: whatever else there is to say of it; what is not for the pool at all is not held back."""
    held = Reason(ReasonCode.PROVIDER_PAUSED, "provider one is paused")
    assert judge_kind(View(hold=held, ready=ready("small"))) == Wait(held)
    assert judge_kind(View(hold=held, launches=False, agreed=True)) == Wait(held)
    assert judge_kind(View(hold=held, verdict=Leave(reasons.FIRST_CHOICE))) == Leave(reasons.FIRST_CHOICE)


@pytest.mark.parametrize(
    ("view", "waits"),
    [
        ({"launches": False, "agreed": True}, True),
        ({"launches": False, "agreed": False}, False),
        ({"launches": True, "agreed": True}, False),
        ({"launches": False, "agreed": True, "ready": ready("small")}, False),
    ],
)
def test_kinds_that_wait_for_a_ready_node(view: dict[str, Any], waits: bool) -> None:
    """A-7: nothing is asked of the driver again for requests that only a ready node can serve."""
    assert judge_kind(View(**view)) == (Wait(reasons.NO_READY_NODE) if waits else Consider())


def test_launch() -> None:
    assert judge(View(), "small") == Launch()


def test_ready_nodes() -> None:
    """N-1: in the order of the wanted labels."""
    verdict = judge(View(ready=ready("big", "small")), "small", "big")
    assert isinstance(verdict, Fulfil)
    assert [node.type for node in verdict.nodes] == [["small"], ["big"]]


def test_empty_request() -> None:
    """A-20"""
    assert judge(View()) == Fulfil(())


def test_no_reuse() -> None:
    """N-4"""
    assert judge(View(ready=ready("small")), "small", reuse=False) == Launch()


def test_not_enough_ready_nodes() -> None:
    assert judge(View(ready=ready("small")), "small", "small") == Launch()
    assert judge(View(ready=ready("small"), launches=False), "small", "small") == Wait(reasons.NO_READY_NODE)


def test_another_pool_works_on_it() -> None:
    assert judge(View(sibling_serves=True, max_concurrency=0), "small") == Leave(reasons.SIBLING_SERVES)


@pytest.mark.parametrize(
    ("view", "left"),
    [
        ({}, True),
        ({"paused": True}, False),
        ({"provider_paused": "HTTP 503"}, False),
        ({"launches": False}, False),
        ({"launches": False, "ready": ready("small")}, True),
        ({"paused": True, "ready": ready("small")}, True),
    ],
)
def test_turn_of_another_pool(view: dict[str, Any], left: bool) -> None:
    """A-5: a pool that could do nothing for the request has no turn to give away."""
    assert (judge(View(turn_of_another=True, **view), "small") == Leave(reasons.FIRST_CHOICE)) is left


def test_nothing_is_ever_launched() -> None:
    """A-22"""
    assert judge(View(max_concurrency=0, ready=ready("small")), "small") == Decline(reasons.NO_LAUNCHES)


def test_a_handler_that_runs_asks_the_rest_itself() -> None:
    """A-13: all objections are asked for only where the handler does not get to it."""
    never, broken = reasons.EXCEEDS_QUOTA, reasons.POOL_DISABLED
    assert judge(View(objection=never), "small") == Launch()
    assert judge(View(basic_objection=broken), "small") == Decline(broken)
    for stopped in ({"paused": True}, {"launches": False}, {"provider_paused": "away"}, {"max_concurrency": 1}):
        view = View(objection=never, launches_running=1, **stopped)
        assert judge(view, "small") == Decline(never)


def test_paused_pool() -> None:
    """A-9: also with ready nodes."""
    assert judge(View(paused=True, ready=ready("small")), "small") == Wait(PAUSED)


@pytest.mark.parametrize(("running", "full"), [(1, False), (2, True), (3, True)])
def test_max_concurrency(running: int, full: bool) -> None:
    """A-10"""
    verdict = judge(View(max_concurrency=2, launches_running=running), "small")
    if not full:
        assert verdict == Launch()
        return
    assert isinstance(verdict, Wait)
    assert verdict.reason.code is ReasonCode.WAIT_MAX_CONCURRENCY
    assert verdict.reason.text == "max-concurrency of 2 launches is reached"
    assert verdict.reason.numbers == {"limit": 2, "used": running}


def test_tenant() -> None:
    """A-8: the first one that does not fit keeps the room for itself; an order comes before a limit."""
    assert judge(View(tenant_full=TENANT_FULL), "small") == Wait(TENANT_FULL, first_of_tenant=True)
    assert judge(View(tenant_full=TENANT_FULL, tenant_order=TENANT_ORDER), "small") == Wait(TENANT_ORDER)


def test_ready_nodes_of_a_limited_tenant() -> None:
    """Q-15: where others may fill the limit at the same time, it is looked at again under the lock."""
    nodes = ready("small")
    assert judge(View(tenant_limited=True, ready=nodes), "small") == Launch()
    assert isinstance(judge(View(tenant_limited=True, ready=nodes, launches=False), "small"), Fulfil)
    too_large = View(tenant_limited=True, ready=nodes, shortage_of_ready=TENANT_FULL)
    assert judge(too_large, "small") == Launch(), "a new node may be smaller"
    too_large.provider_paused = "HTTP 503"
    assert isinstance(judge(too_large, "small"), Wait)


def test_provider_that_launches_nothing_now() -> None:
    """Ready nodes are there whether the cloud answers or not."""
    view = View(provider_paused="HTTP 503", ready=ready("small"))
    assert isinstance(judge(view, "small"), Fulfil)
    assert judge(view, "big") == Wait(Reason(ReasonCode.PROVIDER_CIRCUIT_OPEN, "HTTP 503"))


def test_what_keeps_nodes_ready_waits_for_room_in_the_queue() -> None:
    """Q-7, M-7: it is taken when there is room. Others are taken at once: they pause the pool, and make room."""
    full = reasons.quota_used_up("pool main", "instances", limit=4, used=4, needed=1)
    head = request("small", reuse=False)
    assert triage(RequestKind.of(head), head, View(shortage=full)) == Launch()
    head.requestor = MIN_READY_REQUESTOR
    kind = RequestKind.of(head)
    assert triage(kind, head, View(shortage=full)) == Wait(full)
    assert triage(kind, head, View(shortage=full, objection=reasons.EXCEEDS_QUOTA)) == Decline(reasons.EXCEEDS_QUOTA)
    assert triage(kind, head, View()) == Launch()
