# SPDX-License-Identifier: Apache-2.0
"""Decisions about static hosts (rules S).

First which slots must be registered, updated in place or deregistered, then which slots could serve a request, then
when a host that failed is checked again or quarantined.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from nodepool.model import states
from nodepool.model.event import counted, named
from nodepool.model.node import Node
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan.retries import Backoff
from nodepool.plan.triage import can_match

#: ``launcher`` of static nodes (S-2).
STATIC_LAUNCHER = "static driver"
#: How the comment of a node begins that is on hold because its host is quarantined (S-17).
QUARANTINED: Final = "quarantine: "


class HostId(NamedTuple):
    """Identity of a host within its provider (S-6)."""

    name: str
    username: str | None
    port: int

    def __str__(self) -> str:
        return f"{self.username}@{self.name}:{self.port}"


class SlotId(NamedTuple):
    """One place for one node."""

    host: HostId
    slot: int


@dataclass(frozen=True)
class HostSpec:
    """A host as it is configured.

    :param host_keys: keys that must be among the scanned ones.
    :param check: False: the host is never contacted (``host-key-checking: false``).
    :param keys_wanted: SSH host keys are read from the host; only with ``check``.
    :param slots: nodes on this host.
    :param timeout_seconds: for one check.
    :param quarantine_after: so many failed checks in a row quarantine the host; 0 = none do.
    """

    id: HostId
    pool: str
    labels: tuple[str, ...]
    connection_type: str = "ssh"
    shell_type: str | None = None
    python_path: str = "auto"
    host_keys: tuple[str, ...] = ()
    check: bool = True
    keys_wanted: bool = True
    slots: int = 1
    timeout_seconds: float = 5.0
    quarantine_after: int = 0
    attributes: dict[str, Any] | None = field(default=None)
    allowed_tenants: tuple[str, ...] | None = None


@dataclass(frozen=True)
class HostFacts:
    """What a check found out about a host.

    :param host_keys: keys to store in its nodes.
    """

    host_keys: tuple[str, ...] = ()
    public_ipv4: str | None = None
    public_ipv6: str | None = None


@dataclasses.dataclass
class StaticPlan:
    """What to do.

    :param register: empty slots of each host, ascending.
    :param update: free nodes and the fields that differ from the configuration.
    :param rescan: free nodes whose host keys must be read again before they are right.
    :param deregister: free nodes that must go, with the reason.
    :param hold: free nodes of quarantined hosts, with the comment that says why.
    :param release: nodes on hold whose hosts are not quarantined any more: they go, and new ones come.
    """

    register: dict[HostId, list[int]] = field(default_factory=dict)
    update: list[tuple[Node, dict[str, Any]]] = field(default_factory=list)
    rescan: list[Node] = field(default_factory=list)
    deregister: list[tuple[Node, str]] = field(default_factory=list)
    hold: list[tuple[Node, str]] = field(default_factory=list)
    release: list[Node] = field(default_factory=list)


def slot_of(node: Node) -> SlotId:
    """The place that a static node has. Nodes of old releases have no slot: they are the only one of their host."""
    port = node.connection_port if isinstance(node.connection_port, int) else 0
    return SlotId(HostId(node.hostname or str(node.external_id), node.username, port), node.slot or 0)


def knows_slot(spec: HostSpec, node: Node) -> bool:
    """Does a node of this host tell which slot it has? Clients that write only what they know drop that."""
    return node.slot is not None or spec.slots == 1


def is_free(node: Node) -> bool:
    """May the node be changed, if no one holds its lock?"""
    return node.state == states.READY and node.allocated_to is None


def is_parked(node: Node) -> bool:
    """Is the node on hold only because its host is quarantined? Others put nodes on hold, too: those stay theirs."""
    comment = node.comment if isinstance(node.comment, str) else ""
    return node.state == states.HOLD and node.hold_job is None and comment.startswith(QUARANTINED)


def decide(
    hosts: Mapping[HostId, HostSpec],
    nodes: Iterable[Node],
    is_locked: Callable[[Node], bool],
    quarantined: Mapping[HostId, str] = MappingProxyType({}),
) -> StaticPlan:
    """Compare a provider's configuration with its nodes.

    :param nodes: all nodes of the provider, in any state: a node occupies its slot until it does not exist any more.
    :param quarantined: hosts that are taken out of service, and why.
    """
    plan = StaticPlan()
    taken: dict[SlotId, Node] = {}
    slotless: list[Node] = []
    for node in by_claim(nodes, is_locked):
        slot = slot_of(node)
        spec = hosts.get(slot.host)
        if spec is not None and not knows_slot(spec, node):
            slotless.append(node)
            continue
        locked = is_locked(node)
        free, parked = is_free(node) and not locked, is_parked(node) and not locked
        unwanted = "it is not configured any more" if spec is None or slot.slot >= spec.slots else ""
        if spec is not None and slot in taken:
            unwanted = unwanted or f"node {taken[slot].id} has the same slot"
        if spec is None or unwanted:
            if free or parked:
                plan.deregister.append((node, unwanted))
            continue
        # It has its slot until it has ended, also if it is about to go.
        taken[slot] = node
        if slot.host not in quarantined and parked:
            plan.release.append(node)
        elif free and slot.host in quarantined:
            plan.hold.append((node, QUARANTINED + quarantined[slot.host]))
        elif free:
            _compare(plan, spec, node)
    for node in slotless:
        host, free = slot_of(node).host, is_free(node) and not is_locked(node)
        # A node that does not tell its slot takes the first one that no other node has.
        places = (SlotId(host, number) for number in range(hosts[host].slots))
        place = next((place for place in places if place not in taken), None)
        if place is not None:
            taken[place] = node
        if free and place is not None:
            plan.update.append((node, {"slot": place.slot}))
        elif free:
            plan.deregister.append((node, "other nodes have all slots of its host"))
    for host, spec in hosts.items():
        empty = [number for number in range(spec.slots) if SlotId(host, number) not in taken]
        if empty and host not in quarantined:
            plan.register[host] = empty
    return plan


def by_claim(nodes: Iterable[Node], is_locked: Callable[[Node], bool]) -> list[Node]:
    """Nodes in use first, then older ones: of two nodes in one slot the first one stays (S-10)."""
    return sorted(nodes, key=lambda node: (is_free(node) and not is_locked(node), node.key))


def _compare(plan: StaticPlan, spec: HostSpec, node: Node) -> None:
    """Note what is different about a free node (S-6)."""
    if needs_scan(spec, node):
        plan.rescan.append(node)
        return
    changes = different_fields(spec, node)
    if not spec.keys_wanted:
        keys = list(unscanned_keys(spec))
        if node.host_keys != keys:
            changes["host_keys"] = keys
    if changes:
        plan.update.append((node, changes))


def unscanned_keys(spec: HostSpec) -> tuple[str, ...]:
    """Host keys of nodes whose host is not asked for them (S-5)."""
    return () if spec.check else spec.host_keys


def needs_scan(spec: HostSpec, node: Node) -> bool:
    """Are the node's host keys not what a check would have found?"""
    return spec.keys_wanted and (not node.host_keys or not set(spec.host_keys) <= set(node.host_keys))


