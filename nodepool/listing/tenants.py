# SPDX-License-Identifier: Apache-2.0
"""The table of tenants: what they use of their limits (reference/commands 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.pools import amount
from nodepool.listing.table import Column, Table
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.model.launcher_status import LauncherStatus
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest

_COLUMNS: Final = (
    Column("Tenant", "tenant"),
    Column("Resource", "resource"),
    Column("Limit", "limit", amount),
    Column("Used", "used", amount),
    Column("Free", "free", amount),
    Column("Nodes", "nodes"),
    Column("Waiting", "waiting"),
)


def tenant_table(
    limits: Mapping[str, Mapping[str, float]], nodes: Iterable[Node], requests: Iterable[NodeRequest]
) -> Table:
    """A row for each resource that a tenant uses or that is limited.

    :param limits: tenant -> resource -> limit.
    """
    counts: Counter[str] = Counter()
    used: dict[str, Counter[str]] = {}
    for node in nodes:
        if node.tenant_name:
            counts[node.tenant_name] += 1
            used.setdefault(node.tenant_name, Counter()).update(resources_of(node))
    waiting = Counter(
        request.tenant_name
        for request in requests
        if request.tenant_name and request.state in (states.REQUESTED, states.PENDING)
    )
    rows: list[list[Any]] = []
    for tenant in sorted({*limits, *counts, *waiting}):
        of_tenant, now = limits.get(tenant, {}), used.get(tenant, Counter())
        for resource in sorted({*of_tenant, *now}) or ["instances"]:
            limit, amount_used = of_tenant.get(resource), round(now[resource], 6)
            left = None if limit is None else max(0, limit - amount_used)
            rows.append([tenant, resource, limit, amount_used, left, counts[tenant], waiting[tenant]])
    return Table(_COLUMNS, rows)


def resources_of(node: Node) -> dict[str, Any]:
    """What a node uses, as far as its record says; without, it is one instance."""
    stored = node.resources or {}
    numbers = {
        name: value for name, value in stored.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return numbers or {"instances": 1}


def tenant_limits(launchers: Iterable[LauncherStatus]) -> Mapping[str, Mapping[str, float]]:
    """Tenant -> resource -> limit. All launchers have the same; of those that do not, the limits of all."""
    found: dict[str, dict[str, float]] = {}
    for launcher in launchers:
        for tenant, limits in launcher.tenant_limits.items():
            found.setdefault(tenant, {}).update(limits)
    return found
