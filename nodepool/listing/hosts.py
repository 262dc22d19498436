# SPDX-License-Identifier: Apache-2.0
"""The table of static hosts (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nodepool.listing import styles, times
from nodepool.listing.table import Column, Table

if TYPE_CHECKING:
    from nodepool.model.pool_status import HostStatus
    from nodepool.plan.pool_summary import PoolSummary


def host_state(host: HostStatus) -> str:
    """``quarantined``, ``up``, ``down`` or ``not checked``."""
    if host.quarantine is not None:
        return "quarantined"
    return {True: "up", False: "down", None: "not checked"}[host.up]


def host_table(pools: Iterable[PoolSummary], now: float) -> Table:
    """The table of hosts: those that are not up first.

    :param now: seconds since the epoch.
    """
    columns = (
        Column("Host", "host"),
        Column("Pool", "pool"),
        Column("State", "state", style=styles.state),
        Column("Since", "since", times.since(now), priority=1, moves=True),
        Column("Slots", "slots", priority=4),
        Column("Nodes", "nodes", priority=3),
        Column("Error", "error", least=60),
        Column("Next try", "next", times.until(now), priority=2, moves=True),
    )
    rows = [_row(pool, host) for pool in pools for host in pool.hosts]
    return Table(columns, sorted(rows, key=lambda row: (row[2] == "up", row[1], row[0])))


def _row(pool: PoolSummary, host: HostStatus) -> list[Any]:
    text = host.text if host.quarantine is None else host.quarantine
    return [
        *(host.name, pool.name, host_state(host), host.since or None),
        *(host.slots, list(host.nodes), text or None, host.next),
    ]
