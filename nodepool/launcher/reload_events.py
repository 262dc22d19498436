# SPDX-License-Identifier: Apache-2.0
"""`ReloadEvents`: what reloads of the configuration changed, or why they failed, as events."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.model.event import What, clipped
from nodepool.model.launcher_status import ReloadStatus

if TYPE_CHECKING:
    from nodepool.launcher.event_ring import EventRing

#: Events of one reload; the log has all changes.
MAX_EVENTS: Final = 20


class ReloadEvents:
    """For the main thread; any thread may read ``last``.

    :param ring: where the events go.
    :param host: of the launcher.
    :param path: of the configuration file.
    """

    def __init__(self, ring: EventRing, host: str, path: str, clock: Callable[[], float] = wall_time) -> None:
        self._ring = ring
        self._host = host
        self._path = path
        self._clock = clock
        #: The last reload; None = there was none.
        self.last: ReloadStatus | None = None

    def ended(self, ok: bool, texts: Sequence[str]) -> None:
        """See `nodepool.runtime.reload.Configuration.on_outcome`. Does not block."""
        shown = list(texts[:MAX_EVENTS]) or ["no key has another value"]
        if len(texts) > MAX_EVENTS:
            shown.append(f"and {len(texts) - MAX_EVENTS} more; the log of the launcher has all")
        self.last = ReloadStatus(self._clock(), ok, clipped("; ".join(shown)))
        for text in shown:
            what = What.RELOADED if ok else What.RELOAD_FAILED
            self._ring.add(self._host, f"configuration {os.path.basename(self._path)}", what, text)
