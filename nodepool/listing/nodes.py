# SPDX-License-Identifier: Apache-2.0
"""The node table (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import styles, times
from nodepool.listing.filters import node_status
from nodepool.listing.table import ONLY_JSON, PEOPLE, Column, Place, Table
from nodepool.model import states
from nodepool.model.elapsed import clock, short
from nodepool.model.request_origin import origin_of

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest

_RELEASED: Final = (
    Column("ID", "id"),
    Column("Provider", "provider"),
    Column("Label", "label"),
    Column("Server ID", "server_id", priority=6),
    Column("Public IPv4", "public_ipv4", priority=3),
    Column("IPv6", "ipv6", places=Place.TABLE | Place.WIDE),
    Column("State", "state", places=Place.TABLE, style=styles.state),
    Column("Age", "age", places=Place.TABLE, moves=True),
    Column("Locked", "locked", priority=5),
)
_DETAIL: Final = (
    Column("Pool", "pool"),
    Column("Hostname", "hostname"),
    Column("Private IPv4", "private_ipv4"),
    Column("AZ", "AZ"),
    Column("Username", "username"),
    Column("Port", "connection_port"),
    Column("Launcher", "launcher"),
    Column("Allocated To", "allocated_to"),
    Column("Hold Job", "hold_job"),
    Column("Comment", "comment"),
    Column("User Data", "user_data"),
    Column("Driver Data", "driver_data"),
)
#: Those of released Nodepool only with ``--detail``, for people always.
_MORE: Final = (
    Column("Pool", "pool", places=Place.WIDE),
    Column("Hostname", "hostname", places=ONLY_JSON),
    Column("Hold Job", "hold_job", places=ONLY_JSON),
    Column("Request", "allocated_to", places=PEOPLE, priority=4),
)
_NEW: Final = (
    Column("State", "status", places=PEOPLE, style=styles.state),
    Column("Created", "created_time", places=ONLY_JSON),
    Column("State since", "state_time", places=ONLY_JSON),
    Column("Age", "age_seconds", short, places=PEOPLE, moves=True),
    Column("Tenant", "tenant", places=PEOPLE, priority=2),
    Column("Project", "project", places=PEOPLE, priority=2),
    Column("Pipeline", "pipeline", places=Place.WIDE),
    Column("Job", "job", places=PEOPLE, priority=2),
    Column("Event ID", "event_id", places=ONLY_JSON),
    Column("Locked by", "locked_by", places=Place.WIDE),
    Column("Held by", "hold_by", places=Place.WIDE),
    Column("Reason", "hold_reason", places=PEOPLE, priority=1),
    Column("Held until", "hold_until", places=PEOPLE, priority=1),
)
_PEOPLE: Final = ("id", "status", "age_seconds", "label", "provider", "pool", "tenant", "project", "pipeline", "job")


@dataclass(frozen=True)
class NodeFacts:
    """What other records say of nodes.

    :param locked: ids of the nodes that are locked.
    :param requests: those that nodes belong to, by their ids, as far as they exist.
    :param lockers: node id -> who has its lock, as far as it is known.
    """

    locked: set[str] = field(default_factory=set)
    requests: Mapping[str, NodeRequest] = field(default_factory=dict)
    lockers: Mapping[str, str] = field(default_factory=dict)


def node_table(nodes: Sequence[Node], facts: NodeFacts, now: float, *, detail: bool = False) -> Table:
    """The node table.

    :param now: seconds since the epoch, for ages.
    :param detail: with all columns of released Nodepool.
    """
    columns = [*_RELEASED, *(_DETAIL if detail else ()), *(column for column in _MORE if not detail), *_new(now)]
    rows = []
    for node in nodes:
        row = _released(node, node.id in facts.locked, now)
        row += _detail(node) if detail else [node.pool, node.hostname, node.hold_job, node.allocated_to]
        rows.append(row + _told(node, facts, now))
    return Table(columns, rows, "id", _PEOPLE)


def _new(now: float) -> list[Column]:
    until = Column(_NEW[-1].header, _NEW[-1].key, times.until(now), _NEW[-1].places, _NEW[-1].priority)
    return [*_NEW[:-1], until]


def _released(node: Node, locked: bool, now: float) -> list[Any]:
    return [
        node.id,
        node.provider,
        node.type,
        node.external_id,
        node.public_ipv4,
        node.public_ipv6,
        node.state,
        None if node.state_time is None else clock(now - node.state_time),
        "locked" if locked else "unlocked",
    ]


def _detail(node: Node) -> list[Any]:
    # For pods the port is an object with a token in it.
    port = node.connection_port if type(node.connection_port) is int else "redacted"
    return [
        node.pool,
        node.hostname,
        node.private_ipv4,
        node.az,
        node.username,
        port,
        node.launcher,
        node.allocated_to,
        node.hold_job,
        node.comment,
        node.user_data,
        node.driver_data,
    ]


def _told(node: Node, facts: NodeFacts, now: float) -> list[Any]:
    """Values of `_NEW`."""
    request = facts.requests.get(node.allocated_to or "")
    origin = {} if request is None else origin_of(request)
    held = node.state == states.HOLD
    return [
        node_status(node),
        node.created_time,
        node.state_time,
        None if node.state_time is None else max(0.0, round(now - node.state_time, 3)),
        node.tenant_name or origin.get("tenant"),
        project_of(node) or origin.get("project"),
        origin.get("pipeline"),
        origin.get("job"),
        node.request_event_id if request is None else request.event_id,
        facts.lockers.get(node.id or ""),
        node.hold_by if held else None,
        node.comment if held else None,
        node.hold_until if held else None,
    ]


def project_of(node: Node) -> str | None:
    """The project whose job uses a node, as Zuul writes it; None = not known."""
    name = node.user_data.get("project_name") if isinstance(node.user_data, dict) else None
    return name if isinstance(name, str) and name else None
