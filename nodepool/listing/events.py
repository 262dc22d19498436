# SPDX-License-Identifier: Apache-2.0
"""The table of events (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nodepool.listing import times
from nodepool.listing.safe_text import printable
from nodepool.listing.table import Column, Table

if TYPE_CHECKING:
    from nodepool.model.event import Event


def event_table(events: Iterable[Event], now: float) -> Table:
    """The table of events, in the order in which they come.

    :param now: seconds since the epoch.
    """
    columns = (
        Column("Time", "at", lambda at: times.moment(at, now)),
        Column("Subject", "subject"),
        Column("What", "what"),
        Column("Why", "text"),
        Column("Code", "code", priority=2),
        Column("Launcher", "actor", priority=1),
        Column("Count", "count", priority=3),
    )
    return Table(
        columns,
        [[event.at, event.subject, event.what, event.text, event.code, event.actor, event.count] for event in events],
    )


def is_about(event: Event, text: str) -> bool:
    """Is an event about something, as ``--subject`` names it?

    The words of its subject are looked for, and the pool in which it happened; of pools also the parts of their names.
    """
    about = f"{event.subject} {event.actor.partition(' ')[2]}"
    return text in about.split() or text in about.replace("/", " ").split()


def event_line(event: Event, now: float) -> str:
    """An event in one line, for a list that goes on."""
    more = f" (and {event.count - 1} more)" if event.count > 1 else ""
    code = f" [{event.code}]" if event.code else ""
    why = f": {event.text}" if event.text else ""
    line = f"{times.moment(event.at, now)} {event.actor}: {event.subject}{more} {event.what}{code}{why}"
    return printable(line)
