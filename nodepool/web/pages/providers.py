# SPDX-License-Identifier: Apache-2.0
"""Pages of providers and of images, then those of hosts, launchers, tenants and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from nodepool.listing import table as listing_table
from nodepool.listing.images import build_request_state, build_table, nodes_by_build, upload_table
from nodepool.listing.nodes import host_state, host_table
from nodepool.listing.pools import limit_table, provider_table, tenant_limits, tenant_table
from nodepool.listing.records import event_table, launcher_table
from nodepool.listing.table import BAD, Column, Table, since, state
from nodepool.model import states
from nodepool.model.image import ImagesView
from nodepool.plan.attention import merged, registered_launchers
from nodepool.plan.explain import explain_provider
from nodepool.plan.pool_summary import PoolSummary, summarize
from nodepool.web.pages.details import ShownFact, fact, moments, of_image, of_subject, of_subjects
from nodepool.web.pages.frame import CSS_CLASSES, CellText, Link, Links, Page, PageError, TableView, address, table_view
from nodepool.web.pages.lists import FilterField, ListSubject, choices_of, first_texts, list_of_table
from nodepool.web.snapshot import RecordKind

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.model.status import HostStatus
    from nodepool.plan.explained import ExplainedProvider, WaitingGroup
    from nodepool.web.snapshot import WebSnapshot

_SUBJECT: Final = ListSubject(
    "Providers",
    (RecordKind.PROVIDERS, RecordKind.LAUNCHERS),
    lambda links: {"pool": links.pool, "launchers": links.launcher},
    "No launcher reports a provider: is one running, with the same zookeeper-servers?",
)
#: Rows of each table of one provider.
MOST_ROWS: Final = 200
#: Failures that are shown.
MOST_FAILURES: Final = 50


def providers_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of providers with their pools."""
    seen = snapshot.observed
    table = provider_table(summarize(seen.statuses), snapshot.launchers, seen.now)
    return list_of_table(request, _SUBJECT, table, Links(snapshot))


def provider_page(request: Request, snapshot: WebSnapshot) -> Page:
    """One provider: its pools with limits, labels, hosts, and what went wrong."""
    seen, name = snapshot.observed, request.path_params["name"]
    links = Links(snapshot)
    absent = [one for launcher in snapshot.launchers for one in launcher.absent if one.name == name]
    if name not in links.providers:
        raise PageError(404, f"No launcher serves a provider {name}.", (RecordKind.PROVIDERS,))
    told = explain_provider(name, seen)
    pools = [pool for pool in summarize(seen.statuses) if pool.provider == name]
    failures = [event for event in merged(seen.events) if _is_of(event.subject, event.actor, name)]
    tables = [
        table_view("Pools", provider_table(pools, (), seen.now), _SUBJECT.links(links)),
        table_view("Limits", _cut(limit_table(pools, seen.now))),
        _labels(pools, seen.now, links),
        waiting_view(told.waiting, seen.now, links),
        table_view("Hosts", _cut(host_table(pools, seen.now)), {"nodes": links.node}),
        table_view("Failures", event_table(failures[: -MOST_FAILURES - 1 : -1], seen.now), {"subject": links.subject}),
    ]
    values = {
        "kind": "Provider",
        "told": told,
        "facts": [*_facts(told), *(fact("Not served", one.text) for one in absent)],
        "tables": tables,
        "history": moments(told.history),
    }
    kinds = (RecordKind.PROVIDERS, RecordKind.NODES, RecordKind.LAUNCHERS)
    actions = [*of_subject("provider", name, seen), *of_subjects("pool", (pool.name for pool in pools), seen)]
    return Page("detail.html", f"Provider {name}", values, kinds, actions)


def _facts(told: ExplainedProvider) -> list[ShownFact]:
    nodes = [
        CellText(f"{count} {state}", address("nodes", provider=told.id, state=state))
        for state, count in told.nodes.items()
    ]
    return [
        fact("State", told.state, css="state"),
        ShownFact("Nodes", nodes),
        fact("Maintenance", "; ".join(told.maintenance)),
        fact("Launchers that tell no status", ", ".join(told.silent)),
    ]


