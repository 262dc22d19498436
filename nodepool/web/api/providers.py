# SPDX-License-Identifier: Apache-2.0
"""``/providers``: the rows of ``nodepool providers``, and all about one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.nodes import matches
from nodepool.listing.pools import NOT_SERVED, provider_table
from nodepool.model.config_keys import did_you_mean
from nodepool.plan.explain import explain_provider
from nodepool.plan.explained import ExplainedProvider
from nodepool.plan.pool_summary import STATES, summarize
from nodepool.web.api import schemas
from nodepool.web.api.resource import NAME, ApiResource, Records, list_resource, of_table
from nodepool.web.problem import ApiProblem
from nodepool.web.query import PROVIDER, Query, state

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

_STATE: Final = state((*STATES, NOT_SERVED))
_PROPERTIES: Final = {
    "pool": {**schemas.TEXT, "description": "`PROVIDER/POOL`; of a provider that no launcher could start `PROVIDER`"},
    "driver": schemas.OPTIONAL_TEXT,
    "state": {**schemas.TEXT, "description": "with the number of launchers behind it if not all say so"},
    "since": schemas.OPTIONAL_MOMENT,
    "limiting": {**schemas.OPTIONAL_TEXT, "description": "the limit of which most is used"},
    "waiting": {**schemas.OPTIONAL_COUNT, "description": "requests"},
    "launching": {**schemas.OPTIONAL_COUNT, "description": "nodes"},
    "failed_15m": {**schemas.OPTIONAL_COUNT, "description": "launches that failed in the last 15 minutes"},
    "error": schemas.OPTIONAL_TEXT,
    "next": {**schemas.OPTIONAL_MOMENT, "description": "when it is tried again, in seconds since the epoch"},
    "launchers": schemas.TEXTS,
    "code": schemas.OPTIONAL_TEXT,
}


def provider_resources() -> list[ApiResource]:
    return [
        list_resource("/providers", "Pools of providers", _providers, _PROPERTIES, (_STATE, PROVIDER)),
        ApiResource(
            f"/providers/{{{NAME}:path}}",
            "One provider, or one pool of it (`PROVIDER/POOL`), as `nodepool explain` tells it",
            _provider,
            schemas.explained(ExplainedProvider, "pool"),
        ),
    ]


def _providers(snapshot: WebSnapshot, query: Query) -> Records:
    states, providers = query.names(_STATE), query.names(PROVIDER)
    table = provider_table(summarize(snapshot.observed.statuses), snapshot.launchers, snapshot.observed.now)
    rows = [
        row
        for row in table.rows
        if (not states or row[2].partition(" (")[0] in states)
        and matches(providers, [snapshot.observed.provider_of(row[0])])
    ]
    return of_table(replace(table, rows=rows), ("pool", "state", "launchers"))


def _provider(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
    seen, name = snapshot.observed, query.path[NAME]
    known = seen.providers | seen.absent_providers.keys() | {pool.name for pool in seen.pools.values()}
    if name not in known:
        raise ApiProblem(404, f"There is no provider or pool {name!r}{did_you_mean(name[:200], known)}.")
    return explain_provider(name, seen).to_dict()
