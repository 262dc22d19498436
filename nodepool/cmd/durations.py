# SPDX-License-Identifier: Apache-2.0
"""Durations and moments as arguments of commands: ``90s``, ``1h30m``, ``2d``; ``18:00``, ``2030-01-31T06:00``."""

from __future__ import annotations

import argparse
import re
from datetime import datetime
from typing import Final

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_WHOLE: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")


def duration(text: str) -> float:
    """The seconds of a duration. For ``type`` of an argument. Raises ArgumentTypeError."""
    if not _WHOLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write e.g. 90s, 15m, 1h30m or 2d")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def point_in_time(text: str) -> float:
    """Seconds since the epoch of a local time: of today (``18:00``), or with its date. Raises ArgumentTypeError."""
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            hour, *rest = (int(part) for part in text.split(":"))
            now = datetime.now().astimezone()
            return now.replace(hour=hour, minute=rest[0], second=sum(rest[1:]), microsecond=0).timestamp()
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write e.g. 18:00 or 2030-01-31T06:00") from None
