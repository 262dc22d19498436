# SPDX-License-Identifier: Apache-2.0
"""The ASGI application of ``nodepool-web`` (`make_app`), and its pages of nodes, requests, labels and all other kinds.

First the application: what each request passes, and where everything is. Then the pages, then the search.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodepool.listing import table as listing_table
from nodepool.listing.images import build_request_state, build_table, image_table, nodes_by_build, upload_table
from nodepool.listing.nodes import (
    Filter,
    NodeFacts,
    full_id,
    host_state,
    host_table,
    node_status,
    node_table,
    project_of,
)
from nodepool.listing.pools import label_overview, limit_table, provider_table
from nodepool.listing.records import event_table
from nodepool.listing.requests import NODE_ORDERS, REQUEST_ORDERS, request_table
from nodepool.listing.table import BAD, GOOD, QUIET, WAITING, Column, Table, since, table_of
from nodepool.model import states
from nodepool.model.event import What, short
from nodepool.model.image import ImagesView
from nodepool.model.node import Node
from nodepool.model.request import origin_of
from nodepool.model.status import HostStatus
from nodepool.plan.attention import merged
from nodepool.plan.explain import causes, explain_label, explain_node, explain_provider, explain_request
from nodepool.plan.explained import Explained, ExplainedRequest, LabelInPool, Moment, WaitingGroup, explain_image
from nodepool.plan.observed import Observed, host_name
from nodepool.plan.pool_summary import PoolSummary, summarize
from nodepool.web import api, changes, stream
from nodepool.web.answers import (
    StaticFiles,
    WebProblem,
    all_hosts,
    all_launchers,
    all_providers,
    all_tenants,
    counted_parts,
    zuul_links,
)
from nodepool.web.changes import Access
from nodepool.web.frame import (
    LABEL,
    NODE_STATE,
    POOL,
    PROVIDER,
    REQUEST_STATE,
    TENANT,
    FilterField,
    Frame,
    ListSubject,
    MakePage,
    Page,
    RecordList,
    ShownFact,
    TableView,
    fact,
    facts_of,
    first_rows,
    list_of_records,
    list_of_table,
    log_commands,
    query_of,
    story,
    table_view,
)
from nodepool.web.history import KINDS, History, Life
from nodepool.web.logins import Logins
from nodepool.web.overview import charts_route, glossary_page, overview_page
from nodepool.web.served import THREADS, Pieces
from nodepool.web.server import ON_STOP
from nodepool.web.snapshot import CellText, Link, Links, RecordKind, SnapshotMaker, WebSnapshot, address, quoted
from nodepool.web.stream import HUB, EventHub

#: Nothing is loaded from elsewhere, and no script stands within a page.
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class SecurityHeaders:
    """Middleware that adds `SECURITY_HEADERS` to each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


