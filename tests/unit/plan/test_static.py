# SPDX-License-Identifier: Apache-2.0
"""Static hosts: their nodes, their health, and the slots that requests wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.model.states import NODE_STATES
from nodepool.plan.static import (
    FLAP_SECONDS,
    QUARANTINED,
    HostFacts,
    HostHealth,
    HostId,
    HostSpec,
    LabelSlots,
    SlotGroup,
    SlotId,
    StaticPlan,
    after_failure,
    after_success,
    by_claim,
    changed_by_scan,
    decide,
    is_our_network,
    is_parked,
    is_quarantined_by,
    missing_keys,
    new_node,
    quarantine_pause,
    replacement,
    slot_of,
    successor,
    too_few_slots,
    waits_for,
)

KEYS = ("ssh-ed25519 AAAA", "ssh-rsa BBBB")
FACTS = HostFacts(KEYS, "192.0.2.1", "2001:db8::1")
ID = HostId("h1", "zuul", 22)
WHY = "alice: the disk is broken"
PARKED: dict[str, Any] = {"state": "hold", "comment": QUARANTINED + WHY}
#: Never contacted: a node that is returned is replaced at once.
BLIND: dict[str, Any] = {"check": False, "keys_wanted": False}


def host(**fields: Any) -> HostSpec:
    return HostSpec(ID, "main", ("small",), **fields)


def node(spec: HostSpec, slot: int | None = 0, number: int = 1, **fields: Any) -> Node:
    record = new_node("lab", spec, slot or 0, FACTS)
    record.id, record.slot = f"{number:010d}", slot
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def plan(spec: HostSpec | None, *nodes: Node, locked: bool = False, held: bool = False) -> StaticPlan:
    hosts = {} if spec is None else {spec.id: spec}
    return decide(hosts, nodes, lambda _: locked, {ID: WHY} if held else {})


def test_new_node_has_the_fields_of_host_and_check() -> None:
    """S-2: the fields of a registered node."""
    spec = host(shell_type="csh", slots=2, attributes={"executor-zone": "eu"}, connection_type="network_cli")
    data = new_node("lab", spec, 1, FACTS).to_dict(now=7.0)
    expected = {
        "state": "ready",
        "type": ["small"],
        "provider": "lab",
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


FREE, SECOND = node(host()), node(host(), 0, 2)
OTHER_SLOT = node(host(), 1, 2)
LOST = node(host(slots=2), None)
HELD = node(host(), **PARKED)
USED = node(host(), 0, 2, state="in-use")
OTHER_KEYS = [node(host(), host_keys=keys) for keys in (["ssh-rsa OTHER"], [], [KEYS[0]])]
WINRM = host(keys_wanted=False, connection_type="winrm")
OF_WINRM = node(WINRM)
NEW_KEY = host(**BLIND, host_keys=("ssh-rsa NEW",))
ON_HOLD = StaticPlan(hold=[(FREE, QUARANTINED + WHY)])


@pytest.mark.parametrize(
    ("spec", "nodes", "expected"),
    [
        # S-1: one node for each slot.
        (host(slots=3), [node(host(slots=3), 1)], StaticPlan(register={ID: [0, 2]})),
        # S-10: nothing happens to a slot while a node in any other state is there.
        *((host(), [node(host(), state=state, type=["x"])], StaticPlan()) for state in NODE_STATES if state != "ready"),
        # S-6: a free node keeps its id; the order of labels is no change.
        *(
            (host(**{field: value}), [FREE], StaticPlan(update=[(FREE, {field: value})]))
            for field, value in [
                *(("shell_type", "csh"), ("python_path", "/usr/bin/python3"), ("attributes", {"a": 1})),
                ("connection_type", "network_cli"),
            ]
        ),
        (replace(host(), pool="other"), [FREE], StaticPlan(update=[(FREE, {"pool": "other"})])),
        (replace(host(), labels=("small", "b")), [FREE], StaticPlan(update=[(FREE, {"type": ["small", "b"]})])),
        (replace(host(), labels=("a", "b")), [node(host(), type=["b", "a"])], StaticPlan()),
        # S-6, S-7: allocated nodes are left alone.
        (host(python_path="x"), [node(host(), allocated_to="200-1")], StaticPlan()),
        (None, [node(host(), allocated_to="200-1")], StaticPlan()),
        # S-7: free nodes of removed slots go. S-10: so does a node too many, the younger one, or the free one.
        (host(), [FREE, OTHER_SLOT], StaticPlan(deregister=[(OTHER_SLOT, "it is not configured any more")])),
        (host(), [SECOND, FREE], StaticPlan(deregister=[(SECOND, "node 0000000001 has the same slot")])),
        (host(), [FREE, USED], StaticPlan(deregister=[(FREE, "node 0000000002 has the same slot")])),
        # S-10: nodes of old releases have no slot; clients may lose it: it occupies one that no other node has.
        (host(), [node(host(), None)], StaticPlan()),
        (host(slots=2), [node(host(), None, 1, state="in-use"), node(host(), 0, 3)], StaticPlan()),
        (host(slots=3), [node(host(), None, 1, state="in-use")], StaticPlan(register={ID: [1, 2]})),
        (host(slots=3), [node(host(), None, 1, state="in-use"), node(host(), 0, 3)], StaticPlan(register={ID: [2]})),
        (host(slots=2), [LOST, node(host(slots=2), 0, 2)], StaticPlan(update=[(LOST, {"slot": 1})])),
        # S-6: host keys that cannot be right are scanned again; S-3: a node has all scanned keys.
        *((host(host_keys=KEYS), [one], StaticPlan(rescan=[one])) for one in OTHER_KEYS),
        (host(host_keys=KEYS[:1]), [FREE], StaticPlan()),
        # S-5: without a scan the configured keys are stored, and none for other connection types.
        (NEW_KEY, [FREE], StaticPlan(update=[(FREE, {"host_keys": ["ssh-rsa NEW"]})])),
        (WINRM, [OF_WINRM], StaticPlan(update=[(OF_WINRM, {"host_keys": []})])),
    ],
)
def test_plan(spec: HostSpec | None, nodes: list[Node], expected: StaticPlan) -> None:
    """S-1, S-3, S-5, S-6, S-7, S-10; locked nodes are never changed."""
    assert plan(spec, *nodes) == expected
    locked = plan(spec, *nodes, locked=True)
    assert (locked.update, locked.deregister, locked.register) == ([], [], expected.register)


def test_lost_slot_when_all_are_taken() -> None:
    """S-10: the node goes."""
    others = [node(host(slots=2), slot, slot + 2) for slot in range(2)]
    assert [one for one, _ in plan(host(slots=2), LOST, *others).deregister] == [LOST]


@pytest.mark.parametrize("new", [("h2", "zuul", 22), ("h1", "root", 22), ("h1", "zuul", 2222), ("h1", None, 22)])
def test_another_identity_is_another_host(new: tuple[str, str | None, int]) -> None:
    """S-6: a changed name, user name or port is a new host; the old one is deregistered."""
    found = plan(replace(host(), id=HostId(*new)), FREE)
    assert (found.register, [one for one, _ in found.deregister]) == ({HostId(*new): [0]}, [FREE])


def test_claim_to_a_slot() -> None:
    """S-10: nodes in use first, locked ones too, then older ones."""
    older, younger = node(host()), node(host(), 0, 2)
    assert by_claim([younger, older], lambda _: False) == [older, younger]
    assert by_claim([older, younger], lambda one: one is younger) == [younger, older]
    younger.state = "in-use"
    assert by_claim([older, younger], lambda _: False) == [younger, older]
    odd = Node()
    odd.external_id, odd.connection_port, odd.username = "h9", {"host": "x"}, None
    assert slot_of(odd) == SlotId(HostId("h9", None, 0), 0), "records of other programs are read without an error"


def test_what_a_check_found() -> None:
    """S-6: only what differs is updated. S-3: every configured key must be among the scanned ones."""
    assert changed_by_scan(host(), FREE, FACTS) == {}
    changes = {"host_keys": ["ssh-rsa CCCC"], "public_ipv4": "192.0.2.9", "public_ipv6": None}
    assert changed_by_scan(host(), FREE, HostFacts(("ssh-rsa CCCC",), "192.0.2.9", None)) == changes
    assert missing_keys(host(host_keys=KEYS), [*KEYS, "x"]) == []
    assert missing_keys(host(host_keys=KEYS), KEYS[:1]) == ["ssh-rsa BBBB"]


def test_replacement() -> None:
    """S-5, S-7, S-8, S-10: at once only if no scan is due, and the slot is known, configured and free."""
    spec = host(**BLIND, host_keys=KEYS, slots=2)
    old = node(spec, 1, state="used", comment="x", allocated_to="r", tenant_name="t", user_data={"a": 1})
    new = replacement("lab", {ID: spec}, old)
    assert new is not None
    assert (new.to_dict(1.0), new.id) == (node(spec, 1).to_dict(1.0), None)
    for hosts in ({ID: replace(spec, slots=1)}, {ID: replace(spec, check=True)}, {}):
        assert replacement("lab", hosts, old) is None
    assert replacement("lab", {ID: spec}, node(spec, None)) is None
    for state in NODE_STATES:
        others = [node(spec, 1, 2, state=state)]
        assert successor("lab", spec, old, others, FACTS) is None
        assert replacement("lab", {ID: spec}, old, others) is None
    next_one = successor("lab", spec, old, [], FACTS)
    assert next_one is not None
    assert slot_of(next_one) == slot_of(old)


# -- quarantine (S-17)


@pytest.mark.parametrize(
    ("spec", "nodes", "held", "expected"),
    [
        # At once, and empty slots are not registered; nodes in use stay.
        (host(slots=3), [FREE, node(host(), 1, 2, allocated_to="2")], True, ON_HOLD),
        (host(host_keys=("ssh-rsa OTHER",)), [FREE], True, ON_HOLD),
        (host(), [HELD], True, StaticPlan()),
        # A released host: the node on hold goes, and keeps its slot until then.
        (host(slots=2), [HELD], False, StaticPlan(release=[HELD], register={ID: [1]})),
    ],
)
def test_quarantine(spec: HostSpec, nodes: list[Node], held: bool, expected: StaticPlan) -> None:
    """S-17: and nothing is done with nodes that are locked."""
    assert plan(spec, *nodes, held=held) == expected
    assert plan(spec, *nodes, held=held, locked=True) == StaticPlan(register=expected.register)


@pytest.mark.parametrize("held", [True, False])
def test_of_two_nodes_on_hold_in_one_slot_one_goes(held: bool) -> None:
    """S-10, S-7, S-17: so does one whose host is not configured any more."""
    second = node(host(), 0, 2, **PARKED)
    assert [found for found, _ in plan(host(), second, HELD, held=held).deregister] == [second]
    assert [found for found, _ in plan(None, HELD, held=held).deregister] == [HELD]


@pytest.mark.parametrize(
    "fields", [{"comment": "x"}, {"comment": None}, {"comment": 5}, {"hold_job": "t/p/job", "comment": QUARANTINED}]
)
def test_what_others_put_on_hold_stays_theirs(fields: dict[str, Any]) -> None:
    """S-17, S-12: `nodepool hold` and autohold of Zuul have nothing to do with a quarantine."""
    held = node(host(), state="hold", **fields)
    assert (is_parked(held), plan(host(), held)) == (False, StaticPlan())


@pytest.mark.parametrize("check", [True, False])
def test_a_returned_node_is_followed_by_one_on_hold(check: bool) -> None:
    """S-17, S-8: in the same write, whether the host is checked or not, with what is known of it."""
    spec = host(check=check, slots=2)
    used = node(spec, 1, state="used", allocated_to="200-1", user_data="zuul's")
    new = replacement("lab", {ID: spec}, used, (), WHY)
    assert new is not None
    assert (new.state, new.comment, new.slot, new.allocated_to) == ("hold", QUARANTINED + WHY, 1, None)
    assert (new.host_keys, new.public_ipv4, is_parked(new)) == (used.host_keys, used.public_ipv4, True)
    assert replacement("lab", {ID: spec}, used, [node(spec, 1, 2)], WHY) is None
    assert successor("lab", spec, FREE, (), None) is None, "a failed check has no successor"
    assert successor("lab", spec, FREE, (), None, WHY) is not None


# -- the health of a host (S-4, S-16)

AFTER = 3


def fail(health: HostHealth, now: float, times: int = 1) -> HostHealth:
    for number in range(times):
        health = after_failure(health, "no answer", now + number, AFTER)
    return health


def test_an_outage_has_one_beginning() -> None:
    """S-4: `since` is the first failure, whatever the later ones say."""
    health = after_failure(fail(HostHealth(), 100.0), "name unknown", 160.0, AFTER)
    assert (health.up, health.since, health.failures, health.text) == (False, 100.0, 2, "name unknown")
    health = after_success(health, 200.0)
    assert (health.up, health.since, health.failures, health.text) == (True, 200.0, 0, "")
    assert after_success(health, 300.0) is health


@pytest.mark.parametrize(("up_for", "row"), [(FLAP_SECONDS - 1, AFTER), (FLAP_SECONDS, 1)])
def test_a_row_of_failures_quarantines(up_for: float, row: int) -> None:
    """S-16: never when the number is 0; a short return does not end the row."""
    health = fail(HostHealth(), 0.0, AFTER - 1)
    assert not is_quarantined_by(health, AFTER)
    third = fail(health, 10.0)
    assert (is_quarantined_by(third, AFTER), is_quarantined_by(third, 0)) == (True, False)
    assert fail(after_success(health, 100.0), 100.0 + up_for).row == row


def test_pause_of_a_quarantine() -> None:
    """S-16: as long as the host has been down, 1 to 60 min; each return that did not last doubles the first one."""
    health, now, pauses = fail(HostHealth(), 0.0, AFTER), 10.0, list[float]()
    assert [quarantine_pause(health, at) for at in (3.0, 63.0, 500.0, 100_000.0)] == [60, 63, 500, 3600]
    for _ in range(8):
        now += quarantine_pause(health, now)
        pauses.append(quarantine_pause(health, health.since))
        health = fail(after_success(health, now), now + 30.0)
        now += 30.0
        assert is_quarantined_by(health, AFTER)
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    health = fail(after_success(health, now + 60.0), now + 60.0 + FLAP_SECONDS)
    assert (is_quarantined_by(health, AFTER), quarantine_pause(health, health.since)) == (False, 60)


def test_most_hosts_down_is_our_network() -> None:
    """S-16: a launcher that has lost its network takes no host from the others."""
    found = [is_our_network(*numbers) for numbers in [(3, 3), (2, 4), (50, 100), (3, 4), (51, 100)]]
    assert found == [False, False, False, True, True]


# -- what a request waits for (S-15)


@pytest.mark.parametrize(
    ("labels", "offers", "text", "numbers"),
    [
        ("aaaa", ["a"] * 3 + ["b"] * 9, "4 nodes of label a are needed, this pool has 3 slots", (4, 3)),
        ("aa", ["a"], "2 nodes of label a are needed, this pool has 1 slot", (2, 1)),
        ("ba", ["a"], "1 node of label b is needed, this pool has 0 slots", (1, 0)),
        ("ab", ["ab", "c"], "2 nodes of labels a, b are needed, this pool has 1 slot with any of them", (2, 1)),
        (
            "abcd",
            ["abc", "cba", "d"],
            "4 nodes of labels a, b, c, d are needed, this pool has 3 slots with any of them",
            (4, 3),
        ),
    ],
)
def test_more_nodes_than_slots(labels: str, offers: list[str], text: str, numbers: tuple[int, int]) -> None:
    """S-15: the label of which there are too few, and both numbers."""
    reason = too_few_slots(list(labels), [list(offer) for offer in offers])
    assert reason is not None
    assert (reason.code, reason.text) == (ReasonCode.ROOM_STATIC, text)
    assert reason.numbers == dict(zip(("needed", "slots"), numbers, strict=True))
    assert too_few_slots(["a", "b", "a"], [["a", "b"], ["a"], ["a"]]) is None
    assert too_few_slots([], []) is None


DOWN = SlotGroup().plus("zuul@h3:22", 1)
NO_SLOT = "no slot with label a is free"
ALL_DOWN = LabelSlots(8, down=SlotGroup(8, tuple(f"h{number}" for number in range(5))))
SHORT = {"a": LabelSlots(1), "b": LabelSlots(2, down=DOWN), "c": LabelSlots(1)}


@pytest.mark.parametrize(
    ("slots", "labels", "free", "text"),
    [
        ({"a": LabelSlots(3)}, "a", {}, f"{NO_SLOT}: of 3, 3 are in use"),
        (
            {"a": LabelSlots(4, down=DOWN, quarantined=SlotGroup(1, ("zuul@h4:5",)))},
            "a",
            {},
            f"{NO_SLOT}: of 4, 2 are in use, 1 is down (zuul@h3:22) and 1 is quarantined (zuul@h4:5)",
        ),
        ({"a": ALL_DOWN}, "a", {}, f"{NO_SLOT}: of 8, 8 are down (h0, h1, h2 and 2 more)"),
        (
            {"a": LabelSlots(2, unchecked=SlotGroup(1, ("h1",)))},
            "aa",
            {"a": 1},
            "2 slots with label a are needed: of 2, 1 is free and 1 is not checked yet (h1)",
        ),
        ({"a": LabelSlots()}, "a", {}, f"{NO_SLOT}: this pool has none"),
        (
            SHORT,
            "abc",
            {"c": 1},
            f"{NO_SLOT}: of 1, 1 is in use; no slot with label b is free: of 2, 1 is in use and 1 is down (zuul@h3:22)",
        ),
        (SHORT, "abb", {"a": 1, "b": 2}, "the free slots are too few for 1 a, 2 b together"),
    ],
)
def test_what_a_request_waits_for(slots: dict[str, LabelSlots], labels: str, free: dict[str, int], text: str) -> None:
    """S-15: slots in use, and hosts that cannot be used now, of the labels that are short."""
    reason = waits_for(list(labels), slots, free)
    assert (reason.code, reason.text) == (ReasonCode.WAIT_READY_NODE, text)
    if len(slots) == 1:
        assert (reason.numbers["needed"], reason.numbers["slots"]) == (len(labels), slots["a"].total)
