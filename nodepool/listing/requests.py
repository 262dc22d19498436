# SPDX-License-Identifier: Apache-2.0
"""The request table and the label table (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from nodepool.listing.table import Column, Table

if TYPE_CHECKING:
    from nodepool.model.component import PoolComponent
    from nodepool.model.request import NodeRequest

_REQUEST_COLUMNS: Final = (
    Column("Request ID", "id"),
    Column("Priority", "relative_priority"),
    Column("State", "state"),
    Column("Requestor", "requestor"),
    Column("Node Types", "node_types"),
    Column("Nodes", "nodes"),
    Column("Declined By", "declined_by"),
    Column("Event ID", "event_id"),
)
_LABEL_COLUMNS: Final = (Column("Label", "label"),)


def request_table(requests: Iterable[NodeRequest]) -> Table:
    """The request table."""
    return Table(
        _REQUEST_COLUMNS,
        [
            [
                request.id,
                request.relative_priority,
                request.state,
                request.requestor,
                request.node_types,
                request.nodes,
                request.declined_by,
                request.event_id,
            ]
            for request in requests
        ],
    )


def label_table(pools: Iterable[PoolComponent]) -> Table:
    """The union of the labels of registered pools, sorted."""
    labels = {label for pool in pools for label in pool.supported_labels}
    return Table(_LABEL_COLUMNS, [[label] for label in sorted(labels)])
