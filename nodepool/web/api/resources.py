# SPDX-License-Identifier: Apache-2.0
"""What each path of the API answers, path by path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.images import build_table, image_status_table, nodes_by_build, upload_table
from nodepool.listing.nodes import ALLOCATED, NodeFacts, host_table, matches, node_status, node_table
from nodepool.listing.overview import as_object, overview
from nodepool.listing.pools import NOT_SERVED, SERVED, label_overview, provider_table, tenant_limits, tenant_table
from nodepool.listing.records import event_table, is_about, launcher_table
from nodepool.listing.requests import NODE_ORDERS, REQUEST_ORDERS, request_table
from nodepool.listing.table import Column, Table
from nodepool.model import states
from nodepool.model.config_keys import did_you_mean
from nodepool.model.image import ImagesView
from nodepool.plan.attention import merged, registered_launchers
from nodepool.plan.explain import causes, explain_label, explain_node, explain_provider, explain_request
from nodepool.plan.explained import ExplainedLabel, ExplainedNode, ExplainedProvider, ExplainedRequest
from nodepool.plan.pool_summary import STATES, summarize
from nodepool.web.answers import (
    LABEL,
    OLDER_THAN,
    POOL,
    PROVIDER,
    SINCE,
    SUBJECT,
    TENANT,
    ApiProblem,
    Parameter,
    Query,
    state,
    zuul_links,
)
from nodepool.web.api import resource
from nodepool.web.api.resource import NAME, ApiResource, Records, list_resource, objects_of, of_table
from nodepool.web.snapshot import WaitSummary

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.web.snapshot import WebSnapshot

_STATE: Final = state((*states.NODE_STATES, ALLOCATED))
_PROPERTIES: Final = {
    "id": resource.TEXT,
    "provider": resource.OPTIONAL_TEXT,
    "label": resource.TEXTS,
    "server_id": resource.ANYTHING,
    "public_ipv4": resource.OPTIONAL_TEXT,
    "ipv6": resource.OPTIONAL_TEXT,
    "state": resource.TEXT,
    "age": {**resource.OPTIONAL_TEXT, "description": "in its state, as `DD:HH:MM:SS`"},
    "locked": {"enum": ["locked", "unlocked"]},
    "pool": resource.OPTIONAL_TEXT,
    "hostname": resource.OPTIONAL_TEXT,
    "private_ipv4": resource.OPTIONAL_TEXT,
    "AZ": resource.OPTIONAL_TEXT,
    "username": resource.OPTIONAL_TEXT,
    "connection_port": {"type": ["integer", "string"], "description": "`redacted` if it is no number"},
    "launcher": resource.OPTIONAL_TEXT,
    "allocated_to": {**resource.OPTIONAL_TEXT, "description": "id of the request"},
    "hold_job": resource.ANYTHING,
    "comment": resource.ANYTHING,
    "user_data": resource.ANYTHING,
    "driver_data": resource.ANYTHING,
    "status": {**resource.TEXT, "description": "as `state`; `allocated`: it is ready, and a request has it"},
    "created_time": resource.OPTIONAL_MOMENT,
    "state_time": resource.OPTIONAL_MOMENT,
    "age_seconds": resource.OPTIONAL_SECONDS,
    "tenant": resource.OPTIONAL_TEXT,
    "project": resource.OPTIONAL_TEXT,
    "pipeline": resource.OPTIONAL_TEXT,
    "job": resource.OPTIONAL_TEXT,
    "event_id": resource.OPTIONAL_TEXT,
    "locked_by": {**resource.OPTIONAL_TEXT, "description": "who has the lock; only for one node, in a list it is null"},
    "hold_by": resource.OPTIONAL_TEXT,
    "hold_reason": resource.ANYTHING,
    "hold_until": resource.OPTIONAL_MOMENT,
}


def node_resources() -> list[ApiResource]:
    return [
        list_resource("/nodes", "Nodes", _nodes, _PROPERTIES, (_STATE, LABEL, PROVIDER, POOL, TENANT, OLDER_THAN)),
        ApiResource(f"/nodes/{{{NAME}}}", "One node", _node, resource.thing(_PROPERTIES)),
        ApiResource(
            f"/nodes/{{{NAME}}}/explain",
            "For whom a node is, and what is done with it, as `nodepool explain` tells it",
            _explain,
            resource.explained(ExplainedNode),
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
    return row


def _explain(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    return explain_node(_found(snapshot, query), snapshot.observed).to_dict()


def _found(snapshot: WebSnapshot, query: Query) -> Node:
    node = snapshot.observed.nodes.get(query.path[NAME])
    if node is None:
        raise ApiProblem(404, f"There is no node {query.path[NAME]!r}.")
    return node


# ``/requests``: the rows of ``nodepool request-list``, and why one waits.

_REQUESTS_STATE: Final = state(states.REQUEST_STATES)
_REQUESTS_PROPERTIES: Final = {
    "id": resource.TEXT,
    "relative_priority": resource.COUNT,
    "state": resource.TEXT,
    "requestor": resource.OPTIONAL_TEXT,
    "node_types": {**resource.TEXTS, "description": "labels, one for each node"},
    "nodes": {**resource.TEXTS, "description": "ids"},
    "declined_by": {**resource.TEXTS, "description": "ids of pools"},
    "event_id": resource.OPTIONAL_TEXT,
    "created_time": resource.OPTIONAL_MOMENT,
    "state_time": resource.OPTIONAL_MOMENT,
    "age_seconds": resource.OPTIONAL_SECONDS,
    "tenant": resource.OPTIONAL_TEXT,
    "project": resource.OPTIONAL_TEXT,
    "pipeline": resource.OPTIONAL_TEXT,
    "job": resource.OPTIONAL_TEXT,
    "provider": {**resource.OPTIONAL_TEXT, "description": "the only one that may serve it"},
    "pool": {**resource.OPTIONAL_TEXT, "description": "`PROVIDER/POOL` that is nearest to serving it"},
    "code": {**resource.OPTIONAL_TEXT, "description": "why it waits or failed"},
    "reason": {**resource.OPTIONAL_TEXT, "description": "the same for people"},
}
_LINKS: Final = {"buildset": resource.TEXT, "status": resource.TEXT}


def request_resources(zuul_url: str | None = None) -> list[ApiResource]:
    """:param zuul_url: where Zuul's pages are, for links."""
    explained = resource.explained(ExplainedRequest)
    explained["properties"]["links"] = {**resource.thing(_LINKS, all_required=False), "description": "pages of Zuul"}
    explained["required"].append("links")
    return [
        list_resource(
            "/requests",
            "Node requests",
            _requests,
            _REQUESTS_PROPERTIES,
            (_REQUESTS_STATE, LABEL, PROVIDER, TENANT, OLDER_THAN),
        ),
        ApiResource(f"/requests/{{{NAME}}}", "One node request", _request, resource.thing(_REQUESTS_PROPERTIES)),
        ApiResource(
            f"/requests/{{{NAME}}}/explain",
            "Why a request waits or failed, and what would help, as `nodepool explain` tells it",
            partial(_explain_request, zuul_url),
            explained,
        ),
    ]


