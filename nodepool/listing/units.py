# SPDX-License-Identifier: Apache-2.0
"""Numbers with units, as people read them."""

from __future__ import annotations

from typing import Final

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
