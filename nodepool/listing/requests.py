# SPDX-License-Identifier: Apache-2.0
"""The request table and the label table (reference/commands 2); then what nodes and requests can be sorted by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table
from nodepool.listing.nodes import node_status, project_of
from nodepool.listing.table import ONLY_JSON, PEOPLE, WHOLE, Column, Place, Table, table_of
from nodepool.model.event import short
from nodepool.model.request import NodeRequest, origin_of

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.model.status import PoolComponent
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
        Column("Request ID", "id", least=WHOLE),
        Column("Priority", "relative_priority", places=Place.TABLE | Place.WIDE),
        Column("State", "state", style=table.state),
        Column("Requestor", "requestor", places=Place.TABLE | Place.WIDE),
        Column("Node Types", "node_types"),
        Column("Nodes", "nodes", priority=5, least=WHOLE),
        Column("Declined By", "declined_by", places=Place.TABLE | Place.WIDE),
        Column("Event ID", "event_id", places=Place.TABLE | Place.WIDE),
        # From here on not in released Nodepool.
        Column("Created", "created_time", places=ONLY_JSON),
        Column("State since", "state_time", places=ONLY_JSON),
        Column("Age", "age_seconds", short, of=seconds, places=PEOPLE),
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


def _orders(keys: str, **special: Callable[[Any], Any]) -> Mapping[str, Callable[[Any], Any]]:
    """Key -> what is sorted by; without a special function it is the name of the attribute."""
    return {key: special.get(key) or attrgetter(key) for key in keys.split()}


def _age(name: str) -> Callable[[Any], float | None]:
    """What is older has a lower time."""
    return lambda record: None if (moment := getattr(record, name)) is None else -moment


def _origin(name: str) -> Callable[[NodeRequest], str | None]:
    return lambda request: origin_of(request).get(name)


#: Key of a column of `node_table` -> what nodes are sorted by.
NODE_ORDERS: Final[Mapping[str, Callable[[Node], Any]]] = _orders(
    "id status state age_seconds state_time created_time label provider pool tenant project hostname public_ipv4 "
    "allocated_to",
    id=attrgetter("key"),
    status=node_status,
    age_seconds=_age("state_time"),
    label=attrgetter("type"),
    tenant=attrgetter("tenant_name"),
    project=project_of,
)
#: Key of a column of `request_table` -> what requests are sorted by.
REQUEST_ORDERS: Final[Mapping[str, Callable[[NodeRequest], Any]]] = _orders(
    "id state age_seconds state_time created_time relative_priority node_types provider requestor tenant project "
    "pipeline job",
    id=attrgetter("key"),
    age_seconds=_age("created_time"),
    **{name: _origin(name) for name in ("tenant", "project", "pipeline", "job")},
)
