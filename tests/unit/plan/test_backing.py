# SPDX-License-Identifier: Apache-2.0
"""Slots of backing nodes and of static hosts: who gets which, what is requested and released, who could make one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.model.states import NODE_STATES
from nodepool.model.status import Maintenance, Mode, PoolComponent
from nodepool.plan import backing as plan
from nodepool.plan import static
from tests.support.tables import rows

NOW = 1000.0


def rules(**limits: Any) -> plan.Rules:
    some = {"slots": 3, "grace_seconds": 60, "min_retention_seconds": 0, "max_age_seconds": None}
    return plan.Rules(**{**some, **limits})


def backing(id: str, holders: tuple[str | None, ...], **changes: Any) -> plan.Backing:
    """A backing node; empty ones have been so for a moment."""
    idle = None if any(holders) else 1.0
    values = {"kind": plan.BackingKind("small", "big"), "failed": False, "age_seconds": 100.0, "idle_seconds": idle}
    return plan.Backing(id, holders=holders, **{**values, **changes})


@rows(__file__, "slots_of_backing_nodes")
def test_slots(backings: dict[str, str], max_age: float | None, expected: str) -> None:
    """T-1, T-7, T-9, T-11, T-10: none at all without a label."""
    there = []
    for name, text in backings.items():
        holders, _, more = text.partition(" ")
        changes: dict[str, Any] = {"age_seconds": float(more)} if more.isdigit() else {"failed": bool(more)}
        there.append(backing(name, tuple(None if one == "-" else one for one in holders), **changes))
    found = plan.assign(["1", "2", "3", "4", "5"], there, rules(max_age_seconds=max_age))
    assert " ".join(f"{one.backing_id}/{one.slot}" for one in found) == expected
    assert [one.node_id for one in found] == ["1", "2", "3", "4", "5"][: len(found)]
    assert not plan.accepts(there[0], None)
    assert plan.assign([], there, rules()) == []


@rows(__file__, "shares")
def test_shares(
    waiting: dict[str, str | None], requests: list[str], slots: int, shares: dict[str, str], left: list[str]
) -> None:
    """T-2"""
    assert plan.share(waiting, requests, slots) == (shares, left)


@rows(__file__, "fate")
def test_fate(backing_: dict[str, Any], limits: dict[str, Any], expected: float | None) -> None:
    """T-8, T-9, T-11, T-10: without a label an empty one goes at once."""
    one = backing("b", (None,), **backing_)
    found = plan.fate(one, rules(**limits))
    assert isinstance(found, plan.Release) if expected is None else found == plan.Retain(expected)
    assert isinstance(plan.fate(one, None), plan.Retain if expected == math.inf else plan.Release)


# -- who could make one, and is any of them in service? (T-13)


def pool(text: str) -> PoolComponent:
    provider, host, label, *free = text.split()
    component = PoolComponent(host)
    component.id = f"{host}.example.com-PoolWorker.{provider}-main-0"
    component.provider_name, component.name = provider, "main"
    component.supported_labels, component.paused = [label], not free
    return component


def record(text: str, since: float = 900.0) -> Maintenance:
    kind, name, *until = text.split()
    mode = Mode.DRAIN if kind == "launcher" else Mode.PAUSE
    return Maintenance(kind, name, mode, "why", "alice@desk", since, float(until[0]) if until else None)


@rows(__file__, "makers_held")
def test_makers_held(pools: list[str], records: list[str], declined_by: list[str], expected: list[str]) -> None:
    """T-13, MT-2"""
    held = {(one.kind, one.name): one for one in map(record, records)}
    ids = [pool(f"{text} big").id for text in declined_by]
    found = plan.makers_held("big", map(pool, pools), ids, held, NOW)
    assert [f"{one.kind} {one.name}" for one in found] == expected


def test_reason() -> None:
    """T-13: who did it, and when it ends."""
    one, two = record("provider one"), record("pool two/main 1100", 950.0)
    found = plan.reason("small", "big", [one, two])
    assert (found.code, found.numbers) == (ReasonCode.BACKING_HELD, {"since": 950.0, "until": 1100.0})
    assert found.text.startswith("label small needs a node of label big, which")
    assert found.text.endswith(f": {one.text}; {two.text}")
    assert plan.reason("small", "big", [one]).numbers == {"since": 900.0}


# -- static hosts: their nodes, their health, and the slots that requests wait for


KEYS = ("ssh-ed25519 AAAA", "ssh-rsa BBBB")
FACTS = static.HostFacts(KEYS, "192.0.2.1", "2001:db8::1")
ID = static.HostId("h1", "zuul", 22)
WHY = "alice: the disk"


def host(**fields: Any) -> static.HostSpec:
    lists: dict[str, Any] = {name: tuple(fields.pop(name)) for name in ("labels", "host_keys") if name in fields}
    return static.HostSpec(**{"id": ID, "pool": "main", "labels": ("small",), **fields, **lists})


def node(slot: int | None = 0, number: int = 1, spec: static.HostSpec | None = None, **fields: Any) -> Node:
    record = static.new_node("lab", spec or host(), slot or 0, FACTS)
    record.id, record.slot = f"{number:010d}", slot
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def planned(spec: static.HostSpec | None, *nodes: Node, locked: bool = False, held: bool = False) -> static.StaticPlan:
    hosts = {} if spec is None else {spec.id: spec}
    return static.decide(hosts, nodes, lambda _: locked, {ID: WHY} if held else {})


@rows(__file__, "new_static_node")
def test_new_node_has_the_fields_of_host_and_check(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """S-2: the fields of a registered node."""
    data = static.new_node("lab", host(**fields), 1, FACTS).to_dict(now=7.0)
    assert {name: data[name] for name in expected} == expected


@rows(__file__, "static_plan")
def test_plan(host_: dict[str, Any] | None, nodes: dict[int, dict[str, Any]], expected: dict[str, Any]) -> None:
    """S-1, S-3, S-5, S-6, S-7, S-10, S-12, S-17; locked nodes are never changed."""
    fields = dict(host_ or {})
    held = fields.pop("quarantined", False)
    spec = None if host_ is None else host(**fields)
    made = {number: node(number=number, **told) for number, told in nodes.items()}

    def by_number(entry: Any) -> Any:
        return (made[entry[0]], *entry[1:]) if isinstance(entry, list) else made[entry]

    done = {name: [by_number(entry) for entry in found] for name, found in expected.items() if name != "register"}
    new = {ID: expected["register"]} if "register" in expected else {}
    assert planned(spec, *made.values(), held=held) == static.StaticPlan(register=new, **done)
    assert planned(spec, *made.values(), held=held, locked=True) == static.StaticPlan(register=new)


@pytest.mark.parametrize("state", [state for state in NODE_STATES if state != "ready"])
def test_nothing_happens_to_a_slot_while_a_node_is_there(state: str) -> None:
    """S-10: in any other state."""
    assert planned(host(), node(state=state, type=["x"])) == static.StaticPlan()


# -- the health of a host (S-4, S-16)

AFTER = 3


def fail(health: static.HostHealth, now: float, times: int = 1) -> static.HostHealth:
    for number in range(times):
        health = static.after_failure(health, "no answer", now + number, AFTER)
    return health


def test_an_outage_has_one_beginning() -> None:
    """S-4: `since` is the first failure, whatever the later ones say."""
    health = static.after_failure(fail(static.HostHealth(), 100.0), "name unknown", 160.0, AFTER)
    assert (health.up, health.since, health.failures, health.text) == (False, 100.0, 2, "name unknown")
    health = static.after_success(health, 200.0)
    assert (health.up, health.since, health.failures, health.text) == (True, 200.0, 0, "")
    assert static.after_success(health, 300.0) is health


@pytest.mark.parametrize(("up_for", "row"), [(static.FLAP_SECONDS - 1, AFTER), (static.FLAP_SECONDS, 1)])
def test_a_row_of_failures_quarantines(up_for: float, row: int) -> None:
    """S-16: never when the number is 0; a short return does not end the row."""
    health = fail(static.HostHealth(), 0.0, AFTER - 1)
    assert not static.is_quarantined_by(health, AFTER)
    third = fail(health, 10.0)
    assert (static.is_quarantined_by(third, AFTER), static.is_quarantined_by(third, 0)) == (True, False)
    assert fail(static.after_success(health, 100.0), 100.0 + up_for).row == row


def test_pause_of_a_quarantine() -> None:
    """S-16: as long as the host has been down, 1 to 60 min; each return that did not last doubles the first one."""
    health, now, pauses = fail(static.HostHealth(), 0.0, AFTER), 10.0, list[float]()
    assert [static.quarantine_pause(health, at) for at in (3.0, 63.0, 500.0, 100_000.0)] == [60, 63, 500, 3600]
    for _ in range(8):
        now += static.quarantine_pause(health, now)
        pauses.append(static.quarantine_pause(health, health.since))
        health = fail(static.after_success(health, now), now + 30.0)
        now += 30.0
        assert static.is_quarantined_by(health, AFTER)
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    health = fail(static.after_success(health, now + 60.0), now + 60.0 + static.FLAP_SECONDS)
    assert (static.is_quarantined_by(health, AFTER), static.quarantine_pause(health, health.since)) == (False, 60)


def test_most_hosts_down_is_our_network() -> None:
    """S-16: a launcher that has lost its network takes no host from the others."""
    found = [static.is_our_network(*numbers) for numbers in [(3, 3), (2, 4), (50, 100), (3, 4), (51, 100)]]
    assert found == [False, False, False, True, True]


# -- what a request waits for (S-15)


@rows(__file__, "too_few_slots")
def test_more_nodes_than_slots(labels: str, offers: list[str], text: str, numbers: list[int]) -> None:
    """S-15: the label of which there are too few, and both numbers."""
    reason = static.too_few_slots(list(labels), [list(offer) for offer in offers])
    assert reason is not None
    assert (reason.code, reason.text) == (ReasonCode.ROOM_STATIC, text)
    assert reason.numbers == dict(zip(("needed", "slots"), numbers, strict=True))
    assert static.too_few_slots(["a", "b", "a"], [["a", "b"], ["a"], ["a"]]) is None
    assert static.too_few_slots([], []) is None


@rows(__file__, "waits_for_slots")
def test_what_a_request_waits_for(
    slots: dict[str, dict[str, Any]], labels: str, free: dict[str, int], text: str
) -> None:
    """S-15: slots in use, and hosts that cannot be used now, of the labels that are short."""
    known: dict[str, dict[str, dict[str, int]]] = {}
    for label, told in slots.items():
        unusable = {name: found for name, found in told.items() if name != "total"}
        hosts = {"unchecked": static.UNCHECKED}
        known[label] = {
            # The first host has those slots that the others, with one each, have not.
            hosts.get(name, name): dict.fromkeys(found[1:], 1) | {found[1]: found[0] - len(found) + 2}
            for name, found in unusable.items()
        }
        known[label][""] = {"up": told.get("total", 0) - sum(found[0] for found in unusable.values())}
    reason = static.waits_for(list(labels), known, free)
    assert (reason.code, reason.text) == (ReasonCode.WAIT_READY_NODE, text)
    if len(slots) == 1:
        assert (reason.numbers["needed"], reason.numbers["slots"]) == (len(labels), slots["a"].get("total", 0))


@pytest.mark.parametrize("new", [("h2", "zuul", 22), ("h1", "root", 22), ("h1", "zuul", 2222), ("h1", None, 22)])
def test_another_identity_is_another_host(new: tuple[str, str | None, int]) -> None:
    """S-6: a changed name, user name or port is a new host; the old one is deregistered."""
    free = node()
    found = planned(replace(host(), id=static.HostId(*new)), free)
    assert (found.register, [one for one, _ in found.deregister]) == ({static.HostId(*new): [0]}, [free])


def test_what_a_check_found() -> None:
    """S-6: only what differs is updated. S-3: every configured key must be among the scanned ones."""
    assert static.changed_by_scan(host(), node(), FACTS) == {}
    changes = {"host_keys": ["ssh-rsa CCCC"], "public_ipv4": "192.0.2.9", "public_ipv6": None}
    assert static.changed_by_scan(host(), node(), static.HostFacts(("ssh-rsa CCCC",), "192.0.2.9", None)) == changes
    assert static.missing_keys(host(host_keys=KEYS), [*KEYS, "x"]) == []
    assert static.missing_keys(host(host_keys=KEYS), KEYS[:1]) == ["ssh-rsa BBBB"]
