# SPDX-License-Identifier: Apache-2.0
"""Tables of providers with pools and limits, of tenants, of one provider, and of labels (reference/commands 2)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table
from nodepool.listing.table import PEOPLE, WHOLE, Column, Place, Table, table_of
from nodepool.model import states
from nodepool.model.event import amount
from nodepool.model.request import PART_REQUESTOR
from nodepool.plan.pool_summary import PoolSummary, free, fullness, limit_owner, limiting, newest, summarize
from nodepool.plan.shares import uses_of

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.model.status import LauncherStatus, LimitStatus
    from nodepool.plan.observed import Observed

#: State of a provider that no launcher could start.
NOT_SERVED: Final = "not served"


class _Ram(int):
    """So many MiB. JSON has the number, a table the unit, too."""


def _measured(value: float | None, resource: str) -> float | None:
    """A value of a table whose rows are about resources; `_amount` shows it."""
    return value if resource != "ram" or value is None or not math.isfinite(value) else _Ram(value)


def _amount(value: float) -> str:
    return amount(value, "ram" if isinstance(value, _Ram) else "")


def used_of(limit: LimitStatus) -> str:
    """How much of a limit is used, e.g. ``cores 72 + 8 of 80``: ours and, where there is any, others'."""
    others = f" + {amount(limit.others, limit.resource)}" if limit.others else ""
    total = "" if limit.limit is None else f" of {amount(limit.limit, limit.resource)}"
    return f"{limit.resource} {amount(limit.used, limit.resource)}{others}{total}"


def provider_table(pools: Iterable[PoolSummary], launchers: Iterable[LauncherStatus], now: float) -> Table:
    """The table of providers.

    :param launchers: their records name the providers that could not be started.
    :param now: seconds since the epoch.
    """
    columns = (
        Column("Pool", "pool", least=WHOLE),
        Column("Driver", "driver", priority=5),
        Column("State", "state", style=_style),
        Column("Since", "since", table.since(now), priority=1),
        Column("Most used", "limiting", priority=2),
        Column("Waiting", "waiting", priority=3),
        Column("Launching", "launching", priority=6),
        Column("Failed (15 min)", "failed_15m", priority=4),
        Column("Why", "error", least=60),
        Column("Next try", "next", table.until(now), priority=2),
        Column("Launchers", "launchers", priority=7),
        Column("Code", "code", priority=8),
    )
    rows = [_row(pool) for pool in pools]
    for launcher in launchers:
        for absent in launcher.absent:
            rows.append(
                [
                    *(absent.name, absent.driver, NOT_SERVED, absent.since, None, None, None, None),
                    *(absent.text, absent.next, [launcher.host], None),
                ]
            )
    return Table(columns, sorted(rows, key=lambda row: row[0]))


def _style(value: str) -> str:
    return "red" if value == NOT_SERVED else table.state(value.partition(" (")[0])


def _row(pool: PoolSummary) -> list[Any]:
    total = len(pool.launchers)
    state = f"{pool.state} ({pool.affected} of {total})" if pool.affected < total else pool.state
    scarce, error = limiting(pool.limits), pool.launches.last_error
    # An older one says nothing of how the pool is now.
    text = pool.text or (error.text if error is not None and pool.launches.failed_15m else None)
    return [
        *(pool.name, pool.driver, state, pool.since or None),
        None if scarce is None else used_of(scarce),
        *(pool.waiting, pool.launches.running, pool.launches.failed_15m),
        *(text, pool.next, list(pool.launchers), pool.code),
    ]


def limit_table(pools: Sequence[PoolSummary], now: float) -> Table:
    """Every limit that is known, with what is used of it and what is free.

    :param now: seconds since the epoch.
    """
    columns = (
        Column("Of", "owner", least=WHOLE),
        Column("Scope", "scope", priority=3),
        Column("Resource", "resource"),
        Column("Limit", "limit", _amount),
        Column("Used", "used", _amount),
        Column("Others", "others", _amount, priority=2),
        Column("Free", "free", _amount),
        Column("Used %", "percent"),
        Column("Asked", "asked_at", table.since(now), priority=1),
    )
    found = newest(
        ((limit_owner(pool, limit), limit.scope.partition(":")[0], limit.resource), limit)
        for pool in pools
        for limit in pool.limits
    )
    rows = [
        [
            *(*key, *(_measured(one, key[2]) for one in (limit.limit, limit.used, limit.others, free(limit)))),
            *(None if free(limit) is None else round(100 * fullness(limit)), limit.asked_at),
        ]
        for key, limit in sorted(found.items())
    ]
    return Table(columns, rows)


# The table of tenants: what they use of their limits (reference/commands 2).

_COLUMNS: Final = (
    Column("Tenant", "tenant"),
    Column("Resource", "resource"),
    Column("Limit", "limit", _amount),
    Column("Used", "used", _amount),
    Column("Free", "free", _amount),
    Column("Share %", "share"),
    Column("Nodes", "nodes"),
    Column("Waiting", "waiting"),
)


