# SPDX-License-Identifier: Apache-2.0
"""What the newest ready build of an image tells of the next one: how long it takes, and how much space."""

from __future__ import annotations

from nodepool.builder.image_files import ImageFiles
from nodepool.model.image_view import ImageView

#: So many times the size of the last build must be free before the next one: it has its temporary files, too.
SPACE_FACTOR = 2


def estimate(view: ImageView) -> float | None:
    """How long the next build may take, in seconds; None = nobody knows."""
    last = next(iter(view.ready_builds()), None)
    return None if last is None or last.record is None else last.record.duration


def lacking_space(view: ImageView, files: ImageFiles) -> str:
    """Why there is no room for another build, in words; empty = there is, or nobody knows. Blocks for the disk."""
    last = next(iter(view.ready_builds()), None)
    if last is None:
        return ""
    told = None if last.record is None else last.record.size
    size = told or sum(files.sizes(view.name, last.id).values())
    free = files.free_bytes()
    if free >= SPACE_FACTOR * size:
        return ""
    return (
        f"{files.directory} has {_gibibytes(free)} free, and the last build takes {_gibibytes(size)}: "
        f"{SPACE_FACTOR} times as much must be free"
    )


def _gibibytes(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB"
