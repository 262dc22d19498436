# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.plan.static`: nodes of quarantined hosts (S-17)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.component import PoolComponent
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import HostStatus, PoolStatus, WaitingStatus
from nodepool.plan import static
from nodepool.plan.explain import explain_node, explain_request
from nodepool.plan.observed import Observed
from nodepool.plan.static import QUARANTINED, HostFacts, HostId, HostSpec, StaticPlan

FACTS = HostFacts(("ssh-rsa AAAA",), "192.0.2.1", None)
ID = HostId("h1", "zuul", 22)
WHY = "alice: the disk is broken"
PARKED: dict[str, Any] = {"state": states.HOLD, "comment": QUARANTINED + WHY}


def node(spec: HostSpec, slot: int = 0, number: int = 1, **fields: Any) -> Node:
    record = static.new_node("lab", spec, slot, FACTS)
    record.id = f"{number:010d}"
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def spec(**fields: Any) -> HostSpec:
    return HostSpec(ID, "main", ("small",), **fields)


def decide(host: HostSpec, *nodes: Node, held: bool = True, locked: bool = False) -> StaticPlan:
    return static.decide({host.id: host}, nodes, lambda _: locked, {host.id: WHY} if held else {})


def test_free_nodes_go_on_hold() -> None:
    """S-17: at once, and empty slots are not registered."""
    host = spec(slots=3, host_keys=("ssh-rsa OTHER",))
    free, allocated = node(host), node(host, 1, 2, allocated_to="200-1")
    assert decide(host, free, allocated) == StaticPlan(hold=[(free, QUARANTINED + WHY)])
    assert decide(host, free, locked=True) == StaticPlan()


def test_a_node_on_hold_stays_while_its_host_is_quarantined() -> None:
    """S-17: it keeps its slot; released launchers register nothing there either."""
    host = spec()
    assert decide(host, node(host, **PARKED)) == StaticPlan()
    other = node(host, **{**PARKED, "state": states.READY})
    assert decide(host, other).hold


@pytest.mark.parametrize("held", [True, False])
def test_of_two_nodes_on_hold_in_one_slot_one_goes(held: bool) -> None:
    """S-10: somebody registered the slot twice."""
    host = spec()
    first, second = node(host, **PARKED), node(host, 0, 2, **PARKED)
    assert [found for found, _ in decide(host, second, first, held=held).deregister] == [second]


def test_a_released_host_is_registered_again() -> None:
    """S-17: the node on hold goes, and the slot is registered, after a check."""
    host = spec(slots=2)
    parked = node(host, **PARKED)
    plan = decide(host, parked, held=False)
    assert plan.release == [parked]
    assert plan.register == {ID: [1]}, "it has its slot until it is gone"
    assert decide(host, parked, held=False, locked=True) == StaticPlan(register={ID: [1]})


@pytest.mark.parametrize(
    "fields",
    [{"comment": "I look at it"}, {"comment": None}, {"comment": 5}, {"hold_job": "t/p/job", "comment": QUARANTINED}],
)
def test_what_others_put_on_hold_stays_theirs(fields: dict[str, Any]) -> None:
    """S-17, S-12: `nodepool hold` and autohold of Zuul have nothing to do with a quarantine."""
    host = spec()
    held = node(host, state=states.HOLD, **fields)
    assert not static.is_parked(held)
    assert decide(host, held, held=False) == StaticPlan()


def test_a_quarantined_host_that_is_not_configured_any_more() -> None:
    """S-7, S-17: nobody will release it."""
    parked = node(spec(), **PARKED)
    (plan,) = [static.decide({}, [parked], lambda _: False, {ID: WHY})]
    assert [found for found, _ in plan.deregister] == [parked]


@pytest.mark.parametrize("check", [True, False])
def test_a_returned_node_is_followed_by_one_on_hold(check: bool) -> None:
    """S-17, S-8: in the same write, whether the host is checked or not, with what is known of it."""
    host = spec(check=check, slots=2)
    used = node(host, 1, state=states.USED, allocated_to="200-1", user_data="zuul's")
    new = static.replacement("lab", {ID: host}, used, (), WHY)
    assert new is not None
    assert (new.state, new.comment, new.slot, new.allocated_to) == (states.HOLD, QUARANTINED + WHY, 1, None)
    assert (new.host_keys, new.public_ipv4) == (used.host_keys, used.public_ipv4)
    assert static.is_parked(new)
    assert static.replacement("lab", {ID: host}, used, [node(host, 1, 2)], WHY) is None


def test_a_failed_check_has_no_successor() -> None:
    """S-8: unless the host is quarantined meanwhile."""
    host = spec()
    assert static.successor("lab", host, node(host), (), None) is None
    assert static.successor("lab", host, node(host), (), None, WHY) is not None


def test_how_a_quarantine_ends_is_explained() -> None:
    """S-17: for its node on hold, and for a request that waits for the host."""
    parked = node(spec(), provider="lab", pool="main", **PARKED)
    told = explain_node(parked, Observed(now=1000.0, nodes={parked.key: parked}))
    assert told.hold_reason == PARKED["comment"]
    assert told.remedies == ["nodepool release zuul@h1:22 ends the quarantine of its host"]
    request = NodeRequest("200-0000000001")
    request.node_types, request.state = ["small"], states.REQUESTED
    pool = PoolComponent("l1", "12.0.0")
    pool.id, pool.provider_name, pool.name, pool.supported_labels = "l1-lab-main", "lab", "main", ["small"]
    waiting = WaitingStatus(["small"], count=1, code="wait.ready-node", text="no slot is free")
    hosts = [HostStatus(str(ID), True, quarantine=WHY), HostStatus("zuul@h2:22", False, "no answer")]
    status = PoolStatus(id=pool.id, host="l1", provider="lab", pool="main", waiting=[waiting], hosts=hosts)
    seen = Observed(now=1000.0, requests={request.key: request}, registered=[pool], statuses=[status])
    assert explain_request(request, seen).remedies[:2] == [
        f"host zuul@h1:22 is quarantined: {WHY}; nodepool release zuul@h1:22 ends that",
        "host zuul@h2:22 is down: no answer",
    ]