def _requests(snapshot: WebSnapshot, query: Query) -> Records:
    wanted, now = query.filter(_REQUESTS_STATE), snapshot.observed.now
    found = [request for request in snapshot.observed.requests.values() if wanted.request(request, now)]
    return Records(
        found,
        REQUEST_ORDERS,
        lambda request: str(request.key),
        "id",
        lambda requests: _request_table(snapshot, requests),
    )


def _request_table(snapshot: WebSnapshot, requests: Sequence[NodeRequest]) -> Table:
    seen = snapshot.observed
    return request_table(requests, seen.now, causes(requests, seen))


def _request(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    return objects_of(_request_table(snapshot, [_found_request(snapshot, query)]))[0]


def _explain_request(zuul_url: str | None, snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    request = _found_request(snapshot, query)
    told = explain_request(request, snapshot.observed).to_dict()
    return {**told, "links": zuul_links(request, zuul_url)}


def _found_request(snapshot: WebSnapshot, query: Query) -> NodeRequest:
    request = snapshot.observed.requests.get(query.path[NAME])
    if request is None:
        raise ApiProblem(404, f"There is no request {query.path[NAME]!r}.")
    return request


# ``/labels``: who serves each label and who wants it.

_LABELS_STATE: Final = state((SERVED, NOT_SERVED))
_LABELS_PROPERTIES: Final = {
    "label": resource.TEXT,
    "state": {"enum": [SERVED, NOT_SERVED]},
    "pools": {**resource.TEXTS, "description": "`PROVIDER/POOL` of those that have it"},
    "nodes": resource.COUNT,
    "ready": {**resource.COUNT, "description": "nodes that are ready and that nobody has"},
    "waiting": {**resource.COUNT, "description": "requests"},
    "oldest": {
        **resource.OPTIONAL_MOMENT,
        "description": "when the first of them was submitted, in seconds since the epoch",
    },
    "error": {**resource.OPTIONAL_TEXT, "description": "why pools cannot serve it"},
}


def label_resources() -> list[ApiResource]:
    return [
        list_resource("/labels", "Labels", _labels, _LABELS_PROPERTIES, (_LABELS_STATE, LABEL, PROVIDER)),
        ApiResource(
            f"/labels/{{{NAME}:path}}",
            "One label, as `nodepool explain` tells it",
            _label,
            _explained(),
        ),
    ]


def _labels(snapshot: WebSnapshot, query: Query) -> Records:
    states, labels, providers = query.names(_LABELS_STATE), query.names(LABEL), query.names(PROVIDER)
    table = label_overview(snapshot.observed)
    rows = [
        row
        for row in table.rows
        if (not states or row[1] in states)
        and matches(labels, [row[0]])
        and matches(providers, [snapshot.observed.provider_of(pool) for pool in row[2]])
    ]
    return of_table(replace(table, rows=rows), ("label",))


def _label(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen, name = snapshot.observed, query.path[NAME]
    if name not in seen.labels and not any(name in request.node_types for request in seen.requests.values()):
        near = did_you_mean(name[:200], seen.labels)
        raise ApiProblem(404, f"No pool has a label {name!r}, and no request wants it{near}.")
    return {**explain_label(name, seen).to_dict(), "waits": asdict(snapshot.waits.of_label(name, seen.now))}


def _explained() -> dict[str, Any]:
    schema = resource.explained(ExplainedLabel)
    waits = {
        **resource.of_dataclass(WaitSummary),
        "description": "seconds that requests waited that were fulfilled in the last hour. The whole wait of a request "
        "with several labels counts for each of them; `shared` is the number of these requests. `covered_seconds` is "
        "less than 3,600 if there were more than 1,000 requests: these are the last ones",
    }
    properties = {**schema["properties"], "waits": waits}
    return {**schema, "properties": properties, "required": list(properties)}


# ``/providers``: the rows of ``nodepool providers``, and all about one.

_PROVIDERS_STATE: Final = state((*STATES, NOT_SERVED))
_PROVIDERS_PROPERTIES: Final = {
    "pool": {**resource.TEXT, "description": "`PROVIDER/POOL`; of a provider that no launcher could start `PROVIDER`"},
    "driver": resource.OPTIONAL_TEXT,
    "state": {**resource.TEXT, "description": "with the number of launchers behind it if not all say so"},
    "since": resource.OPTIONAL_MOMENT,
    "limiting": {**resource.OPTIONAL_TEXT, "description": "the limit of which most is used"},
    "waiting": {**resource.OPTIONAL_COUNT, "description": "requests"},
    "launching": {**resource.OPTIONAL_COUNT, "description": "nodes"},
    "failed_15m": {**resource.OPTIONAL_COUNT, "description": "launches that failed in the last 15 minutes"},
    "error": resource.OPTIONAL_TEXT,
    "next": {**resource.OPTIONAL_MOMENT, "description": "when it is tried again, in seconds since the epoch"},
    "launchers": resource.TEXTS,
    "code": resource.OPTIONAL_TEXT,
}


def provider_resources() -> list[ApiResource]:
    return [
        list_resource(
            "/providers", "Pools of providers", _providers, _PROVIDERS_PROPERTIES, (_PROVIDERS_STATE, PROVIDER)
        ),
        ApiResource(
            f"/providers/{{{NAME}:path}}",
            "One provider, or one pool of it (`PROVIDER/POOL`), as `nodepool explain` tells it",
            _provider,
            resource.explained(ExplainedProvider, "pool"),
        ),
    ]


def _providers(snapshot: WebSnapshot, query: Query) -> Records:
    states, providers = query.names(_PROVIDERS_STATE), query.names(PROVIDER)
    table = provider_table(summarize(snapshot.observed.statuses), snapshot.launchers, snapshot.observed.now)
    rows = [
        row
        for row in table.rows
        if (not states or row[2].partition(" (")[0] in states)
        and matches(providers, [snapshot.observed.provider_of(row[0])])
    ]
    return of_table(replace(table, rows=rows), ("pool", "state", "launchers"))


def _provider(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen, name = snapshot.observed, query.path[NAME]
    known = seen.providers | seen.absent_providers.keys() | {pool.name for pool in seen.pools.values()}
    if name not in known:
        raise ApiProblem(404, f"There is no provider or pool {name!r}{did_you_mean(name[:200], known)}.")
    return explain_provider(name, seen).to_dict()


# ``/images``: each image with its builds and uploads, as the commands for images show them.

_IMAGES_STATE: Final = state(tuple(dict.fromkeys((*states.BUILD_STATES, *states.UPLOAD_STATES))))
_IMAGE: Final = Parameter("image", "These images: names or patterns, divided by commas.")
_BUILD: Final = resource.thing(
    {
        "id": {**resource.TEXT, "description": "as commands call it: `IMAGE-ID`"},
        "image": resource.TEXT,
        "builder": resource.OPTIONAL_TEXT,
        "formats": resource.TEXTS,
        "state": resource.TEXT,
        "state_time": resource.OPTIONAL_MOMENT,
        "step": {**resource.OPTIONAL_TEXT, "description": "what a running build does"},
        "duration": {**resource.OPTIONAL_NUMBER, "description": "seconds"},
        "estimate": {**resource.OPTIONAL_NUMBER, "description": "seconds that a running build may take in all"},
        "size": resource.ANYTHING,
        "nodes": {**resource.TEXTS, "description": "ids of the nodes that were made from it"},
    }
)
_UPLOAD: Final = resource.thing(
    {
        "id": {**resource.TEXT, "description": "of the build"},
        "upload_id": resource.TEXT,
        "provider": resource.TEXT,
        "image": resource.TEXT,
        "external_name": resource.OPTIONAL_TEXT,
        "external_id": resource.OPTIONAL_TEXT,
        "state": resource.TEXT,
        "state_time": resource.OPTIONAL_MOMENT,
        "format": resource.OPTIONAL_TEXT,
        "use": {**resource.OPTIONAL_TEXT, "description": "`current`: nodes are made from it; or `rolled back`"},
        "progress": {**resource.OPTIONAL_NUMBER, "description": "percent"},
        "speed": {**resource.OPTIONAL_NUMBER, "description": "bytes per second"},
        "size": {**resource.OPTIONAL_NUMBER, "description": "bytes"},
    }
)
_IMAGES_PROPERTIES: Final = {
    "image": resource.TEXT,
    "paused": resource.FLAG,
    "build_request": {"enum": ["pending", "building", None]},
    "build_requested": resource.OPTIONAL_MOMENT,
    "builds": resource.array(_BUILD),
    "uploads": resource.array(_UPLOAD),
}


def image_resources() -> list[ApiResource]:
    return [
        list_resource(
            "/images",
            "Images, their builds and uploads",
            _images,
            _IMAGES_PROPERTIES,
            (_IMAGE, _IMAGES_STATE, PROVIDER),
        )
    ]


def _images(snapshot: WebSnapshot, query: Query) -> Records:
    names = query.names(_IMAGE)
    query.names(_IMAGES_STATE), query.names(PROVIDER)
    table = image_status_table(snapshot.images, snapshot.observed.now, moments=True)
    records = [row for row in table.rows if matches(names, [row[0]])]

    def with_parts(rows: Any) -> Table:
        nodes = nodes_by_build(snapshot.observed.nodes.values())
        return Table(
            [*(Column(one.header, _KEYS.get(one.key, one.key)) for one in table.columns), *_PARTS],
            [[*row, *_parts(snapshot, query, row[0], nodes)] for row in rows],
        )

    found = of_table(Table(table.columns, records), ("image",))
    orders = {_KEYS.get(key, key): order for key, order in found.orders.items()}
    return Records(records, orders, found.identity, found.default, with_parts)


#: Keys of ages in tables -> of the moments that stand there.
_KEYS: Final[Mapping[str, str]] = {"age": "state_time", "build_request_age": "build_requested"}
_PARTS: Final = (Column("Builds", "builds"), Column("Uploads", "uploads"))


def _parts(snapshot: WebSnapshot, query: Query, image: str, nodes: Mapping[str, list[str]]) -> list[Any]:
    """Builds and uploads of an image that are wanted."""
    wanted, providers = query.names(_IMAGES_STATE), query.names(PROVIDER)
    view, now = ImagesView({image: snapshot.images.image(image)}), snapshot.observed.now
    builds = build_table(view, now, snapshot.builders, nodes, moments=True, pauses=False)
    uploads = upload_table(view, now, snapshot.builders, moments=True)
    return [
        [row for row in _renamed(builds) if not wanted or row["state"] in wanted],
        [
            row
            for row in _renamed(uploads)
            if (not wanted or row["state"] in wanted) and matches(providers, [row["provider"]])
        ],
    ]


def _renamed(table: Table) -> list[dict[str, Any]]:
    return [{_KEYS.get(key, key): value for key, value in row.items()} for row in objects_of(table)]


# ``/hosts``: the rows of ``nodepool hosts``.

_HOSTS_STATE: Final = state(("up", "down", "quarantined", "not checked"))
_HOSTS_PROPERTIES: Final = {
    "host": {**resource.TEXT, "description": "`USER@HOST:PORT`"},
    "pool": {**resource.TEXT, "description": "`PROVIDER/POOL`"},
    "state": resource.TEXT,
    "since": resource.OPTIONAL_MOMENT,
    "slots": resource.COUNT,
    "nodes": {**resource.TEXTS, "description": "ids"},
    "error": resource.OPTIONAL_TEXT,
    "next": {**resource.OPTIONAL_MOMENT, "description": "when it is tried again, in seconds since the epoch"},
}


def host_resources() -> list[ApiResource]:
    return [list_resource("/hosts", "Static hosts", _hosts, _HOSTS_PROPERTIES, (_HOSTS_STATE, PROVIDER))]


def _hosts(snapshot: WebSnapshot, query: Query) -> Records:
    states, providers = query.names(_HOSTS_STATE), query.names(PROVIDER)
    table = host_table(summarize(snapshot.observed.statuses), snapshot.observed.now)
    rows = [
        row
        for row in table.rows
        if (not states or row[2] in states) and matches(providers, [snapshot.observed.provider_of(row[1])])
    ]
    return of_table(replace(table, rows=rows), ("host", "pool"))


# ``/launchers``: the rows of ``nodepool launchers``.

_LAUNCHERS_STATE: Final = state(())
_LAUNCHERS_PROPERTIES: Final = {
    "host": resource.TEXT,
    "pid": resource.OPTIONAL_COUNT,
    "version": resource.OPTIONAL_TEXT,
    "state": resource.TEXT,
    "since": resource.OPTIONAL_MOMENT,
    "config": {**resource.OPTIONAL_TEXT, "description": "short hash of the configuration"},
    "pools": {**resource.OPTIONAL_TEXTS, "description": "`PROVIDER/POOL`"},
    "reload": {
        "anyOf": [
            resource.thing({"at": resource.MOMENT, "ok": resource.FLAG, "text": resource.TEXT}),
            {"type": "null"},
        ]
    },
    "maintenance": resource.OPTIONAL_TEXT,
    "leader": {
        "type": ["boolean", "null"],
        "description": "does it send the gauges of all nodes and requests to statsd? `null`: it does not tell",
    },
    "config_file": resource.OPTIONAL_TEXT,
    "servers": {**resource.OPTIONAL_TEXT, "description": "of ZooKeeper"},
}


def launcher_resources() -> list[ApiResource]:
    return [list_resource("/launchers", "Launchers", _launchers, _LAUNCHERS_PROPERTIES, (_LAUNCHERS_STATE,))]


def _launchers(snapshot: WebSnapshot, query: Query) -> Records:
    states, seen = query.names(_LAUNCHERS_STATE), snapshot.observed
    table = launcher_table(snapshot.launchers, registered_launchers(seen.registered), seen.now)
    rows = [row for row in table.rows if not states or row[3] in states]
    return of_table(replace(table, rows=rows), ("host", "pid"))


# ``/tenants``: the rows of ``nodepool tenants``.

_TENANTS_PROPERTIES: Final = {
    "tenant": resource.TEXT,
    "resource": resource.TEXT,
    "limit": resource.OPTIONAL_NUMBER,
    "used": resource.NUMBER,
    "free": resource.OPTIONAL_NUMBER,
    "nodes": {**resource.COUNT, "description": "of the tenant"},
    "waiting": {**resource.COUNT, "description": "requests of the tenant"},
}


def tenant_resources() -> list[ApiResource]:
    return [list_resource("/tenants", "What tenants use of their limits", _tenants, _TENANTS_PROPERTIES, (TENANT,))]


def _tenants(snapshot: WebSnapshot, query: Query) -> Records:
    wanted, seen = query.names(TENANT), snapshot.observed
    table = tenant_table(tenant_limits(snapshot.launchers), seen.nodes.values(), seen.requests.values())
    rows = [row for row in table.rows if matches(wanted, [row[0]])]
    return of_table(replace(table, rows=rows), ("tenant", "resource"))


# ``/events``: the rows of ``nodepool events``. New ones are sent by ``/events/stream`` (`nodepool.web.stream`).

_EVENTS_PROPERTIES: Final = {
    "at": resource.MOMENT,
    "subject": {**resource.TEXT, "description": "kind and name"},
    "what": resource.TEXT,
    "text": {**resource.TEXT, "description": "the cause"},
    "code": resource.TEXT,
    "actor": {**resource.TEXT, "description": "launchers that saw it"},
    "count": {**resource.COUNT, "description": "subjects; `subject` is the last one"},
}


def event_resources() -> list[ApiResource]:
    return [list_resource("/events", "What happened, the oldest first", _events, _EVENTS_PROPERTIES, (SINCE, SUBJECT))]


def _events(snapshot: WebSnapshot, query: Query) -> Records:
    seen, about = snapshot.observed, query.given.get(SUBJECT.name)
    events = (event for event in seen.events if about is None or is_about(event, about))
    table = event_table(merged(events, query.since(seen.now)), seen.now)
    return of_table(table, ("at", "subject", "what", "code", "text"))


# ``/summary``: what ``nodepool status`` shows, and how many nodes and requests are in each state.

_COUNTS: Final = {"type": "object", "additionalProperties": resource.COUNT}
_WAITING: Final = {
    "labels": resource.TEXTS,
    "count": resource.COUNT,
    "oldest": resource.MOMENT,
    "pool": resource.OPTIONAL_TEXT,
    "code": resource.OPTIONAL_TEXT,
    "text": resource.TEXT,
    "requests": {**resource.TEXTS, "description": "ids of the oldest"},
}
_PROBLEM: Final = {
    "kind": resource.TEXT,
    "text": resource.TEXT,
    "since": resource.OPTIONAL_MOMENT,
    "next": {**resource.OPTIONAL_MOMENT, "description": "when it is tried again or ends, in seconds since the epoch"},
    "command": {**resource.OPTIONAL_TEXT, "description": "arguments of `nodepool` that show more"},
}
_CAPACITY: Final = {
    "pool": {**resource.TEXT, "description": "`PROVIDER/POOL`"},
    "state": resource.TEXT,
    **{
        name: {**resource.COUNT, "description": "nodes"} for name in ("ready", "in_use", "building", "deleting", "hold")
    },
    "waiting": {**resource.COUNT, "description": "requests"},
    "limiting": {**resource.OPTIONAL_TEXT, "description": "the limit of which most is used"},
}
_SCHEMA: Final = resource.thing(
    {
        "sentence": resource.TEXT,
        "waiting": {**resource.array(resource.thing(_WAITING)), "description": "requests that wait for too long"},
        "problems": {**resource.array(resource.thing(_PROBLEM)), "description": "what needs attention"},
        "capacity": resource.array(resource.thing(_CAPACITY)),
        "nodes": {**_COUNTS, "description": "by state"},
        "requests": {**_COUNTS, "description": "by state"},
    }
)


def summary_resources() -> list[ApiResource]:
    return [ApiResource("/summary", "What `nodepool status` tells", _summary, _SCHEMA)]


def _summary(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen = snapshot.observed
    told = overview(seen, snapshot.launchers, registered_launchers(seen.registered))
    return {
        **as_object(told),
        "nodes": Counter(node_status(node) for node in seen.nodes.values()),
        "requests": Counter(request.state for request in seen.requests.values()),
    }
