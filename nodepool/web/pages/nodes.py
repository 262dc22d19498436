# SPDX-License-Identifier: Apache-2.0
"""``/nodes`` and ``/nodes/<id>``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.listing.nodes import ALLOCATED, NodeFacts, node_status, node_table, project_of
from nodepool.listing.requests import NODE_ORDERS
from nodepool.model import states
from nodepool.plan.explain import explain_node
from nodepool.web.changed_records import RecordKind
from nodepool.web.pages.change_buttons import of_node
from nodepool.web.pages.choices import choices_of
from nodepool.web.pages.details import ShownFact, age, fact, log_commands, moment_of, moments
from nodepool.web.pages.frame import Page, PageError
from nodepool.web.pages.links import Links
from nodepool.web.pages.lists import ListSubject, filter_fields, make_list, sorted_by
from nodepool.web.pages.templates import address

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.listing.table import Table
    from nodepool.web.snapshot import WebSnapshot

_STATES: Final = (*states.NODE_STATES, ALLOCATED)
_SUBJECT: Final = ListSubject(
    "Nodes",
    (RecordKind.NODES,),
    lambda links: {
        "id": links.node,
        "provider": links.provider,
        "label": links.label,
        "tenant": links.tenant,
        "allocated_to": links.request,
    },
    "No node is there.",
)
#: What nodes are sorted by, by the keys of columns.
_ORDERS: Final = {
    key: NODE_ORDERS[key]
    for key in (
        *("id", "status", "age_seconds", "label", "provider", "pool", "tenant", "project", "public_ipv4"),
        "allocated_to",
    )
}


def nodes_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of nodes."""
    seen, choices = snapshot.observed, choices_of(request.query_params)
    wanted = choices.filter(_STATES)
    key, descending = choices.order(list(_ORDERS), "id")
    # A snapshot has them in the order of their ids: what people look at most needs no look at each node.
    found = list(seen.nodes.values())
    if not wanted.everything:
        found = [node for node in found if wanted.node(node, seen.now)]
    if key != "id":
        found = sorted_by(found, _ORDERS[key], descending=descending)
    elif descending:
        found.reverse()

    def table(first: int, end: int) -> Table:
        nodes = found[first:end]
        locked = {node.key for node in nodes if node.key in seen.locked}
        return node_table(nodes, NodeFacts(locked, seen.requests), seen.now)

    fields = filter_fields(
        choices,
        _STATES,
        {"label": seen.labels, "provider": seen.providers},
        ("label", "provider", "pool", "tenant"),
    )
    return make_list(_SUBJECT, choices, len(found), table, fields, list(_ORDERS), "id", Links(snapshot))


def node_page(request: Request, snapshot: WebSnapshot) -> Page:
    """One node: its lifecycle, who uses it, what went wrong."""
    seen, node_id = snapshot.observed, request.path_params["name"]
    node = seen.nodes.get(node_id)
    if node is None:
        text = f"There is no node {node_id}. Nodes go when nobody needs them any more."
        raise PageError(404, text, (RecordKind.NODES,))
    told, links = explain_node(node, seen), Links(snapshot)
    pending = snapshot.pending(node_id)
    buttons = of_node(node, locked=bool(told.locked), pending=pending is not None)
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
            fact("Locked by", snapshot.locker(node_id) if told.locked else None),
            fact("Pending", pending and f"{pending.what} as soon as its lock is free, for {pending.wish.operator}"),
            fact("Pending because", pending and pending.wish.reason),
            fact("Pending until", pending and moment_of(pending.until)),
            fact("Held by", told.held_by),
            fact("Held until", moment_of(told.held_until)),
            fact("Reason", told.hold_reason),
        ],
        "history": moments(told.history),
        "commands": log_commands(f"node: {node_id}"),
    }
    return Page("detail.html", f"Node {node_id}", values, (RecordKind.NODES, RecordKind.REQUESTS), buttons)
