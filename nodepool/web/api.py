# SPDX-License-Identifier: Apache-2.0
"""``/api/v1``: routes and their description as OpenAPI, then what each path answers; errors are problems (RFC 9457).

The description has the changes that are offered. What paths answer is in `all_resources`: first the paths, then the
answers, then kinds of resources, last JSON schemas and the properties of items of lists.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import types
import typing
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import yaml
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from nodepool.listing.images import build_table, image_status_table, nodes_by_build, upload_table
from nodepool.listing.nodes import NodeFacts, matches, node_status, node_table
from nodepool.listing.overview import as_object, overview
from nodepool.listing.pools import NOT_SERVED, SERVED, label_overview
from nodepool.listing.records import event_table, is_about
from nodepool.listing.requests import NODE_ORDERS, REQUEST_ORDERS, request_table
from nodepool.listing.table import Column, Table, UnknownColumn, selected, sort_key, table_of
from nodepool.model import states
from nodepool.model.config_keys import did_you_mean
from nodepool.model.image import ImagesView
from nodepool.plan.attention import merged, registered_launchers
from nodepool.plan.explain import causes, explain, explain_label, explain_node, explain_provider, explain_request
from nodepool.plan.explained import Explained, ExplainedLabel, ExplainedNode, ExplainedProvider, ExplainedRequest
from nodepool.plan.pool_summary import STATES
from nodepool.web.answers import (
    WebProblem,
    all_hosts,
    all_launchers,
    all_providers,
    all_tenants,
    to_json,
    zuul_links,
)
from nodepool.web.frame import (
    FIELDS,
    LABEL,
    LIMIT,
    NODE_STATE,
    OLDER_THAN,
    POOL,
    PROVIDER,
    REQUEST_STATE,
    SINCE,
    SORT,
    TENANT,
    Parameter,
    Query,
    parse,
    state,
    wrong,
)
from nodepool.web.logins import is_operator

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.plan.observed import Observed
    from nodepool.web.history import History
    from nodepool.web.snapshot import SnapshotMaker, WebSnapshot


Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string"}
#: What the file has.
OPENAPI: Final[Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "openapi.yaml").read_text(encoding="utf-8"))

T = TypeVar("T")

ROOT: Final = "/api/v1"
#: Longest cursor that is read.
MAX_CURSOR: Final = 4000
#: An answer with the same ETag is at most so old: ages grow, and what is waited for becomes late.
TAG_SECONDS: Final = 10


def routes(
    snapshots: SnapshotMaker,
    version: str,
    zuul_url: str | None = None,
    history: History | None = None,
    *,
    with_changes: bool = False,
) -> list[BaseRoute]:
    """Of all resources, and their description as OpenAPI.

    :param version: of this release. ``zuul_url``: where Zuul's pages are, for links.
    :param history: None = nothing is kept of what ended.
    :param with_changes: can anything be changed here?
    """
    # Other processes count their snapshots on their own.
    boot = secrets.token_hex(4)
    resources = all_resources(zuul_url, history)
    # "/nodes/{name}/explain" goes before what takes names with a slash.
    ordered = sorted(resources, key=lambda resource: ":path" in resource.path)
    document = api_description(resources, version, with_changes=with_changes)
    described = json.dumps(document).encode()

    def description(_request: Request) -> Response:
        return Response(described, headers={"Cache-Control": "no-cache"}, media_type="application/json")

    return [
        Route(f"{ROOT}/openapi.json", description),
        *(_route(snapshots, resource, boot) for resource in ordered),
    ]


def _route(snapshots: SnapshotMaker, resource: ApiResource, boot: str) -> Route:
    def endpoint(request: Request) -> Response:
        query = parse(request.scope["query_string"], request.path_params, resource.parameters)
        snapshot = snapshots.latest()
        headers = {"ETag": _tag(request, snapshot, boot), "Cache-Control": "no-cache"}
        if _has(request, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        answer = {"now": snapshot.observed.now, "complete": snapshot.complete, **resource.answer(snapshot, query)}
        if answer.get("console") and not is_operator(request):
            answer["console"] = None
        return Response(to_json(answer), headers=headers, media_type="application/json")

    return Route(ROOT + resource.path, endpoint)


def _tag(request: Request, snapshot: WebSnapshot, boot: str) -> str:
    """Of the answer: what is asked for, and of which content."""
    asked = zlib.crc32(request.scope["path"].encode("utf-8", "replace") + b"?" + request.scope["query_string"])
    asked += is_operator(request)
    return f'W/"{boot}-{snapshot.number}-{int(snapshot.observed.now // TAG_SECONDS)}-{asked:x}"'


def _has(request: Request, tag: str) -> bool:
    """Does the client have this answer already (If-None-Match)?"""
    given = request.headers.get("if-none-match", "")
    return given.strip() == "*" or tag.removeprefix("W/") in (
        one.strip().removeprefix("W/") for one in given.split(",")
    )


# The description of the API as OpenAPI 3.1, made from what the routes are made from.

_IS_PROBLEM: Final = {"$ref": "#/components/responses/Problem"}


def api_description(resources: Iterable[ApiResource], version: str, *, with_changes: bool) -> dict[str, Any]:
    """The document.

    :param version: of this release.
    :param with_changes: can anything be changed here?
    """
    document = OPENAPI["document"]
    paths = {resource.path.replace(":path}", "}"): {"get": _get(resource)} for resource in resources}
    more = OPENAPI["changes"] if with_changes else {}
    schemes = OPENAPI["securitySchemes"] if with_changes else {}
    return {
        **document,
        "info": {**document["info"], "version": version},
        # Relative to this document, so that a reverse proxy may put the site below a prefix.
        "servers": [{"url": "."}],
        "paths": {**paths, **document["paths"], **more},
        "components": {"securitySchemes": schemes, **document["components"]},
    }


def _get(resource: ApiResource) -> Mapping[str, Any]:
    parameters = [
        {"name": one.name, "in": "query", "description": one.description, "schema": dict(one.schema)}
        for one in resource.parameters
    ]
    name = {"name": "name", "in": "path", "required": True, "schema": TEXT}
    content = {"application/json": {"schema": whole(resource.schema)}}
    return {
        "summary": resource.summary,
        "operationId": resource.path.strip("/").replace(":path", "").replace("/", "_").replace("{name}", "one"),
        "parameters": [*([name] if resource.has_name else []), *parameters],
        "responses": {
            "200": {"description": "the answer", "headers": {"ETag": {"schema": TEXT}}, "content": content},
            "304": {"description": "the same as what the client has (If-None-Match)"},
            "400": _IS_PROBLEM,
            **({"404": _IS_PROBLEM} if resource.has_name else {}),
        },
    }


# What each path answers.

IMAGE: Final = Parameter("image", "These images: names or patterns, divided by commas.")
SUBJECT: Final = Parameter(
    "subject", "About this: a kind, a name or an id, e.g. `cloud-1`, `node` or `200-0000000001`."
)
CURSOR: Final = Parameter(
    "cursor", "`next` of the answer before: the items behind that.", {"type": "string", "maxLength": MAX_CURSOR}
)
#: What every list of the API has.
OF_LISTS: Final = (SORT, LIMIT, CURSOR, FIELDS)


def all_resources(zuul_url: str | None = None, history: History | None = None) -> list[ApiResource]:
    """In the order of their description.

    :param zuul_url: where Zuul's pages are, for links.
    :param history: None = nothing is kept of what ended.
    """
    links = {**thing(item("Links"), all_required=False), "description": "pages of Zuul"}
    return [
        ApiResource("/summary", "What `nodepool status` tells", _summary, _SUMMARY),
        list_resource(
            "/requests",
            "Node requests",
            _requests,
            "Request",
            (REQUEST_STATE, LABEL, PROVIDER, TENANT, OLDER_THAN),
        ),
        ApiResource("/requests/{name}", "One node request", _request, thing(item("Request"))),
        ApiResource(
            "/requests/{name}/explain",
            "Why a request waits or failed, and what would help, as `nodepool explain` tells it",
            partial(_explain_request, zuul_url),
            explained(ExplainedRequest, links=links),
        ),
        list_resource("/nodes", "Nodes", _nodes, "Node", (NODE_STATE, LABEL, PROVIDER, POOL, TENANT, OLDER_THAN)),
        ApiResource("/nodes/{name}", "One node", _node, thing(item("Node"))),
        ApiResource(
            "/nodes/{name}/explain",
            "For whom a node is, and what is done with it, as `nodepool explain` tells it",
            _explain_node,
            explained(ExplainedNode),
        ),
        table_resource(
            "/providers",
            "Pools of providers",
            all_providers,
            ("pool", "state", "launchers"),
            "Provider",
            {state((*STATES, NOT_SERVED)): "state", PROVIDER: "pool"},
        ),
        ApiResource(
            "/providers/{name:path}",
            "One provider, or one pool of it (`PROVIDER/POOL`), as `nodepool explain` tells it",
            _provider,
            explained(ExplainedProvider, "pool"),
        ),
        table_resource(
            "/hosts",
            "Static hosts",
            all_hosts,
            ("host", "pool"),
            "Host",
            {state(("up", "down", "quarantined", "not checked")): "state", PROVIDER: "pool"},
        ),
        table_resource(
            "/labels",
            "Labels",
            lambda snapshot: label_overview(snapshot.observed),
            ("label",),
            "Label",
            {state((SERVED, NOT_SERVED)): "state", LABEL: "label", PROVIDER: "pools"},
        ),
        ApiResource(
            "/labels/{name:path}",
            "One label, as `nodepool explain` tells it",
            _label,
            explained(ExplainedLabel),
        ),
        table_resource("/launchers", "Launchers", all_launchers, ("host", "pid"), "Launcher", {state(()): "state"}),
        table_resource(
            "/tenants",
            "What tenants use of their limits",
            all_tenants,
            ("tenant", "resource"),
            "Tenant",
            {TENANT: "tenant"},
        ),
        list_resource(
            "/images",
            "Images, their builds and uploads",
            _images,
            "Image",
            (IMAGE, _IMAGE_STATE, PROVIDER),
        ),
        list_resource("/events", "What happened, the oldest first", _events, "Event", (SINCE, SUBJECT)),
        *(
            list_resource(
                f"/ended/{kind}s", f"The last {kind}s that ended", partial(_ended, history, kind), "Life", (SINCE,)
            )
            for kind in ("request", "node")
        ),
    ]


# ``/summary``: what ``nodepool status`` shows, and how many nodes and requests are in each state.


def _summary(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen = snapshot.observed
    return {
        **as_object(overview(seen, registered_launchers(seen.registered))),
        "nodes": Counter(node_status(node) for node in seen.nodes.values()),
        "requests": Counter(request.state for request in seen.requests.values()),
    }


# ``/requests``: the rows of ``nodepool request-list``, and why one waits.


def _requests(snapshot: WebSnapshot, query: Query) -> Records:
    wanted, now = query.filter(REQUEST_STATE), snapshot.observed.now
    found = [request for request in snapshot.observed.requests.values() if wanted.request(request, now)]
    table = partial(_request_table, snapshot)
    return Records(found, REQUEST_ORDERS, lambda request: str(request.key), table)


def _request_table(snapshot: WebSnapshot, requests: Sequence[NodeRequest]) -> Table:
    seen = snapshot.observed
    return request_table(requests, seen.now, causes(requests, seen))


def _request(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    return objects_of(_request_table(snapshot, [_found_request(snapshot, query)]))[0]


def _explain_request(zuul_url: str | None, snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    request = _found_request(snapshot, query)
    answer = explain_request(request, snapshot.observed).to_dict()
    return {**answer, "links": zuul_links(request, zuul_url)}


def _found_request(snapshot: WebSnapshot, query: Query) -> NodeRequest:
    request = snapshot.observed.requests.get(query.path["name"])
    if request is None:
        raise WebProblem(404, f"There is no request {query.path['name']!r}.")
    return request


# ``/nodes``: the rows of ``nodepool list --detail``.


def _nodes(snapshot: WebSnapshot, query: Query) -> Records:
    wanted, now = query.filter(NODE_STATE), snapshot.observed.now
    found = [node for node in snapshot.observed.nodes.values() if wanted.node(node, now)]
    return Records(found, NODE_ORDERS, lambda node: str(node.key), partial(_node_table, snapshot))


def _node_table(snapshot: WebSnapshot, nodes: Sequence[Node]) -> Table:
    seen = snapshot.observed
    locked = {node.key for node in nodes if node.key in seen.locked}
    return node_table(nodes, NodeFacts(locked, seen.requests), seen.now, detail=True)


def _node(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    return objects_of(_node_table(snapshot, [_found_node(snapshot, query)]))[0]


def _explain_node(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen, name = snapshot.observed, query.path["name"]
    if name in seen.consoles:
        # Why it failed is asked for when it is deleted.
        return explain(name, "node", seen).to_dict()
    return explain_node(_found_node(snapshot, query), seen).to_dict()


def _found_node(snapshot: WebSnapshot, query: Query) -> Node:
    node = snapshot.observed.nodes.get(query.path["name"])
    if node is None:
        raise WebProblem(404, f"There is no node {query.path['name']!r}.")
    return node


# ``/providers`` and ``/labels``: all about one.


def _provider(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen, name = snapshot.observed, query.path["name"]
    known = seen.providers | seen.absent_providers.keys() | {pool.name for pool in seen.pools.values()}
    if name not in known:
        raise WebProblem(404, f"There is no provider or pool {name!r}{did_you_mean(name[:200], known)}.")
    return explain_provider(name, seen).to_dict()


def _label(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen, name = snapshot.observed, query.path["name"]
    if name not in seen.labels and not any(name in request.node_types for request in seen.requests.values()):
        near = did_you_mean(name[:200], seen.labels)
        raise WebProblem(404, f"No pool has a label {name!r}, and no request wants it{near}.")
    return explain_label(name, seen).to_dict()


# ``/images``: each image with its builds and uploads, as the commands for images show them.

_IMAGE_STATE: Final = state(tuple(dict.fromkeys((*states.BUILD_STATES, *states.UPLOAD_STATES))))
#: Keys of ages in tables -> of the moments that stand there.
_KEYS: Final[Mapping[str, str]] = {"age": "state_time", "build_request_age": "build_requested"}


def _images(snapshot: WebSnapshot, query: Query) -> Records:
    names, wanted, providers = query.names(IMAGE), query.names(_IMAGE_STATE), query.names(PROVIDER)
    seen, builders = snapshot.observed, snapshot.builders
    table = image_status_table(snapshot.observed.images, seen.now, moments=True)
    columns = [Column(column.header, _KEYS.get(column.key, column.key)) for column in table.columns]

    def with_parts(rows: Sequence[Any]) -> Table:
        nodes = nodes_by_build(seen.nodes.values())
        more = (Column("Builds", "builds"), Column("Uploads", "uploads"))
        return Table([*columns, *more], [parts(row, nodes) for row in rows])

    def parts(row: Sequence[Any], nodes: Mapping[str, list[str]]) -> list[Any]:
        view = ImagesView({row[0]: snapshot.observed.images.image(row[0])})
        builds = build_table(view, seen.now, builders, nodes, moments=True, pauses=False)
        uploads = _renamed(upload_table(view, seen.now, builders, moments=True))
        return [
            *row,
            [one for one in _renamed(builds) if matches(wanted, [one["state"]])],
            [one for one in uploads if matches(wanted, [one["state"]]) and matches(providers, [one["provider"]])],
        ]

    found = of_table(Table(columns, [row for row in table.rows if matches(names, [row[0]])]), ("image",))
    return Records(found.records, found.orders, found.identity, with_parts)


def _renamed(table: Table) -> list[dict[str, Any]]:
    return [{_KEYS.get(key, key): value for key, value in row.items()} for row in objects_of(table)]


# ``/events``: the rows of ``nodepool events``.


def _events(snapshot: WebSnapshot, query: Query) -> Records:
    seen, about = snapshot.observed, query.text(SUBJECT.name)
    events = (event for event in seen.events if not about or is_about(event, about))
    table = event_table(merged(events, query.since(seen.now)), seen.now)
    return of_table(table, ("at", "subject", "what", "code", "text"))


# ``/ended/requests`` and ``/ended/nodes``: what the history of ``nodepool-web`` has.

_OF_LIVES: Final = "id result reason created ended times facts"


def _ended(history: History | None, kind: str, snapshot: WebSnapshot, query: Query) -> Records:
    since = query.since(snapshot.observed.now)
    lives = [] if history is None else [life for life in history.ended(kind) if (life.ended or 0.0) >= since]
    columns = [Column(key, key) for key in _OF_LIVES.split()]
    columns.append(Column("waited", "waited_seconds", of="waited"))
    orders = {key: attrgetter(key) for key in ("ended", "created", "id", "result")}
    return Records(lives, orders, lambda life: str(life.id), partial(table_of, columns))


# Kinds of resources.


@dataclass(frozen=True)
class ApiResource:
    """One path.

    :param path: below ``/api/v1``; ``{name}`` is the id or name of a record, and may have ``/`` in it at the end.
    :param answer: makes the JSON object from the snapshot and the query, beside ``Answer``. Raises WebProblem.
    :param schema: of that object.
    :param parameters: of the query.
    """

    path: str
    summary: str
    answer: Callable[[WebSnapshot, Query], Mapping[str, Any]]
    schema: Mapping[str, Any]
    parameters: Sequence[Parameter] = ()

    @property
    def has_name(self) -> bool:
        """Does the path name a record?"""
        return "{name" in self.path


@dataclass(frozen=True)
class Records:
    """Records of a list, of which a part is shown.

    :param orders: key of a field -> what records are sorted by, the first if no other is asked for.
    :param table: makes rows of some of them; called for those that are shown.
    """

    records: Sequence[Any]
    orders: Mapping[str, Callable[[Any], Any]]
    identity: Callable[[Any], str]
    table: Callable[[Sequence[Any]], Table]


def list_resource(
    path: str,
    summary: str,
    look: Callable[[WebSnapshot, Query], Records],
    kind: str,
    parameters: Sequence[Parameter] = (),
) -> ApiResource:
    """A list that can be sorted, shown in parts, and with some fields.

    :param look: finds the records that a query wants.
    :param kind: of its items, see `item`.
    """

    def answer(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
        found = look(snapshot, query)
        key, descending = query.order(found.orders, next(iter(found.orders)))
        order = Order(found.orders[key], found.identity, descending)
        some, cursor = part_of(found.records, order, query.limit, query.text(CURSOR.name))
        table = found.table(some)
        if query.fields:
            try:
                table = selected(table, query.fields)
            except UnknownColumn as error:
                raise WebProblem(400, f"The parameter {FIELDS.name!r} cannot be understood: {error}.") from None
        return {"total": len(found.records), "next": cursor, "items": objects_of(table)}

    return ApiResource(path, summary, answer, page(kind), (*parameters, *OF_LISTS))


def table_resource(
    path: str,
    summary: str,
    make: Callable[[WebSnapshot], Table],
    identity: Sequence[str],
    kind: str,
    filters: Mapping[Parameter, str],
) -> ApiResource:
    """A list of which the table is small enough to be made as a whole.

    :param identity: keys of the columns that distinguish rows.
    :param filters: parameter -> key of the column that it looks at. Providers are those of the pools in the column.
    """

    def look(snapshot: WebSnapshot, query: Query) -> Records:
        table = make(snapshot)
        keys, rows = [column.key for column in table.columns], table.rows
        for parameter, key in filters.items():
            number = keys.index(key)
            if wanted := query.names(parameter):
                rows = [row for row in rows if matches(wanted, _compared(parameter, row[number], snapshot.observed))]
        return of_table(replace(table, rows=rows), identity)

    return list_resource(path, summary, look, kind, tuple(filters))


def _compared(parameter: Parameter, value: Any, seen: Observed) -> list[str]:
    """What a filter looks at in a cell."""
    found = value if isinstance(value, list) else [value]
    if parameter is PROVIDER:
        return [seen.provider_of(pool) for pool in found]
    # Of a state with the number of launchers behind it, the state.
    return [text.partition(" (")[0] for text in found] if parameter.name == "state" else found


def of_table(table: Table, identity: Sequence[str]) -> Records:
    """The rows of a table. Arguments as for `table_resource`."""
    orders = {column.key: itemgetter(number) for number, column in enumerate(table.columns)}

    def name(row: Sequence[Any]) -> str:
        return "\0".join(str(orders[key](row)) for key in identity)

    return Records(table.rows, orders, name, lambda rows: replace(table, rows=rows))


def objects_of(table: Table) -> list[dict[str, Any]]:
    """Each row as an object."""
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, row, strict=True)) for row in table.rows]


# Each part of a long list begins behind the last record of the one before, whatever came or went meanwhile.

#: Characters of a text, and of an identity, that count: a cursor has both.
_MAX_TEXT: Final = 200
#: Place of a record in the order: is there no value, the value as `sort_key` has it, and the identity.
_Rank = tuple[tuple[bool, bool, float, str], str]


@dataclass(frozen=True)
class Order(Generic[T]):
    """In which order records are; those without a value (None) come last.

    :param value: what they are sorted by: a number, a text, a list, or None.
    :param identity: distinguishes records, and is the order of those with the same value.
    """

    value: Callable[[T], Any]
    identity: Callable[[T], str]
    descending: bool = False

    def rank(self, record: T) -> _Rank:
        value = self.value(record)
        kind, number, text = (True, 0.0, "") if value is None else sort_key(value)
        return (value is None, kind, number, text[:_MAX_TEXT]), self.identity(record)[:_MAX_TEXT]

    def ranked(self, records: Iterable[T]) -> list[tuple[_Rank, T]]:
        """Records with their places, sorted."""
        ranked = [(self.rank(record), record) for record in records]
        ranked.sort(key=itemgetter(0))
        if self.descending:
            # Those with the same value stay in the order of their identities, those without one come last.
            ranked.sort(key=lambda entry: (not entry[0][0][0], entry[0][0]), reverse=True)
        return ranked

    def is_behind(self, rank: _Rank, begin: _Rank) -> bool:
        """Does a place come later than another?"""
        (value, identity), (first, first_identity) = rank, begin
        if value == first:
            return identity > first_identity
        if value[0] != first[0]:
            return value[0]
        return (value < first) if self.descending else (value > first)


def part_of(records: Iterable[T], order: Order[T], limit: int, cursor: str) -> tuple[list[T], str | None]:
    """The first records in an order, or those behind a cursor; and the cursor of the next part.

    :param limit: at most so many. ``cursor``: empty = from the beginning.
    :raises WebProblem: the cursor is none.
    """
    ranked = order.ranked(records)
    if cursor:
        begin = _read(cursor)
        ranked = [entry for entry in ranked if order.is_behind(entry[0], begin)]
    some = ranked[:limit]
    more = len(ranked) > limit and bool(some)
    return [record for _, record in some], _cursor(some[-1][0]) if more else None


def _cursor(rank: _Rank) -> str:
    data = json.dumps([*rank[0], rank[1]], separators=(",", ":"))
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def _read(cursor: str) -> _Rank:
    try:
        data = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        data = None
    match data:
        case [bool(nothing), bool(kind), int() | float() as number, str(text), str(identity)]:
            return (nothing, kind, number, text), identity
        case _:
            raise wrong(CURSOR.name, "it cannot be read")


# JSON schemas (2020-12, as OpenAPI 3.1 has them) of what the API answers.


def item(kind: str) -> dict[str, Any]:
    """Properties of an object, in ``items`` of the file."""
    parts = {"builds": "Build", "uploads": "Upload"} if kind == "Image" else {}
    return {**OPENAPI["items"][kind], **{name: array(thing(item(part))) for name, part in parts.items()}}


def thing(properties: Mapping[str, Schema], *, all_required: bool = True) -> dict[str, Any]:
    """An object with these properties and no others."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": list(properties)} if all_required else schema


