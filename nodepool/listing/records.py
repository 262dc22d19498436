# SPDX-License-Identifier: Apache-2.0
"""Tables of events, of launchers and of maintenance records (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nodepool.listing import table
from nodepool.listing.nodes import full_id, has_id
from nodepool.listing.table import WHOLE, Column, Place, Table, printable, table_of

if TYPE_CHECKING:
    from nodepool.model.event import Event
    from nodepool.model.status import Component, LauncherStatus, Maintenance


def event_table(events: Iterable[Event], now: float) -> Table:
    """The table of events, in the order in which they come.

    :param now: seconds since the epoch.
    """
    columns = (
        Column("Time", "at", lambda at: table.moment(at, now)),
        Column("Subject", "subject"),
        Column("What", "what"),
        Column("Why", "text"),
        Column("Code", "code", priority=2),
        Column("Launcher", "actor", priority=1),
        Column("Count", "count", priority=3),
    )
    return table_of(columns, events)


def is_about(event: Event, text: str) -> bool:
    """Is an event about something, as ``--subject`` names it?

    The words of its subject are looked for, and the pool in which it happened; of pools also the parts of their names.
    """
    about, wanted = f"{event.subject} {event.actor.partition(' ')[2]}", full_id(text)
    return text in about.replace("/", " ").split() or any(has_id(word, wanted) for word in about.split())


def event_line(event: Event, now: float) -> str:
    """An event in one line, for a list that goes on."""
    more = f" (and {event.count - 1} more)" if event.count > 1 else ""
    code = f" [{event.code}]" if event.code else ""
    why = f": {event.text}" if event.text else ""
    line = f"{table.moment(event.at, now)} {event.actor}: {event.subject}{more} {event.what}{code}{why}"
    return printable(line)


# The table of launchers (reference/commands 2).


def launcher_table(launchers: Sequence[LauncherStatus], registered: Iterable[Component], now: float) -> Table:
    """The table of launchers.

    :param launchers: their status records.
    :param registered: entries of all launchers; those of older releases have no record.
    :param now: seconds since the epoch.
    """
    columns = (
        Column("Launcher", "host", least=WHOLE),
        Column("PID", "pid", priority=5),
        Column("Version", "version"),
        Column("State", "state", style=table.state),
        Column("Since", "since", table.since(now), priority=1),
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
        if entry.hostname not in known:
            rows.append([entry.hostname, None, entry.version, entry.state, *[None] * (len(columns) - 4)])
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
        return f"{table.moment(last['at'], now)} {'' if last['ok'] else 'failed: '}{last['text']}"

    return show


# The table of maintenance records (reference/commands 2).


def maintenance_table(records: Iterable[Maintenance], now: float) -> Table:
    """The table of records that hold, by kind and name.

    :param now: seconds since the epoch.
    """
    columns = (
        Column("Kind", "kind"),
        Column("Name", "name", least=WHOLE),
        Column("State", "state", style=table.state, of="mode.done"),
        Column("Reason", "reason", priority=1, of=lambda record: record.reason or None),
        Column("By", "by", priority=2, of=lambda record: record.by or None),
        Column("Since", "since", table.since(now), priority=3, of=lambda record: record.since or None),
        Column("Until", "until", lambda at: table.moment(at, now)),
    )
    holding = (record for record in records if not record.is_over(now))
    return table_of(columns, sorted(holding, key=lambda record: (record.kind, record.name)))