def make_app(
    snapshots: SnapshotMaker,
    version: str,
    served: Iterable[BaseRoute],
    *,
    zuul_url: str | None = None,
    builder_url: str | None = None,
    access: Access | None = None,
    history: History | None = None,
) -> Starlette:
    """The application of ``nodepool-web``; nothing runs yet. Blocks for the file system, which has templates and files.

    :param version: of this release.
    :param served: routes that other daemons have, too.
    :param zuul_url: where Zuul's pages are, for links; None = there are none.
    :param builder_url: where the logs of a builder are, with ``{}`` for its host; None = builders have none.
    :param access: None = everybody may look, and nothing can be changed.
    :param history: None = nothing is kept.
    """
    history = history or History()
    snapshots.life = history.life

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        hub = EventHub(snapshots, version)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.run)
            yield {HUB: hub, ON_STOP: [hub.stop]}
            hub.stop()
            tasks.cancel_scope.cancel()

    pages: list[tuple[str, MakePage]] = [
        ("/", overview_page),
        ("/requests", partial(_list_or_ended, "request", requests_page, history)),
        ("/nodes", partial(_list_or_ended, "node", nodes_page, history)),
        ("/providers", providers_page),
        ("/hosts", hosts_page),
        ("/labels", labels_page),
        ("/launchers", launchers_page),
        ("/images", images_page),
        ("/tenants", tenants_page),
        ("/events", events_page),
        ("/search", partial(search_page, history=history)),
        ("/glossary", glossary_page),
        # Names may have a "/" in them.
        ("/requests/{name:path}", partial(request_page, history=history, zuul_url=zuul_url)),
        ("/nodes/{name:path}", partial(node_page, history=history)),
        ("/providers/{name:path}", provider_page),
        ("/labels/{name:path}", label_page),
        ("/images/{name:path}", partial(image_page, builder_url=builder_url)),
    ]
    files = StaticFiles()
    frame = Frame(snapshots, version, files, logins=access is not None)
    routes = [
        # Before the API, which has the same addresses to look at.
        *([] if access is None else changes.routes(access.actions, frame)),
        *served,
        stream.route(frame.followed),
        charts_route(history),
        *api.routes(snapshots, version, zuul_url, history, with_changes=access is not None),
        files.route(),
        *([] if access is None else changes.LoginPages(frame, access).routes()),
        *(frame.route(path, make) for path, make in pages),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: frame.error})
    # A path with a slash too many is another path, as in Nodepool 11.0.0; behind a proxy the redirect would be wrong.
    app.router.redirect_slashes = False
    # The last one is the first that sees a request.
    if access is not None:
        login = access.require_login
        app.add_middleware(
            Logins, verify=access.tokens.checked, require_login=login, origins=access.origins, refused=frame.error
        )
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Pieces)
    return app


# ``/nodes`` and ``/nodes/<id>``.


def _node_table(nodes: Sequence[Node], snapshot: WebSnapshot) -> Table:
    seen = snapshot.observed
    locked = {node.key for node in nodes if node.key in seen.locked}
    # Zuul removes a request when it has its nodes.
    lives = (snapshot.life("request", node.allocated_to) for node in nodes if node.allocated_to)
    ended = {life.id: life.facts for life in lives if life is not None}
    return node_table(nodes, NodeFacts(locked, seen.requests, ended=ended), seen.now)


_NODE_KEYS: Final = "id status age_seconds label provider pool tenant project public_ipv4 allocated_to"
#: The list of nodes. A snapshot has them in the order of their ids: what people look at most looks at no other node.
nodes_page = partial(
    list_of_records,
    RecordList(
        ListSubject("Nodes", (RecordKind.NODES,), "There is no node."),
        NODE_STATE,
        (LABEL, PROVIDER, POOL, TENANT),
        {key: NODE_ORDERS[key] for key in _NODE_KEYS.split()},
        lambda seen: seen.nodes.values(),
        Filter.node,
        _node_table,
        Links.node,
        lambda nodes, seen: [(node, node.key in seen.locked) for node in nodes],
    ),
)


_NODE_FACTS: Final = {
    "Host name": "hostname",
    "Public IPv4": "public_ipv4",
    "Public IPv6": "public_ipv6",
    "Private IPv4": "private_ipv4",
    "Zone": "az",
}


def node_page(request: Request, snapshot: WebSnapshot, history: History) -> Page:
    """One node: its lifecycle, who uses it, what went wrong."""
    seen, node_id = snapshot.observed, full_id(request.path_params["name"])
    node, life = seen.nodes.get(node_id), history.life("node", node_id)
    if node is None:
        if life is not None:
            return life_page(life, snapshot)
        text = f"There is no node {node_id}. A node is deleted when it is not needed any more."
        raise WebProblem(404, text, (RecordKind.NODES,))
    answer = explain_node(node, seen)
    # Zuul removes a request when it has its nodes.
    known = {} if life is None else life.facts
    links = Links(snapshot)
    values = {
        "kind": "Node",
        "explained": answer,
        "facts": [
            *facts_of(replace(answer, state=node_status(node), job=answer.job or known.get("job")), seen.now, links),
            fact("Pipeline", known.get("pipeline")),
            fact("Project", project_of(node) or known.get("project")),
            *(fact(name, getattr(node, key)) for name, key in _NODE_FACTS.items()),
            fact("Reason", answer.hold_reason),
        ],
        "history": story(answer.history, seen.now, life),
        "console": answer.console,
        "commands": log_commands(f"node: {node_id}"),
    }
    return Page(f"Node {node_id}", values, (RecordKind.NODES, RecordKind.REQUESTS), changes.of_node(node))


