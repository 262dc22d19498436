# SPDX-License-Identifier: Apache-2.0
"""The node table (reference/commands 2)."""

from __future__ import annotations

from nodepool.listing.nodes import node_table
from nodepool.model import states
from nodepool.model.node import Node


def make_node(**fields: object) -> Node:
    node = Node(["small", "debian"])
    node.id = "0000000007"
    node.state = states.READY
    node.state_time = 1000.0
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def test_row() -> None:
    """reference/commands 2: nine columns; the age counts from the last change of state."""
    table = node_table([make_node(provider="lab", external_id="host-1", public_ipv4="192.0.2.1")], set(), 1061.0)
    assert [column.key for column in table.columns] == [
        *("id", "provider", "label", "server_id", "public_ipv4", "ipv6", "state", "age", "locked")
    ]
    row = ["0000000007", "lab", ["small", "debian"], "host-1", "192.0.2.1", None, "ready", "00:00:01:01", "unlocked"]
    assert table.rows == [row]


def test_locked() -> None:
    assert node_table([make_node()], {"0000000007"}, 1000.0).rows[0][-1] == "locked"


def test_token_of_a_pod_is_not_shown() -> None:
    """reference/commands 2: the connection of a pod is an object with a token."""
    rows = [
        node_table([make_node(connection_port=port)], set(), 1000.0, detail=True).rows[0]
        for port in (22, {"token": "secret"})
    ]
    assert [row[14] for row in rows] == [22, "redacted"]
