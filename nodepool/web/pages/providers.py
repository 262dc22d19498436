# SPDX-License-Identifier: Apache-2.0
"""``/providers`` and ``/providers/<name>``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.listing import times
from nodepool.listing.nodes import host_table
from nodepool.listing.pools import limit_table, provider_table
from nodepool.listing.records import event_table
from nodepool.listing.table import BAD, Column, Table
from nodepool.plan.attention import merged
from nodepool.plan.explain import explain_provider
from nodepool.plan.pool_summary import PoolSummary, summarize
from nodepool.web.changed_records import RecordKind
from nodepool.web.pages.change_buttons import of_subject, of_subjects
from nodepool.web.pages.details import ShownFact, fact, moments
from nodepool.web.pages.frame import Page, PageError
from nodepool.web.pages.links import Links
from nodepool.web.pages.lists import ListSubject, list_of_table
from nodepool.web.pages.table_view import CellText, TableView, table_view
from nodepool.web.pages.templates import address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

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
        Column("Since", "since", times.since(now), priority=2),
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
        Column("Oldest", "oldest", times.since(now), priority=1),
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
