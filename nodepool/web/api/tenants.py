# SPDX-License-Identifier: Apache-2.0
"""``/tenants``: the rows of ``nodepool tenants``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nodepool.listing.nodes import matches
from nodepool.listing.pools import tenant_limits, tenant_table
from nodepool.web.api import schemas
from nodepool.web.api.resource import ApiResource, Records, list_resource, of_table
from nodepool.web.query import TENANT, Query

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

_PROPERTIES: Final = {
    "tenant": schemas.TEXT,
    "resource": schemas.TEXT,
    "limit": schemas.OPTIONAL_NUMBER,
    "used": schemas.NUMBER,
    "free": schemas.OPTIONAL_NUMBER,
    "nodes": {**schemas.COUNT, "description": "of the tenant"},
    "waiting": {**schemas.COUNT, "description": "requests of the tenant"},
}


def tenant_resources() -> list[ApiResource]:
    return [list_resource("/tenants", "What tenants use of their limits", _tenants, _PROPERTIES, (TENANT,))]


def _tenants(snapshot: WebSnapshot, query: Query) -> Records:
    wanted, seen = query.names(TENANT), snapshot.observed
    table = tenant_table(tenant_limits(snapshot.launchers), seen.nodes.values(), seen.requests.values())
    rows = [row for row in table.rows if matches(wanted, [row[0]])]
    return of_table(replace(table, rows=rows), ("tenant", "resource"))