# Requests and nodes that ended, as far as `History` has kept them.

#: Facts of one that ended that are shown at once.
_PLAIN: Final = (
    *("labels", "provider", "pool", "tenant", "project", "pipeline", "job", "request", "nodes"),
    *("hostname", "public_ipv4", "private_ipv4"),
)


def _list_or_ended(kind: str, there: MakePage, history: History, request: Request, snapshot: WebSnapshot) -> Page:
    """The list of those that there are, or with ``ended`` of those that ended, and the way to the other one."""
    if not query_of(request).text("ended"):
        page = there(request, snapshot)
        return replace(page, values={**page.values, "other": (f"{kind.title()}s that ended", f"{kind}s?ended=yes")})

    def lasted(life: Life) -> float | None:
        return life.waited if kind == "request" else (life.ended or 0.0) - (life.created or life.ended or 0.0)

    columns = (
        Column("ID", "id"),
        Column("Result", "result"),
        Column("Ended", "ended", since(snapshot.observed.now)),
        Column("Waited" if kind == "request" else "Lived", "lasted", short, of=lasted),
        *(
            Column(name.capitalize(), name, priority=2, of=partial(_known, name))
            for name in ("labels", "provider", "tenant", "project", "job")
        ),
        Column("Why", "reason", priority=1, of=lambda life: life.reason or None),
    )
    subject = ListSubject(f"{kind.capitalize()}s that ended", (RecordKind(f"{kind}s"),), "None has ended yet.")
    links, table = Links(snapshot), partial(table_of, columns, history.ended(kind))
    page = list_of_table(request, subject, table, links, (), getattr(links, kind))
    return replace(page, values={**page.values, "other": (f"Current {kind}s", f"{kind}s")})


def _known(name: str, life: Life) -> Any:
    return life.facts.get(name)


def life_page(life: Life, snapshot: WebSnapshot) -> Page:
    """A request or a node that ended."""
    now, links, title = snapshot.observed.now, Links(snapshot), f"{life.kind.capitalize()} {life.id}"
    waited = "" if life.waited is None else f" after it had waited {short(life.waited)}"
    # A snapshot may be older than the history, and the history older than a snapshot.
    when = "began or ended just now" if life.ended is None else f"ended {short(now - life.ended)} ago ({life.result})"
    why = f": {life.reason}" if life.reason else ""
    found = []
    for name, value in life.facts.items():
        parts = counted_parts(value if isinstance(value, list) else [value], links.of_column(name))
        shown = name.replace("_", " ").capitalize().replace("ipv", "IPv")
        found.append(ShownFact(shown, parts, folded=name not in _PLAIN))
    begin = [] if life.created is None else [Moment(life.created, _BEGINS[life.kind])]
    values = {
        "kind": life.kind.capitalize(),
        "explained": Explained(life.id, life.result, f"{when}{why}"),
        "facts": [fact("Result", f"{life.result}{waited}".strip()), *found],
        "history": story(begin, now, life),
        "console": snapshot.observed.consoles.get(life.id) if life.kind == "node" else None,
        "commands": log_commands(f"{_MARKS[life.kind]}: {life.id}"),
    }
    return Page(title, values, (RecordKind(f"{life.kind}s"),))


#: Kind -> what its history begins with, and how lines of the log name it.
_BEGINS: Final = {"node": "created", "request": "submitted"}
_MARKS: Final = {"node": "node", "request": "node_request"}


# ``/requests`` and ``/requests/<id>``.

