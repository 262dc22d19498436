# SPDX-License-Identifier: Apache-2.0
"""Which launchers serve a configuration file, in words (reference/commands 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.listing import times
from nodepool.listing.safe_text import printable

if TYPE_CHECKING:
    from nodepool.plan.served_config import ServedConfig


def served_line(found: ServedConfig, now: float) -> str:
    """What one launcher serves, and what to do if that is not the file. ``now``: seconds since the epoch."""
    who = f"launcher {found.launcher}" + (f" ({found.pid})" if found.pid is not None else "")
    if found.serves is None:
        return printable(f"{who} does not report what it serves, like all launchers of Nodepool 11")
    loaded = "" if found.loaded is None else f", loaded {times.since(now)(found.loaded)}"
    why = ""
    if found.refused:
        at = "" if found.refused_at is None else f" {times.since(now)(found.refused_at)}"
        why = f"; its last reload{at} failed: {found.refused}"
    elif not found.serves:
        why = f"; it loads {found.file or 'its file'} by itself when that changes there"
    what = "serves this file" if found.serves else f"serves another file ({found.digest})"
    return printable(f"{who} {what}{loaded}{why}")
