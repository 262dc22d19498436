# SPDX-License-Identifier: Apache-2.0
"""Durations and moments as arguments of commands: ``90s``, ``15m``, ``1h30m``, ``2d``; ``18:30``."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from nodepool.cmd.app import CommandError
from nodepool.listing import times

_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}")


def duration(text: str) -> float:
    """The seconds of a duration. For ``type`` of an argument. Raises ArgumentTypeError."""
    try:
        return times.duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def moment(text: str) -> float:
    """A moment, in seconds since the epoch, of e.g. ``18:30``, ``2026-12-24`` or ``2026-12-24T18:30``.

    In local time, unless the text has an offset. A time without a date is the next one. For ``type`` of an argument.

    :raises ArgumentTypeError: it is none.
    """
    now = datetime.now(UTC).astimezone()
    try:
        if _CLOCK.fullmatch(text):
            clock = time.fromisoformat(text.zfill(5))
            when = _at(now, clock) if _at(now, clock) > now else _at(now + timedelta(days=1), clock)
        else:
            when = datetime.fromisoformat(text)
        return when.timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no moment; write e.g. 18:30, 2026-12-24 or 2026-12-24T18:30"
        ) from None


def _at(day: datetime, clock: time) -> datetime:
    return datetime.combine(day.date(), clock).astimezone()


def add_end_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Give a command ``--for`` and ``--until``, of which one may be used: see `end_of`.

    :param what: what happens at the end, for the help text.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--for", dest="lasts", metavar="TIME", type=duration, help=f"{what} after this time, e.g. 90m, 8h, 2d"
    )
    group.add_argument(
        "--until", metavar="MOMENT", type=moment, help=f"{what} then: 18:30, 2026-12-24 or 2026-12-24T18:30"
    )


def end_of(options: argparse.Namespace, now: float) -> float | None:
    """The end that the options of `add_end_options` want, in seconds since the epoch; None = they want none.

    :param now: seconds since the epoch.
    :raises CommandError: it is over.
    """
    until: float | None = options.until if options.lasts is None else now + options.lasts
    if until is not None and until <= now:
        raise CommandError("--until is in the past" if options.lasts is None else "--for is no time at all")
    return until