#: Verdict of a pool -> colour.
_VERDICTS: Final = {"serves": GOOD, "waits": WAITING, "absent": BAD, "leaves": QUIET, "declined": BAD}
_REQUEST_KEYS: Final = "id state age_seconds node_types tenant project pipeline job"
# What requests wait for is known from pools.
_REQUEST_KINDS: Final = (RecordKind.REQUESTS, RecordKind.PROVIDERS)
#: The list of requests, in the order in which pools serve them.
requests_page = partial(
    list_of_records,
    RecordList(
        ListSubject("Requests", _REQUEST_KINDS, "There is no request."),
        REQUEST_STATE,
        (LABEL, PROVIDER, TENANT),
        {key: REQUEST_ORDERS[key] for key in _REQUEST_KEYS.split()},
        lambda seen: sorted(seen.requests.values(), key=lambda request: request.order_key),
        Filter.request,
        lambda requests, snapshot: request_table(requests, snapshot.observed.now, causes(requests, snapshot.observed)),
        Links.request,
    ),
)


def request_page(request: Request, snapshot: WebSnapshot, history: History, zuul_url: str | None = None) -> Page:
    """One request: what becomes of it, and what each pool says.

    :param zuul_url: where Zuul's pages are, for links.
    """
    seen, request_id = snapshot.observed, full_id(request.path_params["name"])
    record, life = seen.requests.get(request_id), history.life("request", request_id)
    if record is None:
        if life is not None:
            return life_page(life, snapshot)
        text = f"There is no request {request_id}. Zuul removes those that are fulfilled or failed."
        raise WebProblem(404, text, (RecordKind.REQUESTS,))
    answer, links = explain_request(record, seen), Links(snapshot)
    zuul = [CellText(name, target) for name, target in zuul_links(record, zuul_url).items()]
    values = {
        "kind": "Request",
        "explained": answer,
        "facts": [
            *facts_of(answer, seen.now, links),
            fact("Requests that come first", answer.ahead or None),
            fact("Priority", record.relative_priority),
            fact("Project", origin_of(record).get("project")),
            ShownFact("Zuul", zuul),
        ],
        "tables": [_pools(answer, seen.now, links)],
        "history": story(answer.history, seen.now, life),
        "commands": log_commands(f"node_request: {request_id}"),
    }
    return Page(f"Request {request_id}", values, _REQUEST_KINDS)


def _pools(answer: ExplainedRequest, now: float, links: Links) -> TableView:
    """The verdict of each pool."""
    columns = (
        Column("Pool", "pool"),
        Column("Verdict", "verdict", style=lambda value: _VERDICTS.get(value, "")),
        Column("Why", "text"),
        Column("Ahead", "ahead", priority=2, of=lambda pool: pool.ahead or None),
        Column("Since", "since", since(now), priority=2),
        Column("Code", "code", priority=4),
        Column("Launchers", "launchers", priority=5, of=lambda pool: list(pool.launchers)),
    )
    return table_view("Pools", table_of(columns, answer.pools), links)


# ``/labels`` and ``/labels/<name>``.

_LABEL_KINDS: Final = (RecordKind.PROVIDERS, RecordKind.REQUESTS, RecordKind.NODES)
_LABELS: Final = ListSubject("Labels", _LABEL_KINDS, "No registered pool has a label.")


