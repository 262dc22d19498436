# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from nodepool.listing.pools import tenant_table
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest


def node(tenant: str | None, resources: dict[str, Any] | None = None) -> Node:
    made = Node("small", "1")
    made.tenant_name, made.resources = tenant, resources
    return made


def request(tenant: str | None, state: str) -> NodeRequest:
    made = NodeRequest("200-1")
    made.tenant_name, made.state = tenant, state
    return made


def test_use_against_limits() -> None:
    nodes = [node("t1", {"instances": 1, "cores": 4}), node("t1", {"instances": 1, "cores": 0.5}), node(None)]
    requests = [request("t1", states.REQUESTED), request("t1", states.FULFILLED), request("t2", states.PENDING)]
    table = tenant_table({"t1": {"cores": 8}, "t3": {"instances": 1}}, [*nodes, node("t4")], requests)
    assert [column.key for column in table.columns] == [
        *("tenant", "resource", "limit", "used", "free", "nodes", "waiting")
    ]
    assert table.rows == [
        ["t1", "cores", 8, 4.5, 3.5, 2, 1],
        ["t1", "instances", None, 2, None, 2, 1],
        ["t2", "instances", None, 0, None, 0, 1],
        ["t3", "instances", 1, 0, 1, 0, 0],
        ["t4", "instances", None, 1, None, 1, 0],
    ]


def test_a_tenant_above_its_limit_has_nothing_left() -> None:
    table = tenant_table({"t1": {"instances": 1}}, [node("t1"), node("t1", {"instances": 1, "odd": "x"})], [])
    assert table.rows == [["t1", "instances", 1, 2, 0, 2, 0]]
