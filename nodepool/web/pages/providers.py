# SPDX-License-Identifier: Apache-2.0
"""Pages of providers and of images, then those of hosts, launchers, tenants and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table as listing_table
from nodepool.listing.images import build_request_state, build_table, nodes_by_build, upload_table
from nodepool.listing.nodes import host_state, host_table
from nodepool.listing.pools import limit_table, provider_table
from nodepool.listing.records import event_table
from nodepool.listing.table import BAD, Column, Table, since, table_of
from nodepool.model import states
from nodepool.model.image import ImagesView, ImageView
from nodepool.plan.attention import merged
from nodepool.plan.explain import explain_provider
from nodepool.plan.pool_summary import PoolSummary, summarize
from nodepool.web.answers import WebProblem, quoted
from nodepool.web.pages.details import ShownFact, fact, moments, of_image, of_subject, of_subjects
from nodepool.web.pages.frame import (
    CSS_CLASSES,
    CellText,
    Link,
    Links,
    Page,
    TableView,
    address,
    first_rows,
    table_view,
)
from nodepool.web.pages.lists import FilterField, ListSubject, first_texts, list_of_table, query_of
from nodepool.web.query import all_hosts, all_launchers, all_providers, all_tenants
from nodepool.web.snapshot import RecordKind

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.model.status import HostStatus
    from nodepool.plan.explained import ExplainedProvider, WaitingGroup
    from nodepool.web.snapshot import WebSnapshot

_PROVIDERS: Final = ListSubject(
    "Providers",
    (RecordKind.PROVIDERS, RecordKind.LAUNCHERS),
    "No launcher reports a provider: is one running, with the same zookeeper-servers?",
)
#: Rows of each table of one provider.
MOST_ROWS: Final = 200
#: Failures that are shown.
MOST_FAILURES: Final = 50


def providers_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of providers with their pools."""
    return list_of_table(request, _PROVIDERS, all_providers(snapshot), Links(snapshot))