def labels_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of labels: who serves them, and who wants them."""
    return list_of_table(request, _LABELS, partial(label_overview, snapshot.observed), Links(snapshot))


def label_page(request: Request, snapshot: WebSnapshot) -> Page:
    """One label: its pools, and what waits for it."""
    seen, name, links = snapshot.observed, request.path_params["name"], Links(snapshot)
    if name not in links.labels:
        raise WebProblem(404, f"No pool has a label {name}, and no request wants it.", _LABEL_KINDS)
    answer = explain_label(name, seen)
    values = {
        "kind": "Label",
        "explained": answer,
        "facts": facts_of(answer, seen.now, links, Requests=lambda _count: address("requests", label=name)),
        "tables": [_label_pools(answer.pools, seen.now, links), waiting_view(answer.waiting, seen.now, links)],
    }
    return Page(f"Label {name}", values, _LABEL_KINDS, changes.of_subject("label", name, seen))


def _label_pools(pools: Sequence[LabelInPool], now: float, links: Links) -> TableView:
    def nodes(pool: LabelInPool) -> str | None:
        return ", ".join(f"{count} {state}" for state, count in pool.nodes.items()) or None

    columns = (
        Column("Pool", "pool"),
        Column("Free nodes", "free"),
        Column("Nodes", "nodes", of=nodes),
        Column("Why not served", "text"),
        Column("Since", "since", since(now), priority=2),
        Column("Code", "code", priority=3),
        Column("Launchers", "launchers", priority=4, of=lambda pool: list(pool.launchers)),
    )
    return table_view("Pools", table_of(columns, pools), links)


# ``/providers`` and ``/providers/<name>``.

_PROVIDERS: Final = ListSubject(
    "Providers",
    (RecordKind.PROVIDERS, RecordKind.LAUNCHERS),
    "No launcher reports a provider: is one running, with the same zookeeper-servers?",
)
#: Rows of each table of one provider.
MOST_ROWS: Final = 200
#: Failures that are shown.
MOST_FAILURES: Final = 50
#: The history has the rest: what was paused, and what works again.
_FAILURES: Final = frozenset(
    what.value
    for what in (
        *(What.DECLINED, What.FAILED, What.LAUNCH_FAILED, What.DELETION_FAILED, What.INSTANCE_LOST),
        *(What.UNAVAILABLE, What.SLOW, What.DOWN, What.QUARANTINED),
    )
)


def providers_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of providers with their pools."""
    return list_of_table(request, _PROVIDERS, partial(all_providers, snapshot), Links(snapshot))


def provider_page(request: Request, snapshot: WebSnapshot) -> Page:
    """One provider: its pools with limits, labels, hosts, and what went wrong."""
    seen, name, links = snapshot.observed, request.path_params["name"], Links(snapshot)
    absent = [one for launcher in snapshot.observed.launchers for one in launcher.absent if one.name == name]
    if name not in links.providers:
        raise WebProblem(404, f"No launcher serves a provider {name}.", (RecordKind.PROVIDERS,))
    answer = explain_provider(name, seen)

    def nodes(counted: Any) -> str:
        return address("nodes", provider=name, state=counted.partition(" ")[2])

    pools = [pool for pool in summarize(seen.statuses) if pool.provider == name]
    failures = [
        event for event in merged(seen.events) if event.what in _FAILURES and _is_of(event.subject, event.actor, name)
    ]
    tables = [
        table_view("Pools", provider_table(pools, (), seen.now), links),
        table_view("Limits", first_rows(limit_table(pools, seen.now), MOST_ROWS)),
        _labels(pools, seen.now, links),
        waiting_view(answer.waiting, seen.now, links),
        table_view("Hosts", first_rows(host_table(pools, seen.now), MOST_ROWS), links, pool=None),
        table_view("Failures", event_table(failures[: -MOST_FAILURES - 1 : -1], seen.now), links),
    ]
    values = {
        "kind": "Provider",
        "explained": answer,
        "facts": [
            *facts_of(answer, seen.now, links, Nodes=nodes),
            fact("Launchers that tell no status", ", ".join(answer.silent)),
            *(fact("Not served", one.text) for one in absent),
        ],
        "tables": tables,
        "history": story(answer.history, seen.now),
    }
    kinds = (RecordKind.PROVIDERS, RecordKind.NODES, RecordKind.LAUNCHERS)
    actions = [
        *changes.of_subject("provider", name, seen),
        *changes.of_subjects("pool", (pool.name for pool in pools), seen),
    ]
    return Page(f"Provider {name}", values, kinds, actions)


