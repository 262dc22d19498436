# SPDX-License-Identifier: Apache-2.0
"""Durations as arguments of commands: ``90s``, ``15m``, ``1h30m``, ``2d``."""

from __future__ import annotations

import argparse
import re
from typing import Final

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_WHOLE: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")


def duration(text: str) -> float:
    """The seconds of a duration. For ``type`` of an argument. Raises ArgumentTypeError."""
    if not _WHOLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write e.g. 90s, 15m, 1h30m or 2d")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
