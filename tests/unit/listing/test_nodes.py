# SPDX-License-Identifier: Apache-2.0
"""The node table (reference/commands 2)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.listing.nodes import NodeFacts, node_table
from nodepool.listing.table import Place, shown
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest

NOW = 1061.0


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
    node = make_node(provider="lab", external_id="host-1", public_ipv4="192.0.2.1")
    table = shown(node_table([node], NodeFacts(), 1061.0), Place.TABLE)
    assert [column.key for column in table.columns] == [
        *("id", "provider", "label", "server_id", "public_ipv4", "ipv6", "state", "age", "locked")
    ]
    row = ["0000000007", "lab", ["small", "debian"], "host-1", "192.0.2.1", None, "ready", "00:00:01:01", "unlocked"]
    assert table.rows == [row]


@pytest.mark.parametrize("detail", [True, False])
def test_keys_are_unique_and_new_ones_come_last(detail: bool) -> None:
    keys = [column.key for column in node_table([], NodeFacts(), NOW, detail=detail).columns]
    assert len(keys) == len(set(keys))
    assert keys[:9] == ["id", "provider", "label", "server_id", "public_ipv4", "ipv6", "state", "age", "locked"]
    assert {"pool", "hold_job", "allocated_to", "status", "age_seconds", "tenant", "hold_until"} < set(keys)
    if detail:
        assert keys[9:21] == [
            *("pool", "hostname", "private_ipv4", "AZ", "username", "connection_port", "launcher", "allocated_to"),
            *("hold_job", "comment", "user_data", "driver_data"),
        ]


def test_what_people_see() -> None:
    """In the order in which they read it; released columns that tell the same are not there."""
    keys = [column.key for column in shown(node_table([], NodeFacts(), NOW), Place.TERMINAL).columns]
    assert keys == [
        *("id", "status", "age_seconds", "label", "provider", "tenant", "project", "job"),
        *("server_id", "public_ipv4", "locked", "allocated_to", "hold_reason", "hold_until"),
    ]


def told(node: Node, facts: NodeFacts | None = None) -> dict[str, Any]:
    table = node_table([node], facts or NodeFacts(), NOW)
    return {column.key: value for column, value in zip(table.columns, table.rows[0], strict=True)}


def test_for_whom_a_node_is() -> None:
    request = NodeRequest("200-0000000001")
    request.event_id = "e"
    request.requestor_data = {"job_name": "unit", "pipeline_name": "check", "tenant_name": "t"}
    node = make_node(allocated_to=request.id, user_data={"project_name": "p"}, created_time=900.0)
    row = told(node, NodeFacts(requests={request.key: request}, lockers={node.key: "Zuul executor e1"}))
    assert (row["state"], row["status"]) == ("ready", "allocated")
    assert (row["tenant"], row["project"], row["pipeline"], row["job"]) == ("t", "p", "check", "unit")
    assert (row["event_id"], row["locked_by"]) == ("e", "Zuul executor e1")
    assert (row["created_time"], row["state_time"], row["age_seconds"]) == (900.0, 1000.0, 61.0)


def test_why_a_node_is_held() -> None:
    node = make_node()
    node.hold(by="alice@desk", reason="bug 17", seconds=60)
    node.state_time = 1000.0
    row = told(node)
    assert (row["hold_by"], row["hold_reason"], row["hold_until"]) == ("alice@desk", "bug 17", 1060.0)
    node.state = states.USED
    assert told(node)["hold_reason"] is None


def test_locked() -> None:
    assert node_table([make_node()], NodeFacts({"0000000007"}), 1000.0).rows[0][8] == "locked"


def test_token_of_a_pod_is_not_shown() -> None:
    """reference/commands 2: the connection of a pod is an object with a token."""
    rows = [
        node_table([make_node(connection_port=port)], NodeFacts(), 1000.0, detail=True).rows[0]
        for port in (22, {"token": "secret"})
    ]
    assert [row[14] for row in rows] == [22, "redacted"]
