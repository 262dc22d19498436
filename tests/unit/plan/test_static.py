# SPDX-License-Identifier: Apache-2.0
"""Static hosts: their nodes, their health, and the slots that requests wait for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.model.states import NODE_STATES
from nodepool.plan import static
from tests.support.tables import rows

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


def plan(spec: static.HostSpec | None, *nodes: Node, locked: bool = False, held: bool = False) -> static.StaticPlan:
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
    assert plan(spec, *made.values(), held=held) == static.StaticPlan(register=new, **done)
    assert plan(spec, *made.values(), held=held, locked=True) == static.StaticPlan(register=new)


@pytest.mark.parametrize("state", [state for state in NODE_STATES if state != "ready"])
def test_nothing_happens_to_a_slot_while_a_node_is_there(state: str) -> None:
    """S-10: in any other state."""
    assert plan(host(), node(state=state, type=["x"])) == static.StaticPlan()


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
    found = plan(replace(host(), id=static.HostId(*new)), free)
    assert (found.register, [one for one, _ in found.deregister]) == ({static.HostId(*new): [0]}, [free])


def test_what_a_check_found() -> None:
    """S-6: only what differs is updated. S-3: every configured key must be among the scanned ones."""
    assert static.changed_by_scan(host(), node(), FACTS) == {}
    changes = {"host_keys": ["ssh-rsa CCCC"], "public_ipv4": "192.0.2.9", "public_ipv6": None}
    assert static.changed_by_scan(host(), node(), static.HostFacts(("ssh-rsa CCCC",), "192.0.2.9", None)) == changes
    assert static.missing_keys(host(host_keys=KEYS), [*KEYS, "x"]) == []
    assert static.missing_keys(host(host_keys=KEYS), KEYS[:1]) == ["ssh-rsa BBBB"]
