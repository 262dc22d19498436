# SPDX-License-Identifier: Apache-2.0
"""``/requests``: the rows of ``nodepool request-list``, and why one waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.requests import REQUEST_ORDERS, request_table
from nodepool.model import states
from nodepool.plan.explain import causes, explain_request
from nodepool.plan.explained import ExplainedRequest
from nodepool.web.api import schemas
from nodepool.web.api.resource import NAME, ApiResource, Records, list_resource, objects_of
from nodepool.web.problem import ApiProblem
from nodepool.web.query import LABEL, OLDER_THAN, PROVIDER, TENANT, Query, state
from nodepool.web.zuul_links import zuul_links

if TYPE_CHECKING:
    from nodepool.listing.table import Table
    from nodepool.model.request import NodeRequest
    from nodepool.web.snapshot import WebSnapshot

_STATE: Final = state(states.REQUEST_STATES)
_PROPERTIES: Final = {
    "id": schemas.TEXT,
    "relative_priority": schemas.COUNT,
    "state": schemas.TEXT,
    "requestor": schemas.OPTIONAL_TEXT,
    "node_types": {**schemas.TEXTS, "description": "labels, one for each node"},
    "nodes": {**schemas.TEXTS, "description": "ids"},
    "declined_by": {**schemas.TEXTS, "description": "ids of pools"},
    "event_id": schemas.OPTIONAL_TEXT,
    "created_time": schemas.OPTIONAL_MOMENT,
    "state_time": schemas.OPTIONAL_MOMENT,
    "age_seconds": schemas.OPTIONAL_SECONDS,
    "tenant": schemas.OPTIONAL_TEXT,
    "project": schemas.OPTIONAL_TEXT,
    "pipeline": schemas.OPTIONAL_TEXT,
    "job": schemas.OPTIONAL_TEXT,
    "provider": {**schemas.OPTIONAL_TEXT, "description": "the only one that may serve it"},
    "pool": {**schemas.OPTIONAL_TEXT, "description": "`PROVIDER/POOL` that is nearest to serving it"},
    "code": {**schemas.OPTIONAL_TEXT, "description": "why it waits or failed"},
    "reason": {**schemas.OPTIONAL_TEXT, "description": "the same for people"},
}
_LINKS: Final = {"buildset": schemas.TEXT, "status": schemas.TEXT}


def request_resources(zuul_url: str | None = None) -> list[ApiResource]:
    """:param zuul_url: where Zuul's pages are, for links."""
    explained = schemas.explained(ExplainedRequest)
    explained["properties"]["links"] = {**schemas.thing(_LINKS, all_required=False), "description": "pages of Zuul"}
    explained["required"].append("links")
    return [
        list_resource(
            "/requests", "Node requests", _requests, _PROPERTIES, (_STATE, LABEL, PROVIDER, TENANT, OLDER_THAN)
        ),
        ApiResource(f"/requests/{{{NAME}}}", "One node request", _request, schemas.thing(_PROPERTIES)),
        ApiResource(
            f"/requests/{{{NAME}}}/explain",
            "Why a request waits or failed, and what would help, as `nodepool explain` tells it",
            partial(_explain, zuul_url),
            explained,
        ),
    ]


def _requests(snapshot: WebSnapshot, query: Query) -> Records:
    wanted, now = query.filter(_STATE), snapshot.observed.now
    found = [request for request in snapshot.observed.requests.values() if wanted.request(request, now)]
    return Records(
        found, REQUEST_ORDERS, lambda request: str(request.key), "id", lambda requests: _table(snapshot, requests)
    )


def _table(snapshot: WebSnapshot, requests: Sequence[NodeRequest]) -> Table:
    seen = snapshot.observed
    return request_table(requests, seen.now, causes(requests, seen))


def _request(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    return objects_of(_table(snapshot, [_found(snapshot, query)]))[0]


def _explain(zuul_url: str | None, snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    request = _found(snapshot, query)
    told = explain_request(request, snapshot.observed).to_dict()
    return {**told, "links": zuul_links(request, zuul_url)}


def _found(snapshot: WebSnapshot, query: Query) -> NodeRequest:
    request = snapshot.observed.requests.get(query.path[NAME])
    if request is None:
        raise ApiProblem(404, f"There is no request {query.path[NAME]!r}.")
    return request
