# SPDX-License-Identifier: Apache-2.0
"""``/launchers``: the rows of ``nodepool launchers``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nodepool.listing.records import launcher_table
from nodepool.plan.attention import registered_launchers
from nodepool.web.api import schemas
from nodepool.web.api.resource import ApiResource, Records, list_resource, of_table
from nodepool.web.query import Query, state

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

_STATE: Final = state(())
_PROPERTIES: Final = {
    "host": schemas.TEXT,
    "pid": schemas.OPTIONAL_COUNT,
    "version": schemas.OPTIONAL_TEXT,
    "state": schemas.TEXT,
    "since": schemas.OPTIONAL_MOMENT,
    "config": {**schemas.OPTIONAL_TEXT, "description": "short hash of the configuration"},
    "pools": {**schemas.OPTIONAL_TEXTS, "description": "`PROVIDER/POOL`"},
    "reload": {
        "anyOf": [
            schemas.thing({"at": schemas.MOMENT, "ok": schemas.FLAG, "text": schemas.TEXT}),
            {"type": "null"},
        ]
    },
    "maintenance": schemas.OPTIONAL_TEXT,
    "leader": {
        "type": ["boolean", "null"],
        "description": "does it send the gauges of all nodes and requests to statsd? `null`: it does not tell",
    },
    "config_file": schemas.OPTIONAL_TEXT,
    "servers": {**schemas.OPTIONAL_TEXT, "description": "of ZooKeeper"},
}


def launcher_resources() -> list[ApiResource]:
    return [list_resource("/launchers", "Launchers", _launchers, _PROPERTIES, (_STATE,))]


def _launchers(snapshot: WebSnapshot, query: Query) -> Records:
    states, seen = query.names(_STATE), snapshot.observed
    table = launcher_table(snapshot.launchers, registered_launchers(seen.registered), seen.now)
    rows = [row for row in table.rows if not states or row[3] in states]
    return of_table(replace(table, rows=rows), ("host", "pid"))
