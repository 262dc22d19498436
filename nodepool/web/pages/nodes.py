# SPDX-License-Identifier: Apache-2.0
"""Pages of nodes, of requests and of labels: the list, and all about one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from nodepool.listing.nodes import Filter, NodeFacts, node_status, node_table, project_of
from nodepool.listing.pools import label_overview
from nodepool.listing.requests import NODE_ORDERS, REQUEST_ORDERS, request_table
from nodepool.listing.table import BAD, GOOD, QUIET, WAITING, Column, since, table_of
from nodepool.model.request import origin_of
from nodepool.plan.explain import causes, explain_label, explain_node, explain_request
from nodepool.web.answers import WebProblem, zuul_links
from nodepool.web.pages.details import ShownFact, age, fact, log_commands, moment_of, moments, of_node, of_subject
from nodepool.web.pages.frame import CellText, Links, Page, TableView, address, table_view
from nodepool.web.pages.lists import ListSubject, RecordList, list_of_records, list_of_table
from nodepool.web.pages.providers import waiting_view
from nodepool.web.query import LABEL, NODE_STATE, POOL, PROVIDER, REQUEST_STATE, TENANT
from nodepool.web.snapshot import RecordKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from nodepool.listing.table import Table
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.plan.explained import ExplainedRequest, LabelInPool
    from nodepool.plan.observed import Observed
    from nodepool.web.snapshot import WebSnapshot


def _node_table(nodes: Sequence[Node], seen: Observed) -> Table:
    locked = {node.key for node in nodes if node.key in seen.locked}
    return node_table(nodes, NodeFacts(locked, seen.requests), seen.now)


_NODE_KEYS: Final = "id status age_seconds label provider pool tenant project public_ipv4 allocated_to"
#: The list of nodes. A snapshot has them in the order of their ids: what people look at most looks at no other node.
nodes_page = partial(
    list_of_records,
    RecordList(
        ListSubject("Nodes", (RecordKind.NODES,), "No node is there."),
        NODE_STATE,
        (LABEL, PROVIDER, POOL, TENANT),
        {key: NODE_ORDERS[key] for key in _NODE_KEYS.split()},
        lambda seen: seen.nodes.values(),
        Filter.node,
        _node_table,
        Links.node,
    ),
)


def node_page(request: Request, snapshot: WebSnapshot) -> Page:
    """One node: its lifecycle, who uses it, what went wrong."""
    seen, node_id = snapshot.observed, request.path_params["name"]
    node = seen.nodes.get(node_id)
    if node is None:
        text = f"There is no node {node_id}. Nodes go when nobody needs them any more."
        raise WebProblem(404, text, (RecordKind.NODES,))
    told, links = explain_node(node, seen), Links(snapshot)
    values = {
        "kind": "Node",
        "told": told,
        "facts": [
            fact("State", node_status(node), css="state"),
            fact("In this state for", age(told.state_seconds)),
            fact("Age", age(told.age_seconds)),
            ShownFact("Labels", links.labels_text(told.labels)),
            fact("Provider", told.provider, links.provider(told.provider)),
            fact("Pool", told.pool),
            fact("Request", told.request, links.request(told.request)),
            fact("Tenant", told.tenant, address("requests", tenant=told.tenant)),
            fact("Project", project_of(node)),
            fact("Job", told.job),
            fact("Event", told.event_id),
            fact("Server", told.external_id),
            fact("Host name", node.hostname),
            fact("Public IPv4", node.public_ipv4),
            fact("Public IPv6", node.public_ipv6),
            fact("Private IPv4", node.private_ipv4),
            fact("Zone", node.az),
            fact("Launcher", told.launcher),
            fact("Locked", "yes" if told.locked else "no"),
            fact("Held by", told.held_by),
            fact("Held until", moment_of(told.held_until)),
            fact("Reason", told.hold_reason),
        ],
        "history": moments(told.history),
        "commands": log_commands(f"node: {node_id}"),
    }
    return Page("detail.html", f"Node {node_id}", values, (RecordKind.NODES, RecordKind.REQUESTS), of_node(node))


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
        ListSubject("Requests", _REQUEST_KINDS, "No request is there."),
        REQUEST_STATE,
        (LABEL, PROVIDER, TENANT),
        {key: REQUEST_ORDERS[key] for key in _REQUEST_KEYS.split()},
        lambda seen: sorted(seen.requests.values(), key=lambda request: request.order_key),
        Filter.request,
        lambda requests, seen: request_table(requests, seen.now, causes(requests, seen)),
        Links.request,
    ),
)


def request_page(request: Request, snapshot: WebSnapshot, zuul_url: str | None = None) -> Page:
    """One request: what becomes of it, and what each pool says.

    :param zuul_url: where Zuul's pages are, for links.
    """
    seen, request_id = snapshot.observed, request.path_params["name"]
    record = seen.requests.get(request_id)
    if record is None:
        text = f"There is no request {request_id}. Zuul removes those that are fulfilled or failed."
        raise WebProblem(404, text, (RecordKind.REQUESTS,))
    told, links = explain_request(record, seen), Links(snapshot)
    zuul = [CellText(name, target) for name, target in zuul_links(record, zuul_url).items()]
    values = {
        "kind": "Request",
        "told": told,
        "facts": [*_facts(record, told, links), ShownFact("Zuul", zuul)],
        "tables": [_pools(told, seen.now, links)],
        "history": moments(told.history),
        "commands": log_commands(f"node_request: {request_id}"),
    }
    return Page("detail.html", f"Request {request_id}", values, _REQUEST_KINDS)


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
        Column("Ahead", "ahead", priority=2, of=lambda pool: pool.ahead or None),
        Column("Since", "since", since(now), priority=2),
        Column("Code", "code", priority=4),
        Column("Launchers", "launchers", priority=5, of=lambda pool: list(pool.launchers)),
    )
    return table_view("Pools", table_of(columns, told.pools), links)


# ``/labels`` and ``/labels/<name>``.

_LABEL_KINDS: Final = (RecordKind.PROVIDERS, RecordKind.REQUESTS, RecordKind.NODES)
_LABELS: Final = ListSubject("Labels", _LABEL_KINDS, "No registered pool has a label.")


def labels_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of labels: who serves them, and who wants them."""
    return list_of_table(request, _LABELS, label_overview(snapshot.observed), Links(snapshot))


def label_page(request: Request, snapshot: WebSnapshot) -> Page:
    """One label: its pools, and what waits for it."""
    seen, name, links = snapshot.observed, request.path_params["name"], Links(snapshot)
    if name not in links.labels:
        raise WebProblem(404, f"No pool has a label {name}, and no request wants it.", _LABEL_KINDS)
    told = explain_label(name, seen)
    values = {
        "kind": "Label",
        "told": told,
        "facts": [
            fact("State", told.state, css="state"),
            fact("Open requests", told.requests, address("requests", label=name)),
            fact("Oldest since", moment_of(told.oldest)),
        ],
        "tables": [_label_pools(told.pools, seen.now, links), waiting_view(told.waiting, seen.now, links)],
    }
    return Page("detail.html", f"Label {name}", values, _LABEL_KINDS, of_subject("label", name, seen))


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