def different_fields(spec: HostSpec, node: Node) -> dict[str, Any]:
    """Fields of a node that are not as its host is configured; host keys are another matter."""
    changes = {name: value for name, value in _fields(spec).items() if getattr(node, name) != value}
    if sorted(node.type) == sorted(spec.labels):
        changes.pop("type", None)
    return changes


def _fields(spec: HostSpec) -> dict[str, Any]:
    """Node fields that come from the configuration and may change without a new node."""
    return {
        "type": list(spec.labels),
        "pool": spec.pool,
        "connection_type": spec.connection_type,
        "shell_type": spec.shell_type,
        "python_path": spec.python_path,
        "attributes": spec.attributes,
    }


def changed_by_scan(spec: HostSpec, node: Node, facts: HostFacts) -> dict[str, Any]:
    """Fields of a free node that are not what a new check of its host found."""
    changes = different_fields(spec, node)
    found = {"public_ipv4": facts.public_ipv4, "public_ipv6": facts.public_ipv6, "host_keys": list(facts.host_keys)}
    changes.update((name, value) for name, value in found.items() if getattr(node, name) != value)
    return changes


def new_node(provider: str, spec: HostSpec, slot: int, facts: HostFacts) -> Node:
    """The record of a host's slot (S-2); `ready`, not stored yet."""
    node = Node()
    node.state = states.READY
    node.provider = provider
    node.launcher = STATIC_LAUNCHER
    node.external_id = node.hostname = node.interface_ip = spec.id.name
    node.username = spec.id.username
    node.connection_port = spec.id.port
    node.public_ipv4 = facts.public_ipv4
    node.public_ipv6 = facts.public_ipv6
    node.host_keys = list(facts.host_keys)
    node.slot = slot
    for name, value in _fields(spec).items():
        setattr(node, name, value)
    return node


