# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.plan.static`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan import static
from nodepool.plan.static import HostFacts, HostId, HostSpec, SlotId, StaticPlan

KEYS = ("ssh-ed25519 AAAA", "ssh-rsa BBBB")
FACTS = HostFacts(KEYS, "192.0.2.1", "2001:db8::1")


def host(name: str = "h1", **fields: Any) -> HostSpec:
    return HostSpec(HostId(name, "zuul", 22), "main", ("small",), **fields)


def hosts(*specs: HostSpec) -> dict[HostId, HostSpec]:
    return {spec.id: spec for spec in specs}


def node(spec: HostSpec, slot: int = 0, number: int = 1, **fields: Any) -> Node:
    record = static.new_node("static-one", spec, slot, FACTS)
    record.id = f"{number:010d}"
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def decide(specs: dict[HostId, HostSpec], *nodes: Node, locked: frozenset[str] = frozenset()) -> StaticPlan:
    return static.decide(specs, nodes, lambda n: n.id in locked)


def test_every_slot_without_a_node_is_registered() -> None:
    """S-1: one node for each slot."""
    wanted = host(slots=3)
    assert decide(hosts(wanted), node(wanted, slot=1)).register == {wanted.id: [0, 2]}


@pytest.mark.parametrize("state", [s for s in states.NODE_STATES if s != states.READY])
def test_a_node_keeps_its_slot_until_it_is_gone(state: str) -> None:
    """S-10: nothing is registered, changed or removed while a node in any other state is there."""
    wanted = host()
    assert decide(hosts(wanted), node(wanted, state=state, type=["old"])) == StaticPlan()


