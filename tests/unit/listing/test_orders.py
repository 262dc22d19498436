# SPDX-License-Identifier: Apache-2.0
"""What nodes and requests are sorted by is what their tables show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nodepool.listing.nodes import NodeFacts, node_table
from nodepool.listing.requests import NODE_ORDERS, REQUEST_ORDERS, request_table
from nodepool.listing.table import Table
from tests.support.web_records import NOW, full


def check(records: list[Any], orders: Mapping[str, Callable[[Any], Any]], table: Table) -> None:
    keys = [column.key for column in table.columns]
    for record, row in zip(records, table.rows, strict=True):
        shown = dict(zip(keys, row, strict=True))
        for key, value in orders.items():
            wanted = NOW + value(record) if key == "age_seconds" else value(record)
            assert shown[key] == wanted, key


def test_nodes() -> None:
    nodes = list(full().observed.nodes.values())
    check(nodes, NODE_ORDERS, node_table(nodes, NodeFacts(), NOW, detail=True))


def test_requests() -> None:
    requests = list(full().observed.requests.values())
    check(requests, REQUEST_ORDERS, request_table(requests, NOW))


def test_no_times() -> None:
    """Who has none comes last, see `nodepool.listing.paging`."""
    node, request = full().observed.nodes["0000000001"], full().observed.requests["200-0000000001"]
    node.state_time = request.created_time = None
    assert NODE_ORDERS["age_seconds"](node) is REQUEST_ORDERS["age_seconds"](request) is None