def _labels(pools: Sequence[PoolSummary], now: float, links: Links) -> TableView:
    """Labels that cannot be served."""
    columns = (
        Column("Label", "label"),
        Column("Pool", "pool"),
        Column("Why", "text", style=lambda _value: BAD),
        Column("Since", "since", since(now), priority=2),
        Column("Code", "code", priority=3),
    )
    rows = [
        [name, pool.name, label.text, label.since or None, label.code]
        for pool in pools
        for name, label in pool.labels.items()
    ]
    return table_view("Labels that cannot be served", Table(columns, rows[:MOST_ROWS]), links, pool=None)


def waiting_view(groups: Sequence[WaitingGroup], now: float, links: Links) -> TableView:
    """Requests that wait in pools."""
    columns = (
        Column("Pool", "pool"),
        Column("Requests", "count"),
        Column("Labels", "labels", of=lambda group: list(group.labels)),
        Column("Tenant", "tenant", priority=2),
        Column("Why", "text"),
        Column("Oldest", "oldest", since(now), priority=1),
        Column("Code", "code", priority=3),
    )
    return table_view("Waiting", table_of(columns, groups[:MOST_ROWS]), links)


def _is_of(subject: str, actor: str, provider: str) -> bool:
    """Is an event about a provider, a pool of it, or seen in one?"""
    names = {*subject.split(), *actor.split()}
    return provider in names or any(name.startswith(f"{provider}/") for name in names)


# ``/images`` and ``/images/<name>``: builds and uploads, and how far they are.

_IMAGES: Final = ListSubject("Images", (RecordKind.IMAGES,), "There is no image.")


def images_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of images."""

    images = partial(image_table, snapshot.observed.images, snapshot.observed.now)
    return list_of_table(request, _IMAGES, images, Links(snapshot))


def image_page(request: Request, snapshot: WebSnapshot, builder_url: str | None = None) -> Page:
    """One image: its builds with what they do just now, and its uploads with their progress.

    :param builder_url: see `nodepool.web.app.make_app`; builds lead to their logs there.
    """
    name, now = request.path_params["name"], snapshot.observed.now
    image = snapshot.observed.images.images.get(name)
    if image is None:
        raise WebProblem(404, f"There is no image {name}.", (RecordKind.IMAGES,))
    links, only = Links(snapshot), ImagesView({name: image})
    nodes = nodes_by_build(snapshot.observed.nodes.values())
    builds = build_table(only, now, snapshot.builders, nodes, moments=True)
    keys = [column.key for column in builds.columns]
    hosts = {row[keys.index("id")]: row[keys.index("builder")] for row in builds.rows}

    def log(build: Any) -> str | None:
        if builder_url is None or not hosts[build]:
            return None
        return f"{builder_url.format(quoted(hosts[build]))}/{address('logs', build)}"

    answer = explain_image(name, snapshot.observed)
    values = {
        "kind": "Image",
        "explained": answer,
        "facts": [
            *facts_of(answer, now, links),
            fact("Paused", "yes" if image.paused else "no"),
            fact("Build request", build_request_state(image)),
        ],
        "tables": [
            _view("Builds", builds, now, links, log),
            _view("Uploads", upload_table(only, now, snapshot.builders, moments=True), now, links),
        ],
    }
    return Page(f"Image {name}", values, (RecordKind.IMAGES,), changes.of_image(name, paused=image.paused))


#: Keys of columns of builds and uploads that few of them have.
_RARE: Final = frozenset(
    ["formats", "format", "step", "duration", "estimate", "size", "nodes", "use", "progress", "speed"]
)


def _view(caption: str, table: Table, now: float, links: Links, log: Link | None = None) -> TableView:
    """The newest first; states have their colours. Ages are moments in the table."""
    kept = [number for number, column in enumerate(table.columns) if column.key != "image"]
    columns = []
    for column in (table.columns[number] for number in kept):
        if column.key == "state":
            column = replace(column, style=listing_table.state)
        elif column.key == "age":
            column = replace(column, show=since(now))
        columns.append(replace(column, priority=1) if column.key in _RARE else column)
    rows = [[row[number] for number in kept] for row in table.rows[: -MOST_ROWS - 1 : -1]]
    return table_view(caption, Table(columns, rows), links, id=log)


# ``/hosts``, ``/launchers``, ``/tenants`` and ``/events``: the tables of the commands of these names.

_HOSTS: Final = ListSubject("Hosts", (RecordKind.PROVIDERS,), "No static host is served.")
_LAUNCHERS: Final = ListSubject("Launchers", (RecordKind.LAUNCHERS,), "No launcher reports its state.")
_TENANTS: Final = ListSubject(
    "Tenants", (RecordKind.NODES, RecordKind.REQUESTS), "No tenant has a limit, a node or a request."
)
_EVENTS: Final = ListSubject(
    "Events",
    (RecordKind.LAUNCHERS,),
    "No launcher reports an event. A launcher forgets its events when it ends; the logs have all of them.",
)
#: Hosts whose slots are shown, and slots of each.
MOST_HOSTS: Final = 200
MOST_SLOTS: Final = 64
#: Kinds of subjects that events have.
_SUBJECTS: Final = ("host", "label", "launcher", "node", "pool", "provider", "request")


def hosts_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The slots of all static hosts; then the hosts, those that are not up first."""
    seen, links = snapshot.observed, Links(snapshot)
    page = list_of_table(request, _HOSTS, partial(all_hosts, snapshot), links, changed=True)
    hosts = [host for pool in summarize(seen.statuses) for host in pool.hosts]
    slots = [_slots(host, seen, links) for host in hosts]
    counts = Counter(slot["state"] for host in slots for slot in host["slots"])
    values = {**page.values, "slots": slots[:MOST_HOSTS], "slot_counts": sorted(counts.items())}
    return replace(page, values=values, actions=changes.of_row("host", request, seen))


