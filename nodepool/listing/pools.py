# SPDX-License-Identifier: Apache-2.0
"""The table of providers with their pools, and that of their limits (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import styles, times
from nodepool.listing.table import Column, Table
from nodepool.plan.pool_summary import free, fullness, limit_owner, limiting

if TYPE_CHECKING:
    from nodepool.model.launcher_status import LauncherStatus
    from nodepool.model.pool_status import LimitStatus
    from nodepool.plan.pool_summary import PoolSummary

#: State of a provider that no launcher could start.
NOT_SERVED: Final = "not served"


def amount(value: float) -> str:
    """A number without needless digits."""
    return f"{value:g}" if abs(value) < 1e6 and value != int(value) else str(int(value))


def used_of(limit: LimitStatus) -> str:
    """How much of a limit is used, e.g. ``cores 72 + 8 of 80``: ours and, where there is any, others'."""
    others = f" + {amount(limit.others)}" if limit.others else ""
    unit = " MiB" if limit.resource == "ram" else ""
    total = "" if limit.limit is None else f" of {amount(limit.limit)}"
    return f"{limit.resource} {amount(limit.used)}{others}{total}{unit}"


def provider_table(pools: Iterable[PoolSummary], launchers: Iterable[LauncherStatus], now: float) -> Table:
    """The table of providers.

    :param launchers: their records name the providers that could not be started.
    :param now: seconds since the epoch.
    """
    columns = (
        Column("Pool", "pool"),
        Column("Driver", "driver", priority=5),
        Column("State", "state", style=_style),
        Column("Since", "since", times.since(now), priority=1, moves=True),
        Column("Most used", "limiting", priority=2),
        Column("Waiting", "waiting", priority=3),
        Column("Launching", "launching", priority=6),
        Column("Failed (15 min)", "failed_15m", priority=4),
        Column("Error", "error", least=60),
        Column("Next try", "next", times.until(now), priority=2, moves=True),
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
    return "red" if value == NOT_SERVED else styles.state(value.partition(" (")[0])


def _row(pool: PoolSummary) -> list[Any]:
    total = len(pool.launchers)
    state = f"{pool.state} ({pool.affected} of {total})" if pool.affected < total else pool.state
    scarce, error = limiting(pool.limits), pool.launches.last_error
    text = pool.text or (error.text if error is not None else None)
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
        Column("Of", "owner"),
        Column("Scope", "scope"),
        Column("Resource", "resource"),
        Column("Limit", "limit", amount),
        Column("Used", "used", amount),
        Column("Others", "others", amount),
        Column("Free", "free", amount),
        Column("Used %", "percent"),
        Column("Asked", "asked_at", times.since(now), moves=True),
    )
    found: dict[tuple[str, str, str], LimitStatus] = {}
    for pool in pools:
        for limit in pool.limits:
            key = (limit_owner(pool, limit), limit.scope.partition(":")[0], limit.resource)
            before = found.get(key)
            if before is None or (limit.asked_at or 0.0) > (before.asked_at or 0.0):
                found[key] = limit
    rows = [
        [
            *(*key, limit.limit, limit.used, limit.others, free(limit)),
            *(None if free(limit) is None else round(100 * fullness(limit)), limit.asked_at),
        ]
        for key, limit in sorted(found.items())
    ]
    return Table(columns, rows)