def tenant_table(seen: Observed) -> Table:
    """A row for each resource that a tenant uses or that is limited.

    Its share is what it uses of the room where its requests can be served, where tenants have shares.
    """
    limits = tenant_limits(seen.launchers)
    counts: Counter[str] = Counter()
    used: dict[str, Counter[str]] = {}
    for node in seen.nodes.values():
        if node.tenant_name:
            counts[node.tenant_name] += 1
            used.setdefault(node.tenant_name, Counter()).update(uses_of(node))
    waiting: Counter[str] = Counter()
    oldest: dict[str, float] = {}
    for request in seen.requests.values():
        is_open = request.state in (states.REQUESTED, states.PENDING) and request.requestor != PART_REQUESTOR
        if request.tenant_name and is_open:
            waiting[request.tenant_name] += 1
            since = request.created_time or seen.now
            oldest[request.tenant_name] = min(since, oldest.get(request.tenant_name, since))
    rows: list[list[Any]] = []
    for tenant in sorted({*limits, *counts, *waiting}):
        of_tenant, now = limits.get(tenant, {}), used.get(tenant, Counter())
        for resource in sorted({*of_tenant, *now}) or ["instances"]:
            limit, amount_used = of_tenant.get(resource), round(now[resource], 6)
            left = None if limit is None else max(0, limit - amount_used)
            measured = [_measured(one, resource) for one in (limit, amount_used, left)]
            room = 0.0 if seen.order is None else seen.order.standing(tenant).rooms.get(resource, 0)
            share = round(100 * amount_used / room) if room > 0 else None
            rows.append([tenant, resource, *measured, share, counts[tenant], waiting[tenant], oldest.get(tenant)])
    return Table((*_COLUMNS, Column("Waiting since", "waiting_since", table.since(seen.now))), rows)


def tenant_limits(launchers: Iterable[LauncherStatus]) -> Mapping[str, Mapping[str, float]]:
    """Tenant -> resource -> limit. All launchers have the same; of those that do not, the limits of all."""
    found: dict[str, dict[str, float]] = {}
    for launcher in launchers:
        for tenant, limits in launcher.tenant_limits.items():
            found.setdefault(tenant, {}).update(limits)
    return found


# What is known of one provider: its images and its nodes (reference/commands 2).


def provider_image_table(images: Iterable[tuple[str, str, list[str]]]) -> Table:
    """:param images: image, build id and upload ids of each build that has or had uploads in the provider."""
    columns = (Column("Image Name", "image"), Column("Build ID", "build_id"), Column("Upload IDs", "upload_ids"))
    return Table(columns, [list(row) for row in images])


def provider_node_table(nodes: Iterable[Node]) -> Table:
    """:param nodes: of the provider."""
    return table_of((Column("ID", "id"), Column("Server ID", "server_id", of="external_id")), nodes)


# The overview of labels: who serves each, and who wants it.

SERVED: Final = "served"


def label_overview(seen: Observed) -> Table:
    """A row for each label that a pool has or a request wants."""
    pools: dict[str, set[str]] = {}
    tenants: dict[str, set[str]] = {}
    for pool in seen.pools.values():
        for label in pool.labels:
            pools.setdefault(label, set()).add(pool.name)
            lists = [rule.tenants for rule in pool.info.access or () if rule.labels is None or label in rule.labels]
            if lists:
                named = " and ".join(", ".join(entries) or "none" for entries in lists)
                tenants.setdefault(label, set()).add(f"{pool.name}: {named}")
    nodes, ready = _nodes(seen)
    waiting, oldest = _waiting(seen)
    broken: dict[str, list[str]] = {}
    for summary in summarize(seen.statuses):
        for label, reason in summary.labels.items():
            broken.setdefault(label, []).append(f"{summary.name}: {reason.text}")

    def state(label: str) -> str:
        return SERVED if len(broken.get(label, ())) < len(pools.get(label, ())) else NOT_SERVED

    people = partial(Column, places=PEOPLE)
    columns = (
        Column("Label", "label", of=str, least=WHOLE),
        people("State", "state", of=state, style=lambda value: table.GOOD if value == SERVED else table.BAD),
        people("Pools", "pools", of=lambda label: sorted(pools.get(label, ())), priority=3),
        Column("Tenants", "tenants", of=lambda label: sorted(tenants.get(label, ())), places=Place.WIDE),
        people("Nodes", "nodes", of=nodes.__getitem__, priority=4),
        people("Ready", "ready", of=ready.__getitem__),
        people("Waiting", "waiting", of=waiting.__getitem__),
        people("Oldest", "oldest", table.since(seen.now), of=oldest.get, priority=2),
        people("Error", "error", of=lambda label: "; ".join(broken.get(label, ())) or None, priority=1),
    )
    return table_of(columns, sorted({*pools, *waiting, *broken}))


def _nodes(seen: Observed) -> tuple[Counter[str], Counter[str]]:
    """Label -> nodes, and those that are ready and free."""
    nodes: Counter[str] = Counter()
    ready: Counter[str] = Counter()
    for node in seen.nodes.values():
        nodes.update(node.type)
        if node.state == states.READY and node.allocated_to is None:
            ready.update(node.type)
    return nodes, ready


def _waiting(seen: Observed) -> tuple[Counter[str], dict[str, float]]:
    """Label -> requests that wait for it, and when the first of them was submitted."""
    waiting: Counter[str] = Counter()
    oldest: dict[str, float] = {}
    for request in seen.waiting:
        for label in set(request.node_types):
            waiting[label] += 1
            oldest[label] = min(oldest.get(label, seen.now), request.created_time or seen.now)
    return waiting, oldest
