# SPDX-License-Identifier: Apache-2.0
"""``/hosts``: the rows of ``nodepool hosts``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nodepool.listing.nodes import host_table, matches
from nodepool.plan.pool_summary import summarize
from nodepool.web.api import schemas
from nodepool.web.api.resource import ApiResource, Records, list_resource, of_table
from nodepool.web.query import PROVIDER, Query, state

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

_STATE: Final = state(("up", "down", "quarantined", "not checked"))
_PROPERTIES: Final = {
    "host": {**schemas.TEXT, "description": "`USER@HOST:PORT`"},
    "pool": {**schemas.TEXT, "description": "`PROVIDER/POOL`"},
    "state": schemas.TEXT,
    "since": schemas.OPTIONAL_MOMENT,
    "slots": schemas.COUNT,
    "nodes": {**schemas.TEXTS, "description": "ids"},
    "error": schemas.OPTIONAL_TEXT,
    "next": {**schemas.OPTIONAL_MOMENT, "description": "when it is tried again, in seconds since the epoch"},
}


def host_resources() -> list[ApiResource]:
    return [list_resource("/hosts", "Static hosts", _hosts, _PROPERTIES, (_STATE, PROVIDER))]


def _hosts(snapshot: WebSnapshot, query: Query) -> Records:
    states, providers = query.names(_STATE), query.names(PROVIDER)
    table = host_table(summarize(snapshot.observed.statuses), snapshot.observed.now)
    rows = [
        row
        for row in table.rows
        if (not states or row[2] in states) and matches(providers, [snapshot.observed.provider_of(row[1])])
    ]
    return of_table(replace(table, rows=rows), ("host", "pool"))
