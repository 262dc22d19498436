# SPDX-License-Identifier: Apache-2.0
"""How long something took or is away, as text.

One rule for all: people read `short`. `clock` is for ages in listings that Nodepool 11 has, which scripts read.
"""

from __future__ import annotations


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