def successor(
    provider: str,
    spec: HostSpec,
    node: Node,
    others: Sequence[Node],
    facts: HostFacts | None,
    quarantined: str | None = None,
) -> Node | None:
    """The record that follows a returned node in the same write; None = the slot has none then (S-10).

    :param spec: the host of the node, which has its slot.
    :param others: the other nodes of the same slot: it is theirs when this one goes.
    :param facts: what a check of the host found; None = it was not checked, or failed.
    :param quarantined: why the host is taken out of service: the record is on hold (S-17).
    """
    if others or not knows_slot(spec, node) or (facts is None and quarantined is None):
        return None
    new = new_node(provider, spec, slot_of(node).slot, facts or known_facts(node))
    if quarantined is not None:
        new.state = states.HOLD
        new.comment = QUARANTINED + quarantined
    return new


def known_facts(node: Node) -> HostFacts:
    """What the last check of the host found, as far as its node tells."""
    return HostFacts(tuple(node.host_keys), node.public_ipv4, node.public_ipv6)


def replacement(
    provider: str,
    hosts: Mapping[HostId, HostSpec],
    node: Node,
    others: Sequence[Node] = (),
    quarantined: str | None = None,
) -> Node | None:
    """The record that follows a returned node at once: only if its host is never contacted, or quarantined.

    :param others: as for `successor`.
    :param quarantined: why the host is taken out of service; None = it is not.
    """
    slot = slot_of(node)
    spec = hosts.get(slot.host)
    if spec is None or slot.slot >= spec.slots:
        return None
    if quarantined is not None:
        return successor(provider, spec, node, others, None, quarantined)
    if spec.check:
        return None
    return successor(provider, spec, node, others, HostFacts(spec.host_keys, node.public_ipv4, node.public_ipv6))


def missing_keys(spec: HostSpec, scanned: Iterable[str]) -> list[str]:
    """Configured host keys that the host does not have (S-3)."""
    return sorted(set(spec.host_keys) - set(scanned))


# Which slots could serve a request, and what keeps it waiting? (rules S-11, S-15)

#: Hosts that a text names; of others it says how many there are.
MAX_NAMED: Final = 3


#: Why a host cannot be used: it failed its last check, is taken out of service, or its first check has not ended.
DOWN: Final = "down"
ASIDE: Final = "quarantined"
UNCHECKED: Final = "not checked yet"
#: The slots of a pool with one label: why they cannot be used (empty = they can be) -> host -> number of its slots.
LabelSlots = Mapping[str, Mapping[str, int]]


def too_few_slots(labels: Sequence[str], offers: Sequence[Collection[str]]) -> Reason | None:
    """Why a pool can never serve a request, even if all its hosts were free; None = it can.

    :param labels: one for each wanted node.
    :param offers: labels of each slot of the pool.
    """
    if can_match(labels, offers):
        return None
    wanted = Counter(labels)
    short = next(_short_subsets(wanted, offers), tuple(sorted(wanted)))
    needed = sum(wanted[label] for label in short)
    slots = _slots_with(short, offers)
    what = "label" if len(short) == 1 else "labels"
    alone = " with any of them" if len(short) > 1 else ""
    verb = "is" if needed == 1 else "are"
    labels_needed = f"{counted(needed, 'node')} of {what} {', '.join(short)}"
    text = f"{labels_needed} {verb} needed, this pool has {counted(slots, 'slot')}{alone}"
    return Reason(ReasonCode.ROOM_STATIC, text, {"needed": needed, "slots": slots})


def _short_subsets(wanted: Counter[str], offers: Sequence[Collection[str]]) -> Iterator[tuple[str, ...]]:
    """Labels that together have fewer slots than are wanted of them; no more than two at a time are tried."""
    for size in (1, 2):
        for subset in combinations(sorted(wanted), size):
            if _slots_with(subset, offers) < sum(wanted[label] for label in subset):
                yield subset


def _slots_with(labels: Collection[str], offers: Sequence[Collection[str]]) -> int:
    return sum(1 for offer in offers if any(label in offer for label in labels))


def waits_for(labels: Sequence[str], slots: Mapping[str, LabelSlots], free: Mapping[str, int]) -> Reason:
    """What a request waits for that only ready nodes can serve.

    :param labels: one for each wanted node.
    :param slots: of the pool, by label.
    :param free: ready nodes that no one has, by label.
    """
    wanted = Counter(labels)
    short = [label for label in sorted(wanted) if free.get(label, 0) < wanted[label]]
    if not short:
        named = ", ".join(f"{count} {label}" for label, count in sorted(wanted.items()))
        return Reason(ReasonCode.WAIT_READY_NODE, f"the free slots are too few for {named} together", {})
    found = [_waits_for_one(label, wanted[label], slots.get(label, {}), free.get(label, 0)) for label in short]
    return Reason(ReasonCode.WAIT_READY_NODE, "; ".join(reason.text for reason in found), found[0].numbers)