def test_new_node_has_the_fields_of_host_and_check() -> None:
    """S-2: the fields of a registered node."""
    spec = host(shell_type="csh", slots=2, attributes={"executor-zone": "eu"}, connection_type="network_cli")
    data = static.new_node("static-one", spec, 1, FACTS).to_dict(now=7.0)
    expected = {
        "state": "ready",
        "type": ["small"],
        "provider": "static-one",
        "pool": "main",
        "external_id": "h1",
        "hostname": "h1",
        "interface_ip": "h1",
        "public_ipv4": "192.0.2.1",
        "public_ipv6": "2001:db8::1",
        "username": "zuul",
        "connection_port": 22,
        "ssh_port": 22,
        "connection_type": "network_cli",
        "shell_type": "csh",
        "python_path": "auto",
        "host_keys": list(KEYS),
        "attributes": {"executor-zone": "eu"},
        "slot": 1,
        "launcher": "static driver",
        "resources": None,
        "allocated_to": None,
    }
    assert {name: data[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("field", "value", "changes"),
    [
        ("labels", ("small", "big"), {"type": ["small", "big"]}),
        ("shell_type", "csh", {"shell_type": "csh"}),
        ("python_path", "/usr/bin/python3", {"python_path": "/usr/bin/python3"}),
        ("connection_type", "network_cli", {"connection_type": "network_cli"}),
        ("pool", "other", {"pool": "other"}),
        ("attributes", {"a": 1}, {"attributes": {"a": 1}}),
    ],
)
def test_changed_fields_are_updated_in_place(field: str, value: Any, changes: dict[str, object]) -> None:
    """S-6: a free node keeps its id."""
    old = node(host())
    plan = decide(hosts(replace(host(), **{field: value})), old)
    assert plan == StaticPlan(update=[(old, changes)])


def test_the_order_of_labels_is_no_change() -> None:
    """S-6: an older launcher may have stored the same labels in another order."""
    spec = replace(host(), labels=("a", "b"))
    assert decide(hosts(spec), node(spec, type=["b", "a"])) == StaticPlan()


@pytest.mark.parametrize(
    ("fields", "locked"), [({"allocated_to": "200-0000000001"}, frozenset[str]()), ({}, frozenset({"0000000001"}))]
)
def test_nodes_in_use_are_left_alone(fields: dict[str, Any], locked: frozenset[str]) -> None:
    """S-6, S-7: only ready, unallocated, unlocked nodes are changed or removed."""
    busy = node(host(), **fields)
    assert decide(hosts(replace(host(), python_path="x")), busy, locked=locked) == StaticPlan()
    assert decide({}, busy, locked=locked) == StaticPlan()


@pytest.mark.parametrize(
    "new_id", [HostId("h2", "zuul", 22), HostId("h1", "root", 22), HostId("h1", "zuul", 2222), HostId("h1", None, 22)]
)
def test_another_identity_is_another_host(new_id: HostId) -> None:
    """S-6: a changed name, user name or port is a new host; the old one is deregistered."""
    old = node(host())
    plan = decide(hosts(replace(host(), id=new_id)), old)
    assert plan.register == {new_id: [0]}
    assert [found for found, _ in plan.deregister] == [old]


def test_slots_that_are_not_configured_any_more_are_deregistered() -> None:
    """S-7: free nodes of removed slots go."""
    keep, drop = node(host(), 0, 1), node(host(), 1, 2)
    plan = decide(hosts(host(slots=1)), keep, drop)
    assert plan == StaticPlan(deregister=[(drop, "it is not configured any more")])


def test_of_two_nodes_in_one_slot_the_used_one_stays() -> None:
    """S-10: a node too many is removed when it is free, whatever its age."""
    free, used = node(host(), 0, 1), node(host(), 0, 2, state=states.IN_USE)
    plan = decide(hosts(host()), free, used)
    assert plan == StaticPlan(deregister=[(free, "node 0000000002 has the same slot")])
    first, second = node(host(), 0, 1), node(host(), 0, 2)
    assert [found for found, _ in decide(hosts(host()), second, first).deregister] == [second]


def test_a_node_without_slot_has_the_first_one() -> None:
    """S-10: nodes of old releases have no slot; they must not be registered twice."""
    old = node(host())
    old.slot = None
    assert decide(hosts(host()), old) == StaticPlan()


def test_nodes_that_lost_their_slot() -> None:
    """S-10: a client may write a node of several without its slot: it occupies one that no other node has."""
    spec = host(slots=3)
    lost = [node(spec, number=number, state="in-use") for number in (1, 2)]
    for record in lost:
        record.slot = None
    known = node(spec, slot=0, number=3)
    assert decide(hosts(spec), *lost, known) == StaticPlan()
    assert decide(hosts(spec), lost[0], known).register == {spec.id: [2]}
    assert decide(hosts(spec), lost[0]).register == {spec.id: [1, 2]}


def test_free_node_that_lost_its_slot_gets_one() -> None:
    """S-10: or it goes, when there is none."""
    spec = host(slots=2)
    lost = node(spec, number=1)
    lost.slot = None
    assert decide(hosts(spec), lost, node(spec, slot=0, number=2)) == StaticPlan(update=[(lost, {"slot": 1})])
    others = [node(spec, slot=number, number=number + 2) for number in range(2)]
    assert [gone for gone, _ in decide(hosts(spec), lost, *others).deregister] == [lost]


def test_no_replacement_for_a_node_that_lost_its_slot() -> None:
    """S-10: its successor could have the slot of another node."""
    spec = host(check=False, keys_wanted=False, slots=2)
    lost = node(spec)
    lost.slot = None
    assert static.replacement("static-one", hosts(spec), lost) is None


@pytest.mark.parametrize("state", states.NODE_STATES)
def test_no_successor_while_another_node_has_the_slot(state: str) -> None:
    """S-10: whoever registered it: the slot is its own when the returned node goes."""
    spec = host(check=False, keys_wanted=False)
    returned, other = node(spec, number=1), node(spec, number=2, state=state)
    assert static.successor("static-one", spec, returned, [other], FACTS) is None
    assert static.replacement("static-one", hosts(spec), returned, [other]) is None
    new = static.successor("static-one", spec, returned, [], FACTS)
    assert new is not None
    assert static.slot_of(new) == static.slot_of(returned)


def test_claim_to_a_slot() -> None:
    """S-10: nodes in use first, locked ones too, then older ones."""
    older, younger = node(host(), number=1), node(host(), number=2)
    assert static.by_claim([younger, older], lambda _: False) == [older, younger]
    assert static.by_claim([older, younger], lambda n: n is younger) == [younger, older]
    younger.state = states.IN_USE
    assert static.by_claim([older, younger], lambda _: False) == [younger, older]


@pytest.mark.parametrize("keys", [[], ["ssh-rsa OTHER"], ["ssh-ed25519 AAAA"]])
def test_host_keys_that_cannot_be_right_are_scanned_again(keys: list[str]) -> None:
    """S-6: newly configured host keys need a new scan, not a blind update."""
    old = node(host(), host_keys=keys)
    assert decide(hosts(host(host_keys=KEYS)), old) == StaticPlan(rescan=[old])


def test_configured_keys_among_the_scanned_ones_are_no_change() -> None:
    """S-3: the node has all scanned keys; the configuration may name some of them."""
    assert decide(hosts(host(host_keys=KEYS[:1])), node(host())) == StaticPlan()


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        (host(check=False, keys_wanted=False, host_keys=("ssh-rsa NEW",)), ["ssh-rsa NEW"]),
        (host(check=True, keys_wanted=False, connection_type="winrm"), []),
    ],
)
def test_keys_of_unscanned_hosts_follow_the_configuration(spec: HostSpec, keys: list[str]) -> None:
    """S-5: without a scan the configured keys are stored, and none for other connection types."""
    old = node(spec)
    assert decide(hosts(spec), old) == StaticPlan(update=[(old, {"host_keys": keys})])


