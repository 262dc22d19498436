# SPDX-License-Identifier: Apache-2.0
"""Which static hosts must be registered, updated in place or deregistered? (rules S)"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.quick_dataclass import dataclass

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
    """May the node be changed, if nobody holds its lock?"""
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
        free = is_free(node) and not is_locked(node)
        if spec is None or slot.slot >= spec.slots:
            if free or _may_go(node, is_locked):
                plan.deregister.append((node, "it is not configured any more"))
            continue
        if slot in taken:
            if free or _may_go(node, is_locked):
                plan.deregister.append((node, f"node {taken[slot].id} has the same slot"))
            continue
        # It has its slot until it is gone, also if it is about to go.
        taken[slot] = node
        if slot.host not in quarantined and _may_go(node, is_locked):
            plan.release.append(node)
        elif free and slot.host in quarantined:
            plan.hold.append((node, QUARANTINED + quarantined[slot.host]))
        elif free:
            _compare(plan, spec, node)
    for node in slotless:
        free = is_free(node) and not is_locked(node)
        _place(plan, node, free, [SlotId(slot_of(node).host, n) for n in range(hosts[slot_of(node).host].slots)], taken)
    for host, spec in hosts.items():
        empty = [number for number in range(spec.slots) if SlotId(host, number) not in taken]
        if empty and host not in quarantined:
            plan.register[host] = empty
    return plan


def _may_go(node: Node, is_locked: Callable[[Node], bool]) -> bool:
    return is_parked(node) and not is_locked(node)


def by_claim(nodes: Iterable[Node], is_locked: Callable[[Node], bool]) -> list[Node]:
    """Nodes in use first, then older ones: of two nodes in one slot the first one stays (S-10)."""
    return sorted(nodes, key=lambda node: (is_free(node) and not is_locked(node), node.key))


def _place(plan: StaticPlan, node: Node, free: bool, places: Iterable[SlotId], taken: dict[SlotId, Node]) -> None:
    """A node that does not tell its slot takes the first of ``places`` that no other node has."""
    place = next((place for place in places if place not in taken), None)
    if place is not None:
        taken[place] = node
        if free:
            plan.update.append((node, {"slot": place.slot}))
    elif free:
        plan.deregister.append((node, "other nodes have all slots of its host"))


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
