# SPDX-License-Identifier: Apache-2.0
"""An event: a decision of a launcher, or a change that it saw (reference/zookeeper).

Then groups, and names, numbers and durations as text, and the event of an instance that the cloud took away.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

from nodepool.model.record import TypedRecord

#: Longest text of an event, in characters. The full one is in the log.
MAX_TEXT: Final = 300


class What(enum.Enum):
    """What happened. Programs compare these."""

    # A request.
    DECLINED = "declined"
    FAILED = "failed"
    # A node.
    LAUNCH_FAILED = "launch failed"
    DELETION_FAILED = "deletion failed"
    HELD = "held"
    INSTANCE_LOST = "instance lost"
    # A provider, a pool or a label.
    UNAVAILABLE = "unavailable"
    AVAILABLE = "available"
    SLOW = "launches slow"
    USUAL = "launches as usual"
    # A static host.
    DOWN = "down"
    UP = "up"
    QUARANTINED = "quarantined"
    RELEASED = "released"
    # An upload that was tried.
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"
    # A launcher.
    STARTED = "started"
    RELOADED = "reloaded"
    RELOAD_FAILED = "reload failed"
    # What operators do to any of them.
    MAINTENANCE_BEGAN = "maintenance began"
    MAINTENANCE_ENDED = "maintenance ended"
    CHANGED = "changed"


@dataclass(frozen=True)
class Event(TypedRecord):
    """One event.

    :param at: seconds since the epoch.
    :param actor: who decided or saw it: a launcher's host, or a pool ``<provider>/<pool>`` of it.
    :param subject: kind and name, e.g. ``request 200-0000000001``, ``node 0000000001``, ``provider cloud-1``,
        ``host zuul@node9:22``, ``launcher l1``.
    :param what: a `What` value.
    :param code: a `ReasonCode` value or launch outcome, where there is one.
    :param text: the cause, for a person.
    :param count: how many subjects of this kind the event is about: ``subject`` is the last one.
    """

    at: float = 0.0
    actor: str = ""
    subject: str = ""
    what: str = ""
    code: str = ""
    text: str = ""
    count: int = 1

    @property
    def kind(self) -> str:
        """Kind of the subject."""
        return self.subject.partition(" ")[0]

    def repeats(self, earlier: Event) -> bool:
        """Is it the same as an earlier one, of another subject of the same kind?"""
        return (self.actor, self.kind, self.what, self.code, self.text) == (
            *(earlier.actor, earlier.kind, earlier.what, earlier.code),
            earlier.text,
        )

    def joined_to(self, earlier: Event) -> Event:
        """This event and an earlier one that it repeats as one."""
        return replace(self, count=self.count + earlier.count)


def clipped(text: str) -> str:
    """A text as an event may have it: one line, at most `MAX_TEXT` characters."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 3]}..."


# Things in groups; names and numbers as text.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(things: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Things by a key, groups and members in the order in which they come."""
    found: dict[K, list[V]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return found


def cut(text: str, most: int) -> str:
    """A text, of which at most so many characters are shown."""
    return text if len(text) <= most else f"{text[:most]}..."


def named(names: Sequence[str], most: int = 5) -> str:
    """Names in a sentence: some of them, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def counted(count: int, what: str) -> str:
    """A number of things, e.g. ``1 node`` or ``2 nodes``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def amount(value: float, resource: str = "") -> str:
    """A number without needless digits, e.g. ``72`` or ``0.5``.

    :param resource: what there is so much of: RAM, which is counted in MiB, has its unit, e.g. ``190.7 TiB``.
    """
    unit = "MiB" if resource == "ram" and value else ""
    for larger in ("GiB", "TiB") if unit else ():
        if value >= 1024:
            value, unit = round(value / 1024, 1), larger
    number = f"{value:g}" if abs(value) < 1e6 and value != int(value) else str(int(value))
    return f"{number} {unit}".rstrip()


# How long something took or is away, as text.
#
# One rule for all: people read `short`. `clock` is for ages in listings that Nodepool 11 has, which scripts read.


def short(seconds: float) -> str:
    """A duration in its two largest units, e.g. ``45 s``, ``12 min``, ``3 h 20 min``, ``2 d 4 h``.

    A negative one, from clocks that differ, is 0.
    """
    left = max(0, int(seconds))
    if left < 60:
        return f"{left} s"
    minutes, hours, days = left // 60 % 60, left // 3600 % 24, left // 86400
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min"


def clock(seconds: float) -> str:
    """A duration as ``DD:HH:MM:SS``. A negative one is 0."""
    left = max(0, int(seconds))
    return f"{left // 86400:02d}:{left // 3600 % 24:02d}:{left // 60 % 60:02d}:{left % 60:02d}"


# `LostInstance`: the cloud took the instance of a node away, or it was deleted there by hand.

#: Begins the name under which a provider locks nodes of other providers, and puts its own nodes on them.
BACKING_OWNER: Final = "NodePool:metastatic:"


class LostInstance(NamedTuple):
    """:param code: the cloud's name of the reason, e.g. ``SpotEviction``; ``text``: the same for a person."""

    node_id: str
    code: str
    text: str


def with_loss(user_data: Any, code: str, text: str) -> str | None:
    """``user_data`` of a backing node whose instance is lost: no slot of it is used any more (T-15).

    :return: None = it is no data of a backing node, or the loss is there already.
    """
    try:
        data = json.loads(user_data) if isinstance(user_data, str) else None
    except ValueError:
        return None
    if not isinstance(data, dict) or not str(data.get("owner")).startswith(BACKING_OWNER) or data.get("lost"):
        return None
    return json.dumps({**data, "failed": True, "lost": [code, text]})
