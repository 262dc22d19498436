# SPDX-License-Identifier: Apache-2.0
"""The request table and the label table (reference/commands 2)."""

from __future__ import annotations

from nodepool.listing.requests import label_table, request_table
from nodepool.model.component import PoolComponent
from nodepool.model.request import NodeRequest


def test_request() -> None:
    request = NodeRequest("100-0000000001")
    request.node_types = ["small", "small"]
    request.requestor, request.event_id = "zuul", "event"
    request.declined_by = ["pool"]
    row = ["100-0000000001", 0, "requested", "zuul", ["small", "small"], [], ["pool"], "event"]
    assert request_table([request]).rows == [row]


def test_labels_are_sorted_and_once() -> None:
    pools = []
    for labels in (["small", "large"], ["small"]):
        pool = PoolComponent("host", "1")
        pool.supported_labels = labels
        pools.append(pool)
    assert label_table(pools).rows == [["large"], ["small"]]
