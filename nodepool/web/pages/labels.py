# SPDX-License-Identifier: Apache-2.0
"""``/labels`` and ``/labels/<name>``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.listing import times
from nodepool.listing.pools import label_overview
from nodepool.listing.table import Column, Table
from nodepool.model.event import short
from nodepool.plan.explain import explain_label
from nodepool.web.changed_records import RecordKind
from nodepool.web.pages.change_buttons import of_subject
from nodepool.web.pages.details import fact, moment_of
from nodepool.web.pages.frame import Page, PageError
from nodepool.web.pages.links import Links
from nodepool.web.pages.lists import ListSubject, list_of_table
from nodepool.web.pages.providers import waiting_view
from nodepool.web.pages.table_view import TableView, table_view
from nodepool.web.pages.templates import address
from nodepool.web.wait_times import WINDOW_SECONDS, WaitSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from nodepool.plan.explained import LabelInPool
    from nodepool.web.snapshot import WebSnapshot

_KINDS: Final = (RecordKind.PROVIDERS, RecordKind.REQUESTS, RecordKind.NODES)
_SUBJECT: Final = ListSubject(
    "Labels", _KINDS, lambda links: {"label": links.label, "pools": links.pool}, "No registered pool has a label."
)


def labels_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of labels: who serves them, and who wants them."""
    return list_of_table(request, _SUBJECT, label_overview(snapshot.observed), Links(snapshot))


def label_page(request: Request, snapshot: WebSnapshot) -> Page:
    """One label: its pools, and what waits for it."""
    seen, name = snapshot.observed, request.path_params["name"]
    links = Links(snapshot)
    if name not in links.labels:
        raise PageError(404, f"No pool has a label {name}, and no request wants it.", _KINDS)
    told = explain_label(name, seen)
    values = {
        "kind": "Label",
        "told": told,
        "facts": [
            fact("State", told.state, css="state"),
            fact("Open requests", told.requests, address("requests", label=name)),
            fact("Oldest since", moment_of(told.oldest)),
            fact("Waits of the last hour", _waits(snapshot.waits.of_label(name, seen.now))),
        ],
        "tables": [_pools(told.pools, seen.now, links), waiting_view(told.waiting, seen.now, links)],
    }
    return Page("detail.html", f"Label {name}", values, _KINDS, of_subject("label", name, seen))


def _waits(waits: WaitSummary) -> str | None:
    if waits.p50 is None or waits.p95 is None:
        return None
    shared = f"; {waits.shared} of them wanted other labels, too" if waits.shared else ""
    requests = "1 request" if waits.count == 1 else f"{waits.count} requests"
    last = f", those of the last {short(waits.covered_seconds)}" if waits.covered_seconds < WINDOW_SECONDS else ""
    return f"50 % at most {short(waits.p50)}, 95 % at most {short(waits.p95)} ({requests}{last}{shared})"


def _pools(pools: Sequence[LabelInPool], now: float, links: Links) -> TableView:
    columns = (
        Column("Pool", "pool"),
        Column("Free nodes", "free"),
        Column("Nodes", "nodes"),
        Column("Why not served", "text"),
        Column("Since", "since", times.since(now), priority=2),
        Column("Code", "code", priority=3),
        Column("Launchers", "launchers", priority=4),
    )
    rows = [
        [
            *(pool.pool, pool.free, ", ".join(f"{count} {state}" for state, count in pool.nodes.items()) or None),
            *(pool.text, pool.since, pool.code, list(pool.launchers)),
        ]
        for pool in pools
    ]
    return table_view("Pools", Table(columns, rows), {"pool": links.pool, "launchers": links.launcher})
