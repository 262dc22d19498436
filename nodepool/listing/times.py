# SPDX-License-Identifier: Apache-2.0
"""Moments as people read them, and durations as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from nodepool.model.event import short

#: What a date can show, in seconds since the epoch: records of other programs may have any number.
_FIRST: Final = 86400.0
_LAST: Final = 253_370_000_000.0
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LONGEST: Final = 100 * 365 * 86400
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_WHOLE: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")


def duration(text: str) -> float:
    """The seconds of e.g. ``90s``, ``15m``, ``1h30m`` or ``2d``.

    :raises ValueError: it is no duration, or too long. The text says what one is.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write e.g. 90s, 15m, 1h30m or 2d")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if seconds > _LONGEST:
        raise ValueError(f"{text!r} is longer than 100 years")
    return seconds


def moment(at: float, now: float) -> str:
    """A moment in local time: the time alone when it is of today, else with the date.

    :param at: and ``now``: seconds since the epoch.
    """
    when, today = _local(at), _local(now)
    return f"{when:%H:%M:%S}" if when.date() == today.date() else date_and_time(at)


def date_and_time(at: float) -> str:
    """A moment in local time, with its date.

    :param at: seconds since the epoch.
    """
    return f"{_local(at):%Y-%m-%d %H:%M:%S}"


def since(now: float) -> Callable[[float], str]:
    """Shows when something began and how long ago that is, e.g. ``02:41:07 (3 h)``. For `Column.show`."""
    return lambda at: f"{moment(at, now)} ({short(now - at)})" if at else ""


def until(now: float) -> Callable[[float], str]:
    """Shows how long it is until a moment, e.g. ``in 12 s``. For `Column.show`."""
    return lambda at: f"in {short(at - now)}" if at > now else "now"


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(at, _FIRST), _LAST), UTC).astimezone()


# Numbers with units, as people read them.

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Bytes in the unit that suits them, e.g. ``1.5 GiB``."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def speed(bytes_per_second: float) -> str:
    """E.g. ``12.0 MiB/s``."""
    return f"{size(bytes_per_second)}/s"


def percent(value: float) -> str:
    """A whole number; 100% only when nothing is left."""
    return f"{int(max(0.0, min(100.0, value)))}%"


# Texts of other programs on a terminal.


def printable(text: str) -> str:
    """A text in which no character can do anything but be printed: no escape sequence may reach the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def printable_lines(text: str) -> str:
    """A text of several lines, in which no other character can do anything but be printed."""
    return "\n".join(map(printable, text.splitlines()))