def _waits_for_one(label: str, needed: int, slots: LabelSlots, free: int) -> Reason:
    total = sum(sum(hosts.values()) for hosts in slots.values())
    unusable = {how: sum(slots.get(how, {}).values()) for how in (DOWN, ASIDE, UNCHECKED)}
    in_use = max(0, total - free - sum(unusable.values()))
    parts = [f"{_are(count)} {how}" for count, how in ((free, "free"), (in_use, "in use")) if count]
    parts += [f"{_are(n)} {how} ({named(list(slots[how]), MAX_NAMED)})" for how, n in unusable.items() if n]
    head = f"no slot with label {label} is free" if needed == 1 else f"{needed} slots with label {label} are needed"
    numbers = {
        "needed": needed,
        "slots": total,
        "free": free,
        "in_use": in_use,
        "down": unusable[DOWN],
        "quarantined": unusable[ASIDE],
    }
    text = f"{head}: of {total}, {_listed(parts)}" if parts else f"{head}: this pool has none"
    return Reason(ReasonCode.WAIT_READY_NODE, text, numbers)


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


# When is a static host checked again after a failure, and when is it quarantined? (rules S-4, S-16)

#: From a check that failed to the next one.
RETRY: Final = Backoff(1.0, 60.0)
#: From the beginning of a quarantine to the next check: longer with each return of the host that did not last.
QUARANTINE: Final = Backoff(60.0, 3600.0)
#: A host that fails again so soon after its return flaps: its row of failures goes on.
FLAP_SECONDS: Final = 600.0
#: From one message that a host is down to the next one.
TELL_AGAIN: Final = Backoff(600.0, 3600.0)
#: A provider with no more hosts than this has no majority that says anything.
FEW_HOSTS: Final = 3


@dataclass(frozen=True)
class HostHealth:
    """What the checks of a host have shown.

    :param up: did the last one succeed? None = there was none.
    :param text: why it is not up.
    :param since: when ``up`` became what it is, in seconds since the epoch.
    :param failures: failed checks since then.
    :param row: failures in a row; it goes on if the host fails again within `FLAP_SECONDS` of its return.
    :param returns: how often it came back within this row after it had been quarantined.
    """

    up: bool | None = None
    text: str = ""
    since: float = 0.0
    failures: int = 0
    row: int = 0
    returns: int = 0


def after_failure(before: HostHealth, text: str, now: float, quarantine_after: int) -> HostHealth:
    """A check failed.

    :param now: seconds since the epoch.
    :param quarantine_after: length of a row that quarantines a host; 0 = none does.
    """
    if before.up is False:
        return replace(before, text=text, failures=before.failures + 1, row=before.row + 1)
    flaps = before.up is True and before.row > 0 and now - before.since < FLAP_SECONDS
    if not flaps:
        return HostHealth(False, text, now, failures=1, row=1)
    returns = before.returns + 1 if is_quarantined_by(before, quarantine_after) else before.returns
    return HostHealth(False, text, now, failures=1, row=before.row + 1, returns=returns)


def after_success(before: HostHealth, now: float) -> HostHealth:
    """A check succeeded. :param now: seconds since the epoch."""
    if before.up:
        return before
    return HostHealth(True, "", now, row=before.row, returns=before.returns)


def is_quarantined_by(health: HostHealth, quarantine_after: int) -> bool:
    """Is a row of failures so long that the host is quarantined?"""
    return 0 < quarantine_after <= health.row


def quarantine_pause(health: HostHealth, now: float) -> float:
    """Seconds until a host that failed just now is checked again, if it is quarantined.

    As long as it has been down already, between the bounds of `QUARANTINE`.

    :param now: seconds since the epoch.
    """
    return min(QUARANTINE.longest_seconds, max(QUARANTINE.pause(health.returns + 1), now - health.since))


def is_our_network(down: int, hosts: int) -> bool:
    """Is it likely that the launcher has lost its network? Then no host is quarantined for it.

    :param down: hosts of the provider that failed their last check. ``hosts``: all that were checked.
    """
    return hosts > FEW_HOSTS and down * 2 > hosts
