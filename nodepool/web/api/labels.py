# SPDX-License-Identifier: Apache-2.0
"""``/labels``: who serves each label and who wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.nodes import matches
from nodepool.listing.pools import NOT_SERVED, SERVED, label_overview
from nodepool.model.config_keys import did_you_mean
from nodepool.plan.explain import explain_label
from nodepool.plan.explained import ExplainedLabel
from nodepool.web.api import schemas
from nodepool.web.api.resource import NAME, ApiResource, Records, list_resource, of_table
from nodepool.web.problem import ApiProblem
from nodepool.web.query import LABEL, PROVIDER, Query, state
from nodepool.web.wait_times import WaitSummary

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

_STATE: Final = state((SERVED, NOT_SERVED))
_PROPERTIES: Final = {
    "label": schemas.TEXT,
    "state": {"enum": [SERVED, NOT_SERVED]},
    "pools": {**schemas.TEXTS, "description": "`PROVIDER/POOL` of those that have it"},
    "nodes": schemas.COUNT,
    "ready": {**schemas.COUNT, "description": "nodes that are ready and that nobody has"},
    "waiting": {**schemas.COUNT, "description": "requests"},
    "oldest": {
        **schemas.OPTIONAL_MOMENT,
        "description": "when the first of them was submitted, in seconds since the epoch",
    },
    "error": {**schemas.OPTIONAL_TEXT, "description": "why pools cannot serve it"},
}


def label_resources() -> list[ApiResource]:
    return [
        list_resource("/labels", "Labels", _labels, _PROPERTIES, (_STATE, LABEL, PROVIDER)),
        ApiResource(
            f"/labels/{{{NAME}:path}}",
            "One label, as `nodepool explain` tells it",
            _label,
            _explained(),
        ),
    ]


def _labels(snapshot: WebSnapshot, query: Query) -> Records:
    states, labels, providers = query.names(_STATE), query.names(LABEL), query.names(PROVIDER)
    table = label_overview(snapshot.observed)
    rows = [
        row
        for row in table.rows
        if (not states or row[1] in states)
        and matches(labels, [row[0]])
        and matches(providers, [snapshot.observed.provider_of(pool) for pool in row[2]])
    ]
    return of_table(replace(table, rows=rows), ("label",))


def _label(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen, name = snapshot.observed, query.path[NAME]
    if name not in seen.labels and not any(name in request.node_types for request in seen.requests.values()):
        near = did_you_mean(name[:200], seen.labels)
        raise ApiProblem(404, f"No pool has a label {name!r}, and no request wants it{near}.")
    return {**explain_label(name, seen).to_dict(), "waits": asdict(snapshot.waits.of_label(name, seen.now))}


def _explained() -> dict[str, Any]:
    schema = schemas.explained(ExplainedLabel)
    waits = {
        **schemas.of_dataclass(WaitSummary),
        "description": "seconds that requests waited that were fulfilled in the last hour. The whole wait of a request "
        "with several labels counts for each of them; `shared` is the number of these requests. `covered_seconds` is "
        "less than 3,600 if there were more than 1,000 requests: these are the last ones",
    }
    properties = {**schema["properties"], "waits": waits}
    return {**schema, "properties": properties, "required": list(properties)}
