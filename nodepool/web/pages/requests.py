# SPDX-License-Identifier: Apache-2.0
"""``/requests`` and ``/requests/<id>``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import times
from nodepool.listing.requests import REQUEST_ORDERS, request_table
from nodepool.listing.table import BAD, GOOD, QUIET, WAITING, Column, Table
from nodepool.model import states
from nodepool.model.request import NodeRequest, origin_of
from nodepool.plan.explain import causes, explain_request
from nodepool.web.changed_records import RecordKind
from nodepool.web.pages.choices import choices_of
from nodepool.web.pages.details import ShownFact, age, fact, log_commands, moments
from nodepool.web.pages.frame import Page, PageError
from nodepool.web.pages.links import Links
from nodepool.web.pages.lists import ListSubject, filter_fields, make_list, sorted_by
from nodepool.web.pages.table_view import CellText, TableView, table_view
from nodepool.web.pages.templates import address
from nodepool.web.zuul_links import zuul_links

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.plan.explained import ExplainedRequest
    from nodepool.web.snapshot import WebSnapshot

_SUBJECT: Final = ListSubject(
    "Requests",
    # What they wait for is told by pools.
    (RecordKind.REQUESTS, RecordKind.PROVIDERS),
    lambda links: {
        "id": links.request,
        "node_types": links.label,
        "nodes": links.node,
        "tenant": links.tenant,
        "provider": links.provider,
        "pool": links.pool,
    },
    "No request is there.",
)
#: What requests are sorted by, by the keys of columns.
_ORDERS: Final[Mapping[str, Callable[[NodeRequest], Any]]] = {
    **{
        key: REQUEST_ORDERS[key]
        for key in ("id", "state", "age_seconds", "node_types", "tenant", "project", "pipeline", "job")
    },
    # As pools serve them.
    "id": lambda request: request.order_key,
}
#: Verdict of a pool -> colour.
_VERDICTS: Final = {
    "serves": GOOD,
    "waits": WAITING,
    "absent": BAD,
    "leaves": QUIET,
    "declined": BAD,
}


def requests_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of requests."""
    seen, choices = snapshot.observed, choices_of(request.query_params)
    wanted = choices.filter(states.REQUEST_STATES)
    key, descending = choices.order(list(_ORDERS), "id")
    found = [one for one in seen.requests.values() if wanted.request(one, seen.now)]
    found = sorted_by(found, _ORDERS[key], descending=descending)

    def table(first: int, end: int) -> Table:
        shown = found[first:end]
        return request_table(shown, seen.now, causes(shown, seen))

    fields = filter_fields(
        choices,
        states.REQUEST_STATES,
        {"label": seen.labels, "provider": seen.providers},
        ("label", "provider", "tenant"),
    )
    return make_list(_SUBJECT, choices, len(found), table, fields, list(_ORDERS), "id", Links(snapshot))


def request_page(request: Request, snapshot: WebSnapshot, zuul_url: str | None = None) -> Page:
    """One request: what becomes of it, and what each pool says.

    :param zuul_url: where Zuul's pages are, for links.
    """
    seen, request_id = snapshot.observed, request.path_params["name"]
    record = seen.requests.get(request_id)
    if record is None:
        text = f"There is no request {request_id}. Zuul removes those that are fulfilled or failed."
        raise PageError(404, text, (RecordKind.REQUESTS,))
    told, links = explain_request(record, seen), Links(snapshot)
    values = {
        "kind": "Request",
        "told": told,
        "facts": [*_facts(record, told, links), ShownFact("Zuul", _zuul(record, zuul_url))],
        "tables": [_pools(told, seen.now, links)],
        "history": moments(told.history),
        "commands": log_commands(f"node_request: {request_id}"),
    }
    return Page("detail.html", f"Request {request_id}", values, (RecordKind.REQUESTS, RecordKind.PROVIDERS))


def _facts(record: NodeRequest, told: ExplainedRequest, links: Links) -> list[ShownFact]:
    return [
        fact("State", told.state, css="state"),
        fact("Age", age(told.age_seconds)),
        ShownFact("Labels", links.labels_text(told.labels)),
        fact("Reason", told.code),
        fact("Requests that come first", told.ahead or None),
        fact("Priority", record.relative_priority),
        fact("Only in", told.provider, links.provider(told.provider)),
        fact("Tenant", told.tenant, address("requests", tenant=told.tenant)),
        fact("Project", origin_of(record).get("project")),
        fact("Pipeline", told.pipeline),
        fact("Job", told.job),
        fact("Event", told.event_id),
        fact("Requestor", told.requestor),
        ShownFact("Nodes", links.nodes_text(told.nodes)),
    ]


def _pools(told: ExplainedRequest, now: float, links: Links) -> TableView:
    """The verdict of each pool."""
    columns = (
        Column("Pool", "pool"),
        Column("Verdict", "verdict", style=lambda value: _VERDICTS.get(value, "")),
        Column("Why", "text"),
        Column("Ahead", "ahead", priority=2),
        Column("Since", "since", times.since(now), priority=2),
        Column("Code", "code", priority=4),
        Column("Launchers", "launchers", priority=5),
    )
    rows = [
        [pool.pool, pool.verdict, pool.text, pool.ahead or None, pool.since, pool.code, list(pool.launchers)]
        for pool in told.pools
    ]
    return table_view("Pools", Table(columns, rows), {"pool": links.pool, "launchers": links.launcher})


def _zuul(record: NodeRequest, zuul_url: str | None) -> list[CellText]:
    return [CellText(name, address, outside=True) for name, address in zuul_links(record, zuul_url).items()]
