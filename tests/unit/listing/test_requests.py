# SPDX-License-Identifier: Apache-2.0
"""The request table and the label table (reference/commands 2)."""

from __future__ import annotations

from nodepool.listing.requests import label_table, request_table
from nodepool.listing.table import Place, shown
from nodepool.model.component import PoolComponent
from nodepool.model.request import NodeRequest
from nodepool.plan.explain import WaitCause


def test_request() -> None:
    request = NodeRequest("100-0000000001")
    request.node_types = ["small", "small"]
    request.requestor, request.event_id = "zuul", "event"
    request.declined_by = ["pool"]
    row = ["100-0000000001", 0, "requested", "zuul", ["small", "small"], [], ["pool"], "event"]
    table = request_table([request], 1000.0)
    assert shown(table, Place.TABLE).rows == [row]
    assert [column.key for column in table.columns[:8]] == [
        *("id", "relative_priority", "state", "requestor", "node_types", "nodes", "declined_by", "event_id")
    ]


def test_for_whom_it_is_and_what_it_waits_for() -> None:
    request = NodeRequest("100-0000000001")
    request.created_time, request.tenant_name = 900.0, "t1"
    request.requestor_data = {"job_name": "unit", "pipeline_name": "check"}
    table = request_table(
        [request], 1000.0, {"100-0000000001": WaitCause("cloud/main", "room.cores", "cores 80 of 80")}
    )
    row = {column.key: value for column, value in zip(table.columns, table.rows[0], strict=True)}
    assert (row["age_seconds"], row["tenant"], row["pipeline"], row["job"]) == (100.0, "t1", "check", "unit")
    assert (row["pool"], row["code"], row["reason"]) == ("cloud/main", "room.cores", "cores 80 of 80")
    assert [column.key for column in shown(table, Place.TERMINAL).columns] == [
        *("id", "state", "age_seconds", "node_types", "nodes", "tenant", "project", "pipeline", "job", "pool", "reason")
    ]


def test_labels_are_sorted_and_once() -> None:
    pools = []
    for labels in (["small", "large"], ["small"]):
        pool = PoolComponent("host", "1")
        pool.supported_labels = labels
        pools.append(pool)
    assert label_table(pools).rows == [["large"], ["small"]]
