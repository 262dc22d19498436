# SPDX-License-Identifier: Apache-2.0
"""``/hosts``, ``/launchers``, ``/tenants`` and ``/events``: the tables of the commands of these names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nodepool.listing.nodes import host_state, host_table
from nodepool.listing.pools import tenant_limits, tenant_table
from nodepool.listing.records import event_table, launcher_table
from nodepool.listing.table import state
from nodepool.plan.attention import merged, registered_launchers
from nodepool.plan.pool_summary import summarize
from nodepool.web.changed_records import RecordKind
from nodepool.web.pages.change_buttons import of_subjects
from nodepool.web.pages.choices import choices_of
from nodepool.web.pages.frame import Page
from nodepool.web.pages.links import Links
from nodepool.web.pages.lists import FilterField, ListSubject, first_texts, list_of_table
from nodepool.web.pages.table_view import CSS_CLASSES, CellText

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.model.status import HostStatus
    from nodepool.web.snapshot import WebSnapshot

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
