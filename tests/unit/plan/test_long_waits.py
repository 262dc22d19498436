# SPDX-License-Identifier: Apache-2.0
"""The groups of requests in the first line of ``nodepool status`` (OV-1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.component import PoolComponent
from nodepool.model.request import NodeRequest
from nodepool.model.status import PoolStatus, RequestStatus, WaitingStatus
from nodepool.plan import explain as module
from nodepool.plan.explain import LONG_SECONDS, LongWait, WaitCause, causes, explain_request, long_waits
from nodepool.plan.explained import ExplainedRequest
from nodepool.plan.observed import Observed

NOW = 10_000.0
CORES = {"limit": 80.0, "used": 80.0, "needed": 8.0}


def request(number: int, age: float = LONG_SECONDS + 1, **fields: Any) -> NodeRequest:
    made = NodeRequest(f"200-{number:010}")
    made.state, made.node_types, made.created_time = states.REQUESTED, ["gpu"], NOW - age
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def pool(*waiting: WaitingStatus, name: str = "main", requests: tuple[RequestStatus, ...] = ()) -> PoolStatus:
    return PoolStatus(id=f"l1-{name}", provider="cloud", pool=name, state="running", waiting=waiting, requests=requests)


def waits(requests: list[NodeRequest], *pools: PoolStatus) -> list[LongWait]:
    registered = []
    for status in pools:
        registered.append(PoolComponent("l1", "12"))
        entry = registered[-1]
        entry.id, entry.provider_name, entry.name = status.id, status.provider, status.pool
        entry.supported_labels = ["gpu", "a", "b"]
    seen = Observed(
        now=NOW,
        requests={one.key: one for one in requests},
        nodes={},
        registered=registered,
        statuses=list(pools),
        events=[],
        locked=frozenset(),
    )
    return long_waits(seen)


def test_young_and_answered_requests_do_not_count() -> None:
    answered = [request(number, state=state) for number, state in enumerate([states.FULFILLED, states.FAILED])]
    assert waits([request(7, LONG_SECONDS - 1), request(8, created_time=None), *answered], pool()) == []


def test_groups_by_labels_and_cause() -> None:
    status = pool(
        WaitingStatus(("gpu",), count=2, code="room.cores", text="quota", numbers=CORES),
        WaitingStatus(("a", "b"), count=1, code="room.ram", text="quota: 5 of 5 MiB"),
    )
    requests = [request(1), request(2, 900), request(3, node_types=["b", "a"])]
    found = waits(requests, status)
    assert found == [
        LongWait(
            ("gpu",),
            WaitCause("cloud/main", "room.cores", "cores 80 of 80, 8 needed"),
            2,
            NOW - 900,
            [requests[1].key, requests[0].key],
        ),
        LongWait(("a", "b"), WaitCause("cloud/main", "room.ram", "quota: 5 of 5 MiB"), 1, NOW - 301, [requests[2].key]),
    ]


def test_one_more_instance_needs_no_number() -> None:
    numbers = {"limit": 20.0, "used": 20.0, "needed": 1.0}
    status = pool(WaitingStatus(("gpu",), count=1, code="room.instances", text="quota", numbers=numbers))
    assert waits([request(1)], status)[0].cause.text == "instances 20 of 20"


def test_tenants_whose_requests_wait_for_the_same_are_one_group() -> None:
    kinds = [
        WaitingStatus(("gpu",), None, tenant, 1, code="room.cores", text="quota", numbers=CORES)
        for tenant in ("t1", "t2")
    ]
    (wait,) = waits([request(1, tenant_name="t1"), request(2, tenant_name="t2")], pool(*kinds))
    assert wait.count == 2


def test_the_pool_that_serves_a_request() -> None:
    served = RequestStatus("200-0000000001", "launching", "served.launching", "its nodes are being launched")
    (wait,) = waits([request(1, state=states.PENDING)], pool(requests=(served,)))
    assert wait.cause == WaitCause("cloud/main", "served.launching", "its nodes are being launched")


def test_requests_behind_one_that_waits_for_room_are_of_its_group() -> None:
    text = "the pool is paused: another request waits for room (200-0000000001: quota: 80 of 80 cores)"
    status = pool(
        WaitingStatus(("gpu",), count=1, code="wait.pool-paused", text=text, numbers=CORES),
        requests=(RequestStatus("200-0000000001", "paused", "room.cores", "quota: 80 of 80 cores", CORES),),
    )
    paused = replace(status, state="paused", code="room.cores", text="quota: 80 of 80 cores")
    (wait,) = waits([request(1, state=states.PENDING), request(2)], paused)
    assert (wait.count, wait.cause) == (2, WaitCause("cloud/main", "room.cores", "cores 80 of 80, 8 needed"))


def test_nobody_has_the_label() -> None:
    (wait,) = waits([request(1, node_types=["typo"])], pool())
    assert wait.cause.text
    assert waits([request(1)])[0].cause == WaitCause("", "pool.missing", "waits: no launcher is registered")


def test_cause_of_each_request() -> None:
    """What is served has a cause of its own; of those that wait for the same, one is explained. Fulfilled: none."""
    served = (RequestStatus("200-0000000003", "launching", "served.launching", "launching 1 node", {}, NOW),)
    waiting = (WaitingStatus(("gpu",), count=2, code="room.cores", text="quota", numbers=CORES),)
    status = pool(*waiting, requests=served)
    entry = PoolComponent("l1", "12")
    entry.id, entry.provider_name, entry.name, entry.supported_labels = status.id, "cloud", "main", ["gpu"]
    requests = [request(1, 0.0), request(2), request(3, state="pending"), request(4, state="fulfilled")]
    seen = Observed(now=NOW, requests={one.key: one for one in requests}, registered=[entry], statuses=[status])
    found = causes(requests, seen)
    room = WaitCause("cloud/main", "room.cores", "cores 80 of 80, 8 needed")
    assert {key: found[key] for key in sorted(found)[:2]} == {"200-0000000001": room, "200-0000000002": room}
    assert found["200-0000000003"].text == "launching 1 node"
    assert len(found) == 3


def test_requests_that_are_served_are_not_compared_with_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is explained, so the cost must not grow with the square of their number."""
    sizes = []

    def explained(one: NodeRequest, seen: Observed) -> ExplainedRequest:
        sizes.append(len(seen.requests))
        return explain_request(one, seen)

    monkeypatch.setattr(module, "explain_request", explained)
    (found,) = waits([request(number, state=states.PENDING) for number in range(200)], pool())
    assert found.count == len(sizes) == 200
    assert max(sizes) <= 64
