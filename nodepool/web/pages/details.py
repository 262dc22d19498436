# SPDX-License-Identifier: Apache-2.0
"""What pages about one thing have in common: facts, and what happened when."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nodepool.listing import table
from nodepool.listing.times import date_and_time
from nodepool.model.event import short
from nodepool.web.pages.table_view import CSS_CLASSES, CellText

if TYPE_CHECKING:
    from nodepool.plan.explained import Moment


@dataclass(frozen=True)
class ShownFact:
    """A name and its value; without a value it is not shown.

    :param css: classes of the value.
    """

    name: str
    parts: Sequence[CellText]
    css: str = ""


@dataclass(frozen=True)
class ShownMoment:
    """:param after: how long after the one before it; empty = it is the first one."""

    at: str
    after: str
    what: str
    code: str
    text: str
    css: str


def fact(name: str, value: Any, href: str | None = None, *, css: str = "") -> ShownFact:
    """A fact with one value.

    :param css: ``state`` = the colour of the value is that of a state.
    """
    if value is None or value == "":
        return ShownFact(name, [])
    colour = CSS_CLASSES.get(table.state(value), "") if css == "state" else ""
    return ShownFact(name, [CellText(str(value), href)], f"{css} {colour}".strip())


def age(seconds: float | None) -> str | None:
    return None if seconds is None else short(seconds)


def moment_of(at: float | None) -> str | None:
    return None if at is None else date_and_time(at)


def moments(history: Sequence[Moment]) -> list[ShownMoment]:
    """What happened, with the time between two moments."""
    found = []
    before: float | None = None
    for one in history:
        after = "" if before is None else f"{short(one.at - before)} later"
        css = CSS_CLASSES.get(table.state(one.what), "")
        found.append(ShownMoment(date_and_time(one.at), after, one.what, one.code or "", one.text, css))
        before = one.at
    return found


def log_commands(mark: str) -> list[str]:
    """What finds the lines about something in the logs of launchers.

    :param mark: what these lines have, e.g. ``node: 0000000001``.
    """
    # Ids come from other programs, and these lines are for a shell.
    plain = mark if re.fullmatch(r"[\w: -]+", mark) else re.escape(mark)
    return [
        f"journalctl -u nodepool-launcher --grep {shlex.quote(plain)}",
        f"grep -F {shlex.quote(mark)} /var/log/nodepool/nodepool.log",
    ]
