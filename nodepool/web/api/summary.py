# SPDX-License-Identifier: Apache-2.0
"""``/summary``: what ``nodepool status`` shows, and how many nodes and requests are in each state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.nodes import node_status
from nodepool.listing.overview import as_object, overview
from nodepool.plan.attention import registered_launchers
from nodepool.web.api import schemas
from nodepool.web.api.resource import ApiResource

if TYPE_CHECKING:
    from nodepool.web.query import Query
    from nodepool.web.snapshot import WebSnapshot

_COUNTS: Final = {"type": "object", "additionalProperties": schemas.COUNT}
_WAITING: Final = {
    "labels": schemas.TEXTS,
    "count": schemas.COUNT,
    "oldest": schemas.MOMENT,
    "pool": schemas.OPTIONAL_TEXT,
    "code": schemas.OPTIONAL_TEXT,
    "text": schemas.TEXT,
    "requests": {**schemas.TEXTS, "description": "ids of the oldest"},
}
_PROBLEM: Final = {
    "kind": schemas.TEXT,
    "text": schemas.TEXT,
    "since": schemas.OPTIONAL_MOMENT,
    "next": {**schemas.OPTIONAL_MOMENT, "description": "when it is tried again or ends, in seconds since the epoch"},
    "command": {**schemas.OPTIONAL_TEXT, "description": "arguments of `nodepool` that show more"},
}
_CAPACITY: Final = {
    "pool": {**schemas.TEXT, "description": "`PROVIDER/POOL`"},
    "state": schemas.TEXT,
    **{name: {**schemas.COUNT, "description": "nodes"} for name in ("ready", "in_use", "building", "deleting", "hold")},
    "waiting": {**schemas.COUNT, "description": "requests"},
    "limiting": {**schemas.OPTIONAL_TEXT, "description": "the limit of which most is used"},
}
_SCHEMA: Final = schemas.thing(
    {
        "sentence": schemas.TEXT,
        "waiting": {**schemas.array(schemas.thing(_WAITING)), "description": "requests that wait for too long"},
        "problems": {**schemas.array(schemas.thing(_PROBLEM)), "description": "what needs attention"},
        "capacity": schemas.array(schemas.thing(_CAPACITY)),
        "nodes": {**_COUNTS, "description": "by state"},
        "requests": {**_COUNTS, "description": "by state"},
    }
)


def summary_resources() -> list[ApiResource]:
    return [ApiResource("/summary", "What `nodepool status` tells", _summary, _SCHEMA)]


def _summary(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen = snapshot.observed
    told = overview(seen, snapshot.launchers, registered_launchers(seen.registered))
    return {
        **as_object(told),
        "nodes": Counter(node_status(node) for node in seen.nodes.values()),
        "requests": Counter(request.state for request in seen.requests.values()),
    }
