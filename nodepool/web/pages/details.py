# SPDX-License-Identifier: Apache-2.0
"""What pages about one thing have in common: facts, what happened when, and buttons for operators."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table
from nodepool.listing.table import date_and_time
from nodepool.model import states
from nodepool.model.event import short
from nodepool.model.maintenance import MODES, Mode
from nodepool.web.pages.frame import CSS_CLASSES, CellText, PageAction, address

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.explained import Moment
    from nodepool.plan.observed import Observed


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


# Which buttons a page has for operators; what they do is in `nodepool.web.changes`.

_API: Final = "api/v1"
#: Subjects of one page that have buttons. A filter of the page chooses others.
MOST_SUBJECTS: Final = 50


def of_node(node: Node) -> list[PageAction]:
    """Hold and delete, unless it goes already."""
    if node.state in (states.DELETING, states.DELETED):
        return []
    delete = f"{_API}/{address('nodes', node.key, 'delete')}"
    return [
        PageAction("Hold", f"{_API}/{address('nodes', node.key, 'hold')}", may_end=True),
        PageAction("Delete", delete, sure=f"Delete node {node.key}"),
    ]


def of_subject(kind: str, name: str, seen: Observed) -> list[PageAction]:
    """What `MODES` allows for a provider, pool, label, host or launcher; or the end of what was begun."""
    if not name.isprintable() or name in ("", ".", ".."):
        # No address can name it.
        return []
    subject = f"{kind.capitalize()} {name}"
    begun = seen.maintenance_of((kind, one) for one in _names(kind, name))
    if begun:
        word = "Release" if begun[0].mode is Mode.QUARANTINE else "Resume"
        target = f"{_API}/{address('maintenance', kind, begun[0].name)}/end"
        return [PageAction(word, target, needs_reason=False, subject=subject)]
    target = f"{_API}/{address('maintenance', kind, name)}"
    return [
        PageAction(
            mode.value.capitalize(),
            target,
            mode=mode.value,
            may_end=True,
            subject=subject,
            sure="" if mode is Mode.PAUSE else f"{mode.value.capitalize()} {kind} {name}",
        )
        for mode in MODES[kind]
    ]


def of_subjects(kind: str, names: Iterable[str], seen: Observed) -> list[PageAction]:
    """Those of several subjects of one kind, each once, of at most `MOST_SUBJECTS`."""
    chosen = list(dict.fromkeys(names))[:MOST_SUBJECTS]
    return [action for name in chosen for action in of_subject(kind, name, seen)]


def _names(kind: str, name: str) -> list[str]:
    """Names by which a maintenance record may name the subject."""
    return [name, name.rpartition(":")[0].rpartition("@")[2]] if kind == "host" else [name]


def of_image(name: str, *, paused: bool) -> list[PageAction]:
    """Build, and pause or unpause."""
    other = "unpause" if paused else "pause"
    return [PageAction(what.capitalize(), f"{_API}/{address('images', name, what)}") for what in ("build", other)]