def _labels(pools: Sequence[PoolSummary], now: float, links: Links) -> TableView:
    """Labels that cannot be served."""
    columns = (
        Column("Label", "label"),
        Column("Pool", "pool"),
        Column("Why", "text", style=lambda _value: BAD),
        Column("Since", "since", listing_table.since(now), priority=2),
        Column("Code", "code", priority=3),
    )
    rows = [
        [name, pool.name, label.text, label.since or None, label.code]
        for pool in pools
        for name, label in pool.labels.items()
    ]
    return table_view("Labels that cannot be served", _cut(Table(columns, rows)), {"label": links.label})


def waiting_view(groups: Sequence[WaitingGroup], now: float, links: Links) -> TableView:
    """Requests that wait in pools."""
    columns = (
        Column("Pool", "pool"),
        Column("Requests", "count"),
        Column("Labels", "labels"),
        Column("Tenant", "tenant", priority=2),
        Column("Why", "text"),
        Column("Oldest", "oldest", listing_table.since(now), priority=1),
        Column("Code", "code", priority=3),
    )
    rows = [
        [one.pool, one.count, list(one.labels), one.tenant, one.text, one.oldest, one.code]
        for one in groups[:MOST_ROWS]
    ]
    shown = {"pool": links.pool, "labels": links.label, "tenant": links.tenant}
    return table_view("Waiting", Table(columns, rows), shown)


def _is_of(subject: str, actor: str, provider: str) -> bool:
    """Is an event about a provider, a pool of it, or seen in one?"""
    names = {*subject.split(), *actor.split()}
    return provider in names or any(name.startswith(f"{provider}/") for name in names)


def _cut(table: Table) -> Table:
    return Table(table.columns, table.rows[:MOST_ROWS])


# ``/images`` and ``/images/<name>``: builds and uploads, and how far they are.

_IMAGES_SUBJECT: Final = ListSubject(
    "Images", (RecordKind.IMAGES,), lambda links: {"image": links.image}, "No image is there."
)


