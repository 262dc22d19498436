# SPDX-License-Identifier: Apache-2.0
"""The table of launchers (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nodepool.listing import styles, times
from nodepool.listing.table import Column, Place, Table

if TYPE_CHECKING:
    from nodepool.model.launcher_status import LauncherStatus
    from nodepool.plan.attention import Registered


def launcher_table(launchers: Sequence[LauncherStatus], registered: Iterable[Registered], now: float) -> Table:
    """The table of launchers.

    :param launchers: their status records.
    :param registered: all launchers; those of older releases have no record.
    :param now: seconds since the epoch.
    """
    columns = (
        Column("Launcher", "host"),
        Column("PID", "pid", priority=5),
        Column("Version", "version"),
        Column("State", "state", style=styles.state),
        Column("Since", "since", times.since(now), priority=1, moves=True),
        Column("Configuration", "config"),
        Column("Pools", "pools", priority=3),
        Column("Last reload", "reload", _reload(now), priority=2),
        Column("Maintenance", "maintenance", priority=4),
        Column("Leader", "leader", lambda leads: "yes" if leads else "", priority=6),
        Column("File", "config_file", places=Place.WIDE),
        Column("ZooKeeper", "servers", places=Place.WIDE),
    )
    rows = [_row(launcher) for launcher in launchers]
    known = {launcher.host for launcher in launchers}
    for entry in registered:
        if entry.host not in known:
            rows.append([entry.host, None, entry.version, entry.state, *[None] * (len(columns) - 4)])
    return Table(columns, sorted(rows, key=lambda row: (row[0], row[1] or 0)))


def _row(launcher: LauncherStatus) -> list[Any]:
    last = launcher.reload
    return [
        *(launcher.host, launcher.pid, launcher.version, launcher.state, launcher.since or None),
        *(launcher.config or None, list(launcher.pools)),
        None if last is None else {"at": last.at, "ok": last.ok, "text": last.text},
        *(launcher.maintenance, launcher.leader, launcher.config_file or None, launcher.servers or None),
    ]


def _reload(now: float) -> Any:
    def show(last: dict[str, Any]) -> str:
        return f"{times.moment(last['at'], now)} {'' if last['ok'] else 'failed: '}{last['text']}"

    return show