def _slots(host: HostStatus, seen: Observed, links: Links) -> dict[str, Any]:
    """The slots of a host: the state of the node that is there; without a node ``free``, or that of the host."""
    there = [(name, seen.nodes.get(name)) for name in host.nodes[:MOST_SLOTS]]
    slots = [(node_status(node) if node else states.IN_USE, f"node {name}", links.node(name)) for name, node in there]
    state = host_state(host)
    rest = (state if state in ("down", "quarantined") else "free", "no node", None)
    slots += [rest] * (min(host.slots, MOST_SLOTS) - len(slots))
    keys = ("state", "what", "href")
    return {"name": host.name, "slots": [dict(zip(keys, slot, strict=True)) for slot in slots]}


def launchers_page(request: Request, snapshot: WebSnapshot) -> Page:
    """Launchers with version, configuration and pools."""
    page = list_of_table(request, _LAUNCHERS, partial(all_launchers, snapshot), Links(snapshot), changed=True)
    return replace(page, actions=changes.of_row("launcher", request, snapshot.observed))


def tenants_page(request: Request, snapshot: WebSnapshot) -> Page:
    """What tenants use of their limits."""
    return list_of_table(request, _TENANTS, partial(all_tenants, snapshot), Links(snapshot))


def events_page(request: Request, snapshot: WebSnapshot) -> Page:
    """What happened, the newest first. ``kind`` chooses by the subject, ``since`` by the age."""
    seen, query = snapshot.observed, query_of(request)
    kind, within = query.text("kind"), query.text("since")
    fields = [
        FilterField("kind", "About", kind, options=sorted({*_SUBJECTS, *([kind] if kind else [])})),
        FilterField("since", "Within", within, "e.g. 15m, 1h30m"),
    ]

    def table() -> Table:
        begin = seen.now - query.duration("since") if within else 0.0
        found = [event for event in merged(seen.events, begin) if kind in ("", event.kind)]
        return event_table(reversed(found), seen.now)

    return list_of_table(request, _EVENTS, table, Links(snapshot), fields)


# ``/search``: the records that have a text: as their id or name, or as an address, a host, a job or the like.

_DIGITS: Final = re.compile(r"\d+$")


