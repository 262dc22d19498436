# SPDX-License-Identifier: Apache-2.0
"""``/nodes``: the rows of ``nodepool list --detail``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.nodes import ALLOCATED, NodeFacts, node_table
from nodepool.listing.requests import NODE_ORDERS
from nodepool.model import states
from nodepool.plan.explain import explain_node
from nodepool.plan.explained import ExplainedNode
from nodepool.web.api import schemas
from nodepool.web.api.resource import NAME, ApiResource, Records, list_resource, objects_of
from nodepool.web.problem import ApiProblem
from nodepool.web.query import LABEL, OLDER_THAN, POOL, PROVIDER, TENANT, Query, state

if TYPE_CHECKING:
    from nodepool.listing.table import Table
    from nodepool.model.node import Node
    from nodepool.web.pending_changes import PendingChange
    from nodepool.web.snapshot import WebSnapshot

_STATE: Final = state((*states.NODE_STATES, ALLOCATED))
_PROPERTIES: Final = {
    "id": schemas.TEXT,
    "provider": schemas.OPTIONAL_TEXT,
    "label": schemas.TEXTS,
    "server_id": schemas.ANYTHING,
    "public_ipv4": schemas.OPTIONAL_TEXT,
    "ipv6": schemas.OPTIONAL_TEXT,
    "state": schemas.TEXT,
    "age": {**schemas.OPTIONAL_TEXT, "description": "in its state, as `DD:HH:MM:SS`"},
    "locked": {"enum": ["locked", "unlocked"]},
    "pool": schemas.OPTIONAL_TEXT,
    "hostname": schemas.OPTIONAL_TEXT,
    "private_ipv4": schemas.OPTIONAL_TEXT,
    "AZ": schemas.OPTIONAL_TEXT,
    "username": schemas.OPTIONAL_TEXT,
    "connection_port": {"type": ["integer", "string"], "description": "`redacted` if it is no number"},
    "launcher": schemas.OPTIONAL_TEXT,
    "allocated_to": {**schemas.OPTIONAL_TEXT, "description": "id of the request"},
    "hold_job": schemas.ANYTHING,
    "comment": schemas.ANYTHING,
    "user_data": schemas.ANYTHING,
    "driver_data": schemas.ANYTHING,
    "status": {**schemas.TEXT, "description": "as `state`; `allocated`: it is ready, and a request has it"},
    "created_time": schemas.OPTIONAL_MOMENT,
    "state_time": schemas.OPTIONAL_MOMENT,
    "age_seconds": schemas.OPTIONAL_SECONDS,
    "tenant": schemas.OPTIONAL_TEXT,
    "project": schemas.OPTIONAL_TEXT,
    "pipeline": schemas.OPTIONAL_TEXT,
    "job": schemas.OPTIONAL_TEXT,
    "event_id": schemas.OPTIONAL_TEXT,
    "locked_by": {**schemas.OPTIONAL_TEXT, "description": "who has the lock; only for one node, in a list it is null"},
    "hold_by": schemas.OPTIONAL_TEXT,
    "hold_reason": schemas.ANYTHING,
    "hold_until": schemas.OPTIONAL_MOMENT,
}

_PENDING: Final = {
    "description": "a change that waits for the lock of the node in the process that answers",
    "anyOf": [
        schemas.thing(
            {
                "what": {"enum": ["hold", "delete"]},
                "by": schemas.TEXT,
                "reason": schemas.TEXT,
                "since": schemas.MOMENT,
                "until": schemas.MOMENT,
            }
        ),
        {"type": "null"},
    ],
}


def node_resources() -> list[ApiResource]:
    return [
        list_resource("/nodes", "Nodes", _nodes, _PROPERTIES, (_STATE, LABEL, PROVIDER, POOL, TENANT, OLDER_THAN)),
        ApiResource(f"/nodes/{{{NAME}}}", "One node", _node, schemas.thing({**_PROPERTIES, "pending": _PENDING})),
        ApiResource(
            f"/nodes/{{{NAME}}}/explain",
            "For whom a node is, and what is done with it, as `nodepool explain` tells it",
            _explain,
            schemas.explained(ExplainedNode),
        ),
    ]


def _nodes(snapshot: WebSnapshot, query: Query) -> Records:
    wanted, now = query.filter(_STATE), snapshot.observed.now
    found = [node for node in snapshot.observed.nodes.values() if wanted.node(node, now)]
    return Records(found, NODE_ORDERS, lambda node: str(node.key), "id", lambda nodes: _table(snapshot, nodes))


def _table(snapshot: WebSnapshot, nodes: Sequence[Node]) -> Table:
    seen = snapshot.observed
    locked = {node.key for node in nodes if node.key in seen.locked}
    return node_table(nodes, NodeFacts(locked, seen.requests), seen.now, detail=True)


def _node(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    node, seen = _found(snapshot, query), snapshot.observed
    locked = {node.key} & seen.locked
    names = {key: name for key in locked if (name := snapshot.locker(key)) is not None}
    [row] = objects_of(node_table([node], NodeFacts(locked, seen.requests, names), seen.now, detail=True))
    waits = snapshot.pending(node.key)
    return {**row, "pending": None if waits is None else _pending(waits)}


def _pending(change: PendingChange) -> Mapping[str, Any]:
    wish = change.wish
    return {
        "what": change.what,
        "by": wish.operator,
        "reason": wish.reason,
        "since": change.since,
        "until": change.until,
    }


def _explain(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    return explain_node(_found(snapshot, query), snapshot.observed).to_dict()


def _found(snapshot: WebSnapshot, query: Query) -> Node:
    node = snapshot.observed.nodes.get(query.path[NAME])
    if node is None:
        raise ApiProblem(404, f"There is no node {query.path[NAME]!r}.")
    return node