def provider_page(request: Request, snapshot: WebSnapshot) -> Page:
    """One provider: its pools with limits, labels, hosts, and what went wrong."""
    seen, name, links = snapshot.observed, request.path_params["name"], Links(snapshot)
    absent = [one for launcher in snapshot.launchers for one in launcher.absent if one.name == name]
    if name not in links.providers:
        raise WebProblem(404, f"No launcher serves a provider {name}.", (RecordKind.PROVIDERS,))
    told = explain_provider(name, seen)
    pools = [pool for pool in summarize(seen.statuses) if pool.provider == name]
    failures = [event for event in merged(seen.events) if _is_of(event.subject, event.actor, name)]
    tables = [
        table_view("Pools", provider_table(pools, (), seen.now), links),
        table_view("Limits", first_rows(limit_table(pools, seen.now), MOST_ROWS)),
        _labels(pools, seen.now, links),
        waiting_view(told.waiting, seen.now, links),
        table_view("Hosts", first_rows(host_table(pools, seen.now), MOST_ROWS), links, pool=None),
        table_view("Failures", event_table(failures[: -MOST_FAILURES - 1 : -1], seen.now), links),
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

_IMAGES: Final = ListSubject("Images", (RecordKind.IMAGES,), "No image is there.")


def images_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of images."""

    def state(image: ImageView) -> str | None:
        if image.paused:
            return "paused"
        return states.BUILDING if image.builds_in(states.BUILDING) else states.READY if image.ready_builds() else None

    def newest(image: ImageView) -> float | None:
        ready = image.ready_builds()
        return ready[0].time or None if ready else None

    def uploads(image: ImageView, state: str) -> int:
        return sum(upload.state == state for build in image.builds.values() for upload in build.all_uploads())

    columns = (
        Column("Image", "image", of="name"),
        Column("State", "state", style=listing_table.state, of=state),
        Column("Newest build", "newest", since(snapshot.observed.now), of=newest),
        Column("Ready builds", "ready", of=lambda image: len(image.ready_builds())),
        Column("Building", "building", of=lambda image: len(image.builds_in(states.BUILDING))),
        Column("Uploading", "uploading", of=lambda image: uploads(image, states.UPLOADING)),
        Column("Failed uploads", "failed", priority=2, of=lambda image: uploads(image, states.FAILED)),
        Column("Build request", "request", priority=1, of=build_request_state),
    )
    images = sorted(snapshot.images.images.values(), key=lambda image: image.name)
    return list_of_table(request, _IMAGES, table_of(columns, images), Links(snapshot))


def image_page(request: Request, snapshot: WebSnapshot, builder_url: str | None = None) -> Page:
    """One image: its builds with what they do just now, and its uploads with their progress.

    :param builder_url: see `nodepool.web.app.make_app`; builds lead to their logs there.
    """
    name, now = request.path_params["name"], snapshot.observed.now
    image = snapshot.images.images.get(name)
    if image is None:
        raise WebProblem(404, f"There is no image {name}.", (RecordKind.IMAGES,))
    links, only = Links(snapshot), ImagesView({name: image})
    builds = build_table(only, now, snapshot.builders, nodes_by_build(snapshot.observed.nodes.values()))
    keys = [column.key for column in builds.columns]
    hosts = {row[keys.index("id")]: row[keys.index("builder")] for row in builds.rows}

    def log(build: Any) -> str | None:
        if builder_url is None or not hosts[build]:
            return None
        return f"{builder_url.format(quoted(hosts[build]))}/{address('logs', build)}"

    values = {
        "facts": [
            fact("Paused", "yes" if image.paused else "no"),
            fact("Build request", build_request_state(image)),
        ],
        "tables": [
            _view("Builds", builds, links, log),
            _view("Uploads", upload_table(only, now, snapshot.builders), links),
        ],
    }
    return Page("image.html", f"Image {name}", values, (RecordKind.IMAGES,), of_image(name, paused=image.paused))


def _view(caption: str, table: Table, links: Links, log: Link | None = None) -> TableView:
    """The newest first; states have their colours."""
    kept = [number for number, column in enumerate(table.columns) if column.key != "image"]
    columns = [
        replace(column, style=listing_table.state) if column.key == "state" else column
        for column in (table.columns[number] for number in kept)
    ]
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
    """Static hosts, those that are not up first, and the slots of each."""
    seen, links = snapshot.observed, Links(snapshot)
    page = list_of_table(request, _HOSTS, all_hosts(snapshot), links)
    hosts = [host for pool in summarize(seen.statuses) for host in pool.hosts]
    grid = [_slots(host, links) for host in hosts[:MOST_HOSTS]]
    actions = of_subjects("host", first_texts(page), seen)
    return replace(page, template="hosts.html", values={**page.values, "grid": grid}, actions=actions)


def _slots(host: HostStatus, links: Links) -> dict[str, Any]:
    """The nodes in the slots of a host; ``free`` for the others."""
    nodes = links.nodes_text(host.nodes[:MOST_SLOTS])
    free = [CellText("free")] * (min(host.slots, MOST_SLOTS) - len(nodes))
    css = CSS_CLASSES.get(listing_table.state(host_state(host)), "")
    return {"name": host.name, "css": css, "slots": [*nodes, *free]}


def launchers_page(request: Request, snapshot: WebSnapshot) -> Page:
    """Launchers with version, configuration and pools."""
    page = list_of_table(request, _LAUNCHERS, all_launchers(snapshot), Links(snapshot))
    return replace(page, actions=of_subjects("launcher", first_texts(page), snapshot.observed))


def tenants_page(request: Request, snapshot: WebSnapshot) -> Page:
    """What tenants use of their limits."""
    return list_of_table(request, _TENANTS, all_tenants(snapshot), Links(snapshot))


def events_page(request: Request, snapshot: WebSnapshot) -> Page:
    """What happened, the newest first. ``kind`` chooses by the subject, ``since`` by the age."""
    seen, query = snapshot.observed, query_of(request)
    kind, within = query.text("kind"), query.text("since")
    begin = seen.now - query.duration("since") if within else 0.0
    found = [event for event in merged(seen.events, begin) if kind in ("", event.kind)]
    fields = [
        FilterField("kind", "About", kind, options=sorted({*_SUBJECTS, *([kind] if kind else [])})),
        FilterField("since", "Within", within, "e.g. 15m, 1h30m"),
    ]
    return list_of_table(request, _EVENTS, event_table(reversed(found), seen.now), Links(snapshot), fields)