class Hit(NamedTuple):
    """A record that may be what is looked for.

    :param words: by which it is found, beside its name.
    :param link: finds its page, or the row of a list, from the root of the site: of thousands of records few are shown.
    """

    kind: str
    name: str
    state: str | None
    words: Sequence[Any]
    link: Callable[[Any], str | None]

    @property
    def href(self) -> str | None:
        return self.link(self.name)


def search_page(request: Request, snapshot: WebSnapshot, history: History) -> Page:
    """All records that have the text ``q``, those that are called so alone if there are any. One leads to its page."""
    text, links = query_of(request).text("q"), Links(snapshot)
    hits = _found(text.casefold(), chain(_records(snapshot, links, history), _ended(history, links))) if text else ()
    if len(hits) == 1 and (to := hits[0].href) is not None:
        return Page("Search", {}, to=to)
    columns = (Column("Name", "name"), Column("Kind", "kind"), Column("State", "state", style=listing_table.state))
    rows = [[CellText(hit.name, hit.href), hit.kind, hit.state] for hit in hits[:MOST_ROWS]]
    note = f"{len(hits) or 'No'} record{'s have' if len(hits) > 1 else ' has'} {text!r}."
    note = note if text else "Write an id, an address, a host, a job or another name above."
    return Page("Search", {"note": note, "tables": [table_view("Found", Table(columns, rows))] if rows else []})


def _found(text: str, records: Iterable[Hit]) -> Sequence[Hit]:
    """Records with the text as one of their words; without such, those with it in a word.

    :param text: in lower case. An id may be without the zeros at its beginning.
    """
    padded = _DIGITS.sub(lambda digits: digits[0].lstrip("0").zfill(10), text)
    whole, parts = [], []
    for record in records:
        words = "\n".join([str(word) for word in (record.name, *record.words) if word]).casefold()
        if text not in words and padded not in words:
            continue
        lines = words.split("\n")
        if text in lines or padded in lines:
            whole.append(record)
        elif text in words:
            parts.append(record)
    return whole or parts


def _ended(history: History, links: Links) -> Iterator[Hit]:
    for kind in KINDS:
        for life in history.ended(kind):
            words = [life.id.rpartition("-")[2], *_words(life)]
            yield Hit(f"ended {kind}", life.id, life.result, words, getattr(links, kind))


def _words(life: Life | None) -> list[Any]:
    return [] if life is None else [life.facts[name] for name in life.facts.keys() - _COMMON]


#: Facts that very many nodes or requests share.
_COMMON: Final = frozenset(
    {"labels", "provider", "pool", "tenant", "tenant_name", "launcher", "requestor", "nodes", "request"}
)


def _records(snapshot: WebSnapshot, links: Links, history: History) -> Iterator[Hit]:
    """All that can be found."""
    seen = snapshot.observed
    for request in seen.requests.values():
        data = request.requestor_data if isinstance(request.requestor_data, dict) else {}
        words = [request.key.rpartition("-")[2], request.event_id, *origin_of(request).values(), *data.values()]
        yield Hit("request", request.key, request.state, words, links.request)
    for node in seen.nodes.values():
        addresses = (node.public_ipv4, node.public_ipv6, node.private_ipv4, node.private_ipv6, node.interface_ip)
        # Zuul removes a request when it has its nodes: the job is in the history.
        job = _words(history.life("node", node.key))
        words = [*addresses, node.hostname, node.external_id, node.hold_job, project_of(node), *job]
        yield Hit("node", node.key, node_status(node), words, links.node)
    for pool in summarize(seen.statuses):
        yield Hit("pool", pool.name, pool.state, (), links.pool)
        for host in pool.hosts:
            yield Hit("host", host.name, host_state(host), [host_name(host.name)], links.host)
    for image in seen.images.images.values():
        yield Hit("image", image.name, "paused" if image.paused else None, list(image.builds), links.image)
    for launcher in seen.launchers:
        yield Hit("launcher", launcher.host, launcher.state, (), links.launcher)
    yield from (Hit("provider", name, None, (), links.provider) for name in sorted(links.providers))
    yield from (Hit("label", name, None, (), links.label) for name in sorted(links.labels))
