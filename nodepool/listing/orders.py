# SPDX-License-Identifier: Apache-2.0
"""What nodes and requests can be sorted by without a table of all of them: there may be thousands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.filters import node_status
from nodepool.listing.nodes import project_of
from nodepool.model.request_origin import origin_of

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest


def _age(moment: float | None) -> float | None:
    """Who is older has a lower time."""
    return None if moment is None else -moment


#: Key of a column of `node_table` -> what nodes are sorted by.
NODE_ORDERS: Final[Mapping[str, Callable[[Node], Any]]] = {
    "id": lambda node: node.key,
    "status": node_status,
    "state": lambda node: node.state,
    "age_seconds": lambda node: _age(node.state_time),
    "state_time": lambda node: node.state_time,
    "created_time": lambda node: node.created_time,
    "label": lambda node: node.type,
    "provider": lambda node: node.provider,
    "pool": lambda node: node.pool,
    "tenant": lambda node: node.tenant_name,
    "project": project_of,
    "hostname": lambda node: node.hostname,
    "public_ipv4": lambda node: node.public_ipv4,
    "allocated_to": lambda node: node.allocated_to,
}
#: Key of a column of `request_table` -> what requests are sorted by.
REQUEST_ORDERS: Final[Mapping[str, Callable[[NodeRequest], Any]]] = {
    "id": lambda request: request.key,
    "state": lambda request: request.state,
    "age_seconds": lambda request: _age(request.created_time),
    "state_time": lambda request: request.state_time,
    "created_time": lambda request: request.created_time,
    "relative_priority": lambda request: request.relative_priority,
    "node_types": lambda request: request.node_types,
    "provider": lambda request: request.provider,
    "requestor": lambda request: request.requestor,
    "tenant": lambda request: origin_of(request).get("tenant"),
    "project": lambda request: origin_of(request).get("project"),
    "pipeline": lambda request: origin_of(request).get("pipeline"),
    "job": lambda request: origin_of(request).get("job"),
}
