# SPDX-License-Identifier: Apache-2.0
"""Tables of nodes and of static hosts (reference/commands 2); then the filters of nodes and requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table
from nodepool.listing.table import ONLY_JSON, PEOPLE, WHOLE, Column, Place, Table, table_of
from nodepool.model import states
from nodepool.model.config_keys import did_you_mean
from nodepool.model.event import clock, short
from nodepool.model.request import NodeRequest, origin_of

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.model.status import HostStatus
    from nodepool.plan.pool_summary import PoolSummary

#: Keys of columns in the order in which people read them.
_PEOPLE: Final = ("id", "status", "age_seconds", "label", "provider", "pool", "tenant", "project", "pipeline", "job")


@dataclass(frozen=True)
class NodeFacts:
    """What other records say of nodes.

    :param locked: ids of the nodes that are locked.
    :param requests: those that nodes belong to, by their ids, as far as they exist.
    :param ended: requests that do not exist any more -> what is known of them, as of `origin_of`.
    :param lockers: node id -> who has its lock, as far as it is known.
    """

    locked: set[str] = field(default_factory=set)
    requests: Mapping[str, NodeRequest] = field(default_factory=dict)
    lockers: Mapping[str, str] = field(default_factory=dict)
    ended: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def node_table(
    nodes: Sequence[Node], facts: NodeFacts, now: float, *, detail: bool = False, place: Place = ONLY_JSON
) -> Table:
    """The node table.

    :param now: seconds since the epoch, for ages.
    :param detail: with all columns of released Nodepool.
    :param place: as for `table_of`.
    """
    origins = {**facts.ended, **{key: origin_of(request) for key, request in facts.requests.items()}}

    def origin(key: str) -> Callable[[Node], str | None]:
        return lambda node: None if (found := origins.get(node.allocated_to or "")) is None else found.get(key)

    def event_id(node: Node) -> str | None:
        request = facts.requests.get(node.allocated_to or "")
        return node.request_event_id if request is None else request.event_id

    def seconds(node: Node) -> float | None:
        return None if node.state_time is None else max(0.0, round(now - node.state_time, 3))

    def age(node: Node) -> str | None:
        return None if node.state_time is None else clock(now - node.state_time)

    def port(node: Node) -> int | str:
        # That of a pod is an object with a token in it.
        return node.connection_port if type(node.connection_port) is int else "redacted"

    def tenant(node: Node) -> str | None:
        return node.tenant_name or origin("tenant")(node)

    def held(name: str) -> Callable[[Node], Any]:
        return lambda node: getattr(node, name) if node.state == states.HOLD else None

    def project(node: Node) -> str | None:
        return project_of(node) or origin("project")(node)

    columns = [
        Column("ID", "id", least=WHOLE),
        Column("Provider", "provider"),
        Column("Label", "label", of="type"),
        Column("Server ID", "server_id", of="external_id", priority=6, least=WHOLE),
        Column("Public IPv4", "public_ipv4", priority=3),
        Column("IPv6", "ipv6", of="public_ipv6", places=Place.TABLE | Place.WIDE),
        Column("State", "state", places=Place.TABLE, style=table.state),
        Column("Age", "age", of=age, places=Place.TABLE),
        Column("Locked", "locked", of=lambda node: "locked" if node.id in facts.locked else "unlocked", priority=5),
    ]
    if detail:
        columns += [
            Column("Pool", "pool"),
            Column("Hostname", "hostname"),
            Column("Private IPv4", "private_ipv4"),
            Column("AZ", "AZ", of="az"),
            Column("Username", "username"),
            Column("Port", "connection_port", of=port),
            Column("Launcher", "launcher"),
            Column("Allocated To", "allocated_to"),
            Column("Hold Job", "hold_job"),
            Column("Comment", "comment"),
            Column("User Data", "user_data"),
            Column("Driver Data", "driver_data"),
        ]
    else:
        columns += [
            Column("Pool", "pool", places=Place.WIDE),
            Column("Hostname", "hostname", places=ONLY_JSON),
            Column("Hold Job", "hold_job", places=ONLY_JSON),
            Column("Request", "allocated_to", places=PEOPLE, priority=4, least=WHOLE),
        ]
    columns += [
        Column("State", "status", of=node_status, places=PEOPLE, style=table.state),
        Column("Created", "created_time", places=ONLY_JSON),
        Column("State since", "state_time", places=ONLY_JSON),
        Column("Age", "age_seconds", short, of=seconds, places=PEOPLE),
        Column("Tenant", "tenant", of=tenant, places=PEOPLE, priority=2),
        Column("Project", "project", of=project, places=PEOPLE, priority=2),
        Column("Pipeline", "pipeline", of=origin("pipeline"), places=Place.WIDE),
        Column("Job", "job", of=origin("job"), places=PEOPLE, priority=2),
        Column("Event ID", "event_id", of=event_id, places=ONLY_JSON),
        Column("Locked by", "locked_by", of=lambda node: facts.lockers.get(node.id or ""), places=Place.WIDE),
        Column("Held by", "hold_by", of=held("hold_by"), places=Place.WIDE),
        Column("Reason", "hold_reason", of=held("comment"), places=PEOPLE, priority=1),
        Column("Held until", "hold_until", table.until(now), of=held("hold_until"), places=PEOPLE, priority=1),
    ]
    return table_of(columns, nodes, "id", _PEOPLE, place)


def project_of(node: Node) -> str | None:
    """The project whose job uses a node, as Zuul writes it; None = not known."""
    name = node.user_data.get("project_name") if isinstance(node.user_data, dict) else None
    return name if isinstance(name, str) and name else None


# The table of static hosts (reference/commands 2).


def host_state(host: HostStatus) -> str:
    """``quarantined``, ``up``, ``down`` or ``not checked``."""
    if host.quarantine is not None:
        return "quarantined"
    return {True: "up", False: "down", None: "not checked"}[host.up]


def host_table(pools: Iterable[PoolSummary], now: float) -> Table:
    """The table of hosts: those that are not up first.

    :param now: seconds since the epoch.
    """
    columns = (
        Column("Host", "host", least=WHOLE),
        Column("Pool", "pool"),
        Column("State", "state", style=table.state),
        Column("Since", "since", table.since(now), priority=1),
        Column("Slots", "slots", priority=4),
        Column("Nodes", "nodes", priority=3, least=WHOLE),
        Column("Error", "error", least=60),
        Column("Next try", "next", table.until(now), priority=2),
    )
    rows = [
        [
            *(host.name, pool.name, host_state(host), host.since or None, host.slots, list(host.nodes)),
            *((host.text if host.quarantine is None else host.quarantine) or None, host.next),
        ]
        for pool in pools
        for host in pool.hosts
    ]
    return Table(columns, sorted(rows, key=lambda row: (row[2] == "up", row[1], row[0])))


# Which nodes and requests a listing shows.

#: A ready node that a request has got: it is shown as a state of its own, because no other one can get it.
ALLOCATED: Final = "allocated"


@dataclass(frozen=True)
class Filter:
    """What is wanted; an empty list or None = everything. Texts are names or patterns as of a shell, e.g. ``gpu-*``.

    :param older_than: seconds: a node in its state, a request since it was submitted.
    :param ids: as `full_id` gives them.
    """

    states: Collection[str] = ()
    labels: Sequence[str] = ()
    providers: Sequence[str] = ()
    pools: Sequence[str] = ()
    tenants: Sequence[str] = ()
    older_than: float | None = None
    ids: Sequence[str] = ()

    @property
    def everything(self) -> bool:
        """Is all wanted?"""
        narrowed = self.states or self.labels or self.providers or self.pools or self.tenants or self.ids
        return not narrowed and self.older_than is None

    def node(self, node: Node, now: float) -> bool:
        """Is a node wanted? :param now: seconds since the epoch."""
        return (
            (not self.ids or any(has_id(node.key, one) for one in self.ids))
            and (not self.states or node.state in self.states or node_status(node) in self.states)
            and (not self.labels or matches(self.labels, node.type))
            and (not self.providers or matches(self.providers, [node.provider]))
            and (not self.pools or matches(self.pools, [node.pool, f"{node.provider}/{node.pool}"]))
            and (not self.tenants or matches(self.tenants, [node.tenant_name]))
            and self._old_enough(node.state_time, now)
        )

    def request(self, request: NodeRequest, now: float) -> bool:
        """Is a request wanted? One that any provider may serve has no provider to look for."""
        return (
            (not self.ids or any(has_id(request.key, one) for one in self.ids))
            and (not self.states or request.state in self.states)
            and (not self.labels or matches(self.labels, request.node_types))
            and (not self.providers or matches(self.providers, [request.provider]))
            and (not self.tenants or matches(self.tenants, [origin_of(request).get("tenant")]))
            and self._old_enough(request.created_time, now)
        )

    def _old_enough(self, moment: float | None, now: float) -> bool:
        return self.older_than is None or (moment is not None and now - moment > self.older_than)


def full_id(text: str) -> str:
    """An id with the zeros that a person leaves out: ``0000000042`` of ``42``, ``200-0000000042`` of ``200-42``."""
    priority, dash, number = text.rpartition("-")
    short = number.isdecimal() and (not dash or priority.isdecimal())
    return f"{priority}{dash}{number.zfill(10)}" if short else text


def has_id(key: str, wanted: str) -> bool:
    """Is it the id of a node or a request? That of a request may be without its priority."""
    return wanted == key or (wanted.isdecimal() and key.endswith(f"-{wanted}"))


def names_in(text: str) -> list[str]:
    """Names or patterns, divided by commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def states_in(text: str, known: Sequence[str]) -> list[str]:
    """States, divided by commas.

    :raises ValueError: there is no such state. The text says which there are.
    """
    names = names_in(text)
    for name in names:
        if name not in known:
            there_are = f"(there are: {', '.join(known)})"
            raise ValueError(f"there is no state {name!r}{did_you_mean(name, known)} {there_are}")
    return names


def node_status(node: Node) -> str:
    """The state of a node, as people see it: ``allocated`` is a ready one that belongs to a request."""
    return ALLOCATED if node.state == states.READY and node.allocated_to is not None else node.state


def matches(patterns: Sequence[str], names: Iterable[str | None]) -> bool:
    """Does one of the names match one of the patterns? Without patterns every name does."""
    return not patterns or any(name is not None and fnmatchcase(name, p) for name in names for p in patterns)