def array(items: Schema) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}


def page(kind: str) -> dict[str, Any]:
    """A part of a list of items; ``fields`` may leave properties of these out."""
    return thing({**item("Page"), "items": array(thing(item(kind), all_required=False))})


def extended(schema: Schema, before: Mapping[str, Schema], after: Mapping[str, Schema]) -> dict[str, Any]:
    """A schema of an object with more properties, all of them required."""
    known = {**before, **schema["properties"], **after}
    return {**schema, "properties": known, "required": [*before, *schema["required"], *after]}


def whole(schema: Schema) -> dict[str, Any]:
    """A schema of an object, with what every answer has."""
    return extended(schema, item("Answer"), {})


def explained(answer: type[Explained], *kinds: str, **more: Schema) -> dict[str, Any]:
    """Of an answer of ``nodepool explain``.

    :param kinds: other kinds of subjects that it is about, beside its own.
    :param more: further properties.
    """
    return extended(of_dataclass(answer), {"kind": {"enum": [answer.kind, *kinds]}}, more)


def of_dataclass(kind: type) -> dict[str, Any]:
    """The schema of a dataclass as `dataclasses.asdict` makes an object of it."""
    hints = typing.get_type_hints(kind)
    return thing({one.name: _of_hint(hints[one.name]) for one in fields(kind)})


_SIMPLE: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
}


def _of_hint(hint: Any) -> dict[str, Any]:
    if hint is Any:
        return {}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        return of_dataclass(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_of_hint(one) for one in arguments]}
    if origin is Sequence:
        return array(_of_hint(arguments[0]))
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _of_hint(arguments[1])}
    raise TypeError(f"no schema of {hint}")


_COUNTS: Final = {"type": "object", "additionalProperties": {"type": "integer"}, "description": "by state"}
_SUMMARY: Final = thing(
    {
        "sentence": TEXT,
        "waiting": {**array(thing(item("Waiting"))), "description": "requests that wait for too long"},
        "problems": {**array(thing(item("Attention"))), "description": "what needs attention"},
        "capacity": array(thing(item("Capacity"))),
        "nodes": _COUNTS,
        "requests": _COUNTS,
    }
)