def test_a_new_check_updates_only_what_differs() -> None:
    """S-6: host keys and addresses that a new check found."""
    spec = host(python_path="auto")
    assert static.changed_by_scan(spec, node(spec), FACTS) == {}
    newer = HostFacts(("ssh-rsa CCCC",), "192.0.2.9", None)
    assert static.changed_by_scan(spec, node(spec), newer) == {
        "host_keys": ["ssh-rsa CCCC"],
        "public_ipv4": "192.0.2.9",
        "public_ipv6": None,
    }


def test_replacement_only_for_hosts_that_are_never_contacted() -> None:
    """S-5, S-7, S-8: a returned node is replaced at once only if no scan is due and the slot is still there."""
    spec = host(check=False, keys_wanted=False, host_keys=KEYS, slots=2)
    old = node(spec, 1, state=states.USED, comment="x", allocated_to="r", tenant_name="t", user_data={"a": 1})
    new = static.replacement("static-one", hosts(spec), old)
    assert new is not None
    assert new.to_dict(1.0) == node(spec, 1).to_dict(1.0)
    assert new.id is None
    assert new.slot == 1
    assert new.public_ipv6 == "2001:db8::1"
    assert static.replacement("static-one", hosts(replace(spec, slots=1)), old) is None
    assert static.replacement("static-one", hosts(replace(spec, check=True)), old) is None
    assert static.replacement("static-one", {}, old) is None


def test_missing_keys() -> None:
    """S-3: every configured key must be among the scanned ones."""
    assert static.missing_keys(host(host_keys=KEYS), [*KEYS, "x"]) == []
    assert static.missing_keys(host(host_keys=KEYS), KEYS[:1]) == ["ssh-rsa BBBB"]


def test_slot_of_a_foreign_record() -> None:
    """S-10: records that another program wrote are read without an error."""
    odd = Node()
    odd.external_id, odd.connection_port, odd.username = "h9", {"host": "x"}, None
    assert static.slot_of(odd) == SlotId(HostId("h9", None, 0), 0)