def images_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of images."""
    table = image_overview(snapshot.images, snapshot.observed.now)
    return list_of_table(request, _IMAGES_SUBJECT, table, Links(snapshot))


def image_overview(images: ImagesView, now: float) -> Table:
    """A row for each image."""
    columns = (
        Column("Image", "image"),
        Column("State", "state", style=listing_table.state),
        Column("Newest build", "newest", since(now)),
        Column("Ready builds", "ready"),
        Column("Building", "building"),
        Column("Uploading", "uploading"),
        Column("Failed uploads", "failed", priority=2),
        Column("Build request", "request", priority=1),
    )
    rows: list[list[Any]] = []
    for image in images.images.values():
        ready = image.ready_builds()
        uploads = [upload.state for build in image.builds.values() for upload in build.all_uploads()]
        building = len(image.builds_in(states.BUILDING))
        state = "paused" if image.paused else states.BUILDING if building else states.READY if ready else None
        rows.append(
            [
                *(image.name, state, ready[0].time or None if ready else None, len(ready), building),
                *(uploads.count(states.UPLOADING), uploads.count(states.FAILED), build_request_state(image)),
            ]
        )
    return Table(columns, sorted(rows, key=lambda row: row[0]))


def image_page(request: Request, snapshot: WebSnapshot, builder_url: str | None = None) -> Page:
    """One image: its builds with what they do just now, and its uploads with their progress.

    :param builder_url: see `nodepool.web.app.make_app`; builds lead to their logs there.
    """
    name, now = request.path_params["name"], snapshot.observed.now
    image = snapshot.images.images.get(name)
    if image is None:
        raise PageError(404, f"There is no image {name}.", (RecordKind.IMAGES,))
    links, only = Links(snapshot), ImagesView({name: image})
    nodes = nodes_by_build(snapshot.observed.nodes.values())
    values = {
        "facts": [
            fact("Paused", "yes" if image.paused else "no"),
            fact("Build request", build_request_state(image)),
        ],
        "tables": [
            _view("Builds", build_table(only, now, snapshot.builders, nodes), links, partial(_log, builder_url)),
            _view("Uploads", upload_table(only, now, snapshot.builders), links),
        ],
    }
    return Page("image.html", f"Image {name}", values, (RecordKind.IMAGES,), of_image(name, paused=image.paused))


def _view(caption: str, table: Table, links: Links, log: Link | None = None) -> TableView:
    """The newest first; states have their colours."""
    columns = [
        replace(column, style=listing_table.state) if column.key == "state" else column
        for column in table.columns
        if column.key != "image"
    ]
    kept = [number for number, column in enumerate(table.columns) if column.key != "image"]
    rows = [[row[number] for number in kept] for row in table.rows[: -MOST_ROWS - 1 : -1]]
    shown = {"provider": links.provider, "nodes": links.node, **({} if log is None else {"id": log})}
    return table_view(caption, Table(columns, rows), shown)


def _log(builder_url: str | None, build: Any, row: Mapping[str, Any]) -> str | None:
    """Where the log of a build is."""
    if builder_url is None or not row["builder"]:
        return None
    return f"{builder_url.format(quote(row['builder']))}/{address('logs', build)}"


# ``/hosts``, ``/launchers``, ``/tenants`` and ``/events``: the tables of the commands of these names.

_HOSTS: Final = ListSubject(
    "Hosts",
    (RecordKind.PROVIDERS,),
    lambda links: {"pool": links.pool, "nodes": links.node},
    "No static host is served.",
)
_LAUNCHERS: Final = ListSubject(
    "Launchers", (RecordKind.LAUNCHERS,), lambda links: {"pools": links.pool}, "No launcher reports its state."
)
_TENANTS: Final = ListSubject(
    "Tenants",
    (RecordKind.NODES, RecordKind.REQUESTS),
    lambda links: {"tenant": links.tenant},
    "No tenant has a limit, a node or a request.",
)
_EVENTS: Final = ListSubject(
    "Events",
    (RecordKind.LAUNCHERS,),
    lambda links: {"subject": links.subject},
    "No launcher reports an event. A launcher forgets its events when it ends; the logs have all of them.",
)
#: Hosts whose slots are shown, and slots of each.
MOST_HOSTS: Final = 200
MOST_SLOTS: Final = 64
#: Kinds of subjects that events have.
_SUBJECTS: Final = ("host", "label", "launcher", "node", "pool", "provider", "request")


@dataclass(frozen=True)
class ShownHost:
    """:param css: class of its state. ``slots``: the nodes in them; ``free`` for the others."""

    name: str
    css: str
    slots: Sequence[CellText]


def hosts_page(request: Request, snapshot: WebSnapshot) -> Page:
    """Static hosts, those that are not up first, and the slots of each."""
    seen = snapshot.observed
    pools, links = summarize(seen.statuses), Links(snapshot)
    page = list_of_table(request, _HOSTS, host_table(pools, seen.now), links)
    hosts = [host for pool in pools for host in pool.hosts]
    grid = [_slots(host, links) for host in hosts[:MOST_HOSTS]]
    actions = of_subjects("host", first_texts(page), seen)
    return replace(page, template="hosts.html", values={**page.values, "grid": grid}, actions=actions)


def _slots(host: HostStatus, links: Links) -> ShownHost:
    nodes = links.nodes_text(host.nodes[:MOST_SLOTS])
    free = [CellText("free")] * (min(host.slots, MOST_SLOTS) - len(nodes))
    return ShownHost(host.name, CSS_CLASSES.get(state(host_state(host)), ""), [*nodes, *free])


def launchers_page(request: Request, snapshot: WebSnapshot) -> Page:
    """Launchers with version, configuration and pools."""
    seen = snapshot.observed
    table = launcher_table(snapshot.launchers, registered_launchers(seen.registered), seen.now)
    page = list_of_table(request, _LAUNCHERS, table, Links(snapshot))
    return replace(page, actions=of_subjects("launcher", first_texts(page), seen))


def tenants_page(request: Request, snapshot: WebSnapshot) -> Page:
    """What tenants use of their limits."""
    seen = snapshot.observed
    limits = tenant_limits(snapshot.launchers)
    table = tenant_table(limits, seen.nodes.values(), seen.requests.values())
    return list_of_table(request, _TENANTS, table, Links(snapshot))


def events_page(request: Request, snapshot: WebSnapshot) -> Page:
    """What happened, the newest first. ``kind`` chooses by the subject, ``since`` by the age."""
    seen, choices = snapshot.observed, choices_of(request.query_params)
    kind, since = choices.text("kind"), choices.text("since")
    begin = seen.now - choices.duration("since") if since else 0.0
    found = [event for event in merged(seen.events, begin) if kind in ("", event.kind)]
    fields = [
        FilterField("kind", "About", kind, options=sorted({*_SUBJECTS, *([kind] if kind else [])})),
        FilterField("since", "Within", since, "e.g. 15m, 1h30m"),
    ]
    return list_of_table(request, _EVENTS, event_table(reversed(found), seen.now), Links(snapshot), fields)
