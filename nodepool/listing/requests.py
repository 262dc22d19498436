# SPDX-License-Identifier: Apache-2.0
"""The request table and the label table (reference/commands 2); then what nodes and requests can be sorted by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table
from nodepool.listing.nodes import node_status, project_of
from nodepool.listing.table import ONLY_JSON, PEOPLE, Column, Place, Table, table_of
from nodepool.model.event import short
from nodepool.model.request import origin_of

if TYPE_CHECKING:
    from nodepool.model.component import PoolComponent
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.plan.explain import WaitCause

_PEOPLE: Final = (
    *("id", "state", "age_seconds", "node_types", "nodes", "tenant", "project", "pipeline", "job"),
    *("provider", "pool", "code", "reason"),
)


def request_table(
    requests: Iterable[NodeRequest],
    now: float,
    causes: Mapping[str, WaitCause] | None = None,
    *,
    place: Place = ONLY_JSON,
) -> Table:
    """The request table.

    :param now: seconds since the epoch, for ages.
    :param causes: request id -> why it waits or failed, of those for which that is known.
    :param place: as for `table_of`.
    """
    requests = list(requests)
    origins = {request.id: origin_of(request) for request in requests}

    def origin(key: str) -> Callable[[NodeRequest], str | None]:
        return lambda request: origins[request.id].get(key)

    def cause(name: str) -> Callable[[NodeRequest], str | None]:
        return lambda request: getattr(causes.get(request.id or ""), name, None) or None if causes else None

    def seconds(request: NodeRequest) -> float | None:
        return None if request.created_time is None else max(0.0, round(now - request.created_time, 3))

    columns = (
        Column("Request ID", "id"),
        Column("Priority", "relative_priority", places=Place.TABLE | Place.WIDE),
        Column("State", "state", style=table.state),
        Column("Requestor", "requestor", places=Place.TABLE | Place.WIDE),
        Column("Node Types", "node_types"),
        Column("Nodes", "nodes", priority=5),
        Column("Declined By", "declined_by", places=Place.TABLE | Place.WIDE),
        Column("Event ID", "event_id", places=Place.TABLE | Place.WIDE),
        # From here on not in released Nodepool.
        Column("Created", "created_time", places=ONLY_JSON),
        Column("State since", "state_time", places=ONLY_JSON),
        Column("Age", "age_seconds", short, of=seconds, places=PEOPLE, moves=True),
        Column("Tenant", "tenant", of=origin("tenant"), places=PEOPLE, priority=3),
        Column("Project", "project", of=origin("project"), places=PEOPLE, priority=4),
        Column("Pipeline", "pipeline", of=origin("pipeline"), places=PEOPLE, priority=4),
        Column("Job", "job", of=origin("job"), places=PEOPLE, priority=2),
        Column("Provider", "provider", places=Place.WIDE),
        Column("Pool", "pool", of=cause("pool"), places=PEOPLE, priority=2),
        Column("Code", "code", of=cause("code"), places=Place.WIDE),
        Column("Reason", "reason", of=cause("text"), places=PEOPLE, priority=1, least=24),
    )
    return table_of(columns, requests, "id", _PEOPLE, place)


def label_table(pools: Iterable[PoolComponent]) -> Table:
    """The union of the labels of registered pools, sorted."""
    labels = {label for pool in pools for label in pool.supported_labels}
    return Table([Column("Label", "label")], [[label] for label in sorted(labels)])


# What nodes and requests can be sorted by without a table of all of them: there may be thousands.


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
