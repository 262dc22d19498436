# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from nodepool.model import states
from nodepool.model.pool_status import PoolStatus, RequestStatus, WaitingStatus
from nodepool.model.request import NodeRequest
from nodepool.plan.long_waits import LONG_SECONDS, LongWait, WaitCause, long_waits

NOW = 10_000.0


def request(number: int, age: float = LONG_SECONDS + 1, **fields: Any) -> NodeRequest:
    made = NodeRequest(f"200-{number}")
    made.state, made.node_types, made.created_time = states.REQUESTED, ["gpu"], NOW - age
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def pool(*waiting: WaitingStatus, name: str = "main", requests: tuple[RequestStatus, ...] = ()) -> PoolStatus:
    return PoolStatus(provider="cloud", pool=name, waiting=waiting, requests=requests)


CORES = {"limit": 80.0, "used": 80.0, "needed": 8.0}


def test_young_and_answered_requests_do_not_count() -> None:
    answered = [request(number, state=state) for number, state in enumerate([states.FULFILLED, states.FAILED])]
    assert long_waits([request(7, LONG_SECONDS - 1), request(8, created_time=None), *answered], [], NOW) == []


def test_groups_by_labels_and_cause() -> None:
    status = pool(WaitingStatus(("gpu",), count=2, code="room.cores", text="quota", numbers=CORES))
    requests = [request(1), request(2, 900), request(3, node_types=["b", "a"])]
    full = WaitCause("cloud/main", "room.cores", "cores 80 of 80, 8 needed")
    assert long_waits(requests, [status], NOW) == [
        LongWait(("gpu",), full, 2, NOW - 900, ["200-2", "200-1"]),
        LongWait(("a", "b"), WaitCause(text="no pool tells why"), 1, NOW - 301, ["200-3"]),
    ]


def test_one_more_instance_needs_no_number() -> None:
    numbers = {"limit": 20.0, "used": 20.0, "needed": 1.0}
    status = pool(WaitingStatus(("gpu",), code="room.instances", text="quota", numbers=numbers))
    assert long_waits([request(1)], [status], NOW)[0].cause.text == "instances 20 of 20"


def test_room_comes_before_order_and_turns() -> None:
    statuses = [
        pool(WaitingStatus(("gpu",), code="turn.of-another-pool", text="x"), name="a"),
        pool(WaitingStatus(("gpu",), code="wait.order", text="x"), name="b"),
        pool(WaitingStatus(("gpu",), code="room.ram", text="quota: 5 of 5 MiB"), name="c"),
    ]
    assert long_waits([request(1)], statuses, NOW)[0].cause == WaitCause("cloud/c", "room.ram", "quota: 5 of 5 MiB")


def test_kinds_of_others_do_not_count() -> None:
    status = pool(
        WaitingStatus(("gpu",), provider="other", code="room.cores", text="x"),
        WaitingStatus(("gpu",), tenant="t2", code="room.cores", text="x"),
        WaitingStatus(("gpu",), tenant="t1", code="room.tenant", text="tenant t1 is at its limit"),
    )
    (wait,) = long_waits([request(1, tenant_name="t1")], [status], NOW)
    assert wait.cause.text == "tenant t1 is at its limit"


def test_the_pool_that_serves_a_request_knows_best() -> None:
    served = RequestStatus("200-1", "launching", "served.launching", "its nodes are being launched")
    statuses = [
        pool(WaitingStatus(("gpu",), code="room.cores", text="full"), name="a"),
        pool(name="b", requests=(served,)),
    ]
    (wait,) = long_waits([request(1, state=states.PENDING)], statuses, NOW)
    assert wait.cause == WaitCause("cloud/b", "served.launching", "its nodes are being launched")
