# SPDX-License-Identifier: Apache-2.0
"""The node table (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.table import Column, Table, age

if TYPE_CHECKING:
    from nodepool.model.node import Node

_COLUMNS: Final = (
    Column("ID", "id"),
    Column("Provider", "provider"),
    Column("Label", "label"),
    Column("Server ID", "server_id"),
    Column("Public IPv4", "public_ipv4"),
    Column("IPv6", "ipv6"),
    Column("State", "state"),
    Column("Age", "age"),
    Column("Locked", "locked"),
)
_DETAIL_COLUMNS: Final = (
    *_COLUMNS,
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


def node_table(nodes: Sequence[Node], locked: set[str], now: float, *, detail: bool = False) -> Table:
    """The node table.

    :param locked: ids of the nodes that are locked.
    :param now: seconds since the epoch, for ages.
    """
    row = _detail_row if detail else _row
    return Table(_DETAIL_COLUMNS if detail else _COLUMNS, [row(node, node.id in locked, now) for node in nodes])


def _row(node: Node, locked: bool, now: float) -> list[Any]:
    return [
        node.id,
        node.provider,
        node.type,
        node.external_id,
        node.public_ipv4,
        node.public_ipv6,
        node.state,
        age(None if node.state_time is None else now - node.state_time),
        "locked" if locked else "unlocked",
    ]


def _detail_row(node: Node, locked: bool, now: float) -> list[Any]:
    # For pods the port is an object with a token in it.
    port = node.connection_port if type(node.connection_port) is int else "redacted"
    return [
        *_row(node, locked, now),
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
