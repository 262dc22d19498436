# SPDX-License-Identifier: Apache-2.0
"""`LaunchLog`: how the latest launches of a pool ended."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from nodepool.clock import wall_time
from nodepool.model.event import clipped
from nodepool.model.pool_status import FailedLaunch, LaunchesStatus

#: Launches that ended longer ago are not counted.
AGE_SECONDS: Final = 900.0
#: Nodes whose errors are remembered.
MAX_ERRORS: Final = 1000
#: Ready launches of a label of which the usual time follows, and how many it takes at least.
USUAL_OF: Final = 20
USUAL_LEAST: Final = 3
#: They are counted by spans of so many seconds.
SPAN_SECONDS: Final = 15.0


class LaunchLog:
    """Any thread; nothing blocks. ``_lock`` guards all.

    :param clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = wall_time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Begin of each span, launches that were ready, and attempts that failed.
        self._spans: deque[tuple[float, int, int]] = deque()
        self._last_error: FailedLaunch | None = None
        #: Node -> why its last attempt failed, of the last nodes.
        self._errors: dict[str, str] = {}
        #: Label -> seconds that its last launches took.
        self._seconds: dict[str, deque[float]] = {}

    def ready(self, label: str | None = None, begun: float | None = None) -> None:
        """A node is ready.

        :param begun: when its launch began, in seconds since the epoch; None = not known.
        """
        with self._lock:
            now = self._clock()
            self._count(now, 1, 0)
            if label is not None and begun is not None:
                self._seconds.setdefault(label, deque(maxlen=USUAL_OF)).append(max(0.0, now - begun))

    def usual(self, label: str) -> float | None:
        """How long a launch of a label takes, in seconds; None = too few were ready since the start."""
        with self._lock:
            known = self._seconds.get(label, ())
            return round(statistics.median(known), 1) if len(known) >= USUAL_LEAST else None

    def failed(self, node_id: str | None, label: str | None, result: str, text: str) -> None:
        """An attempt failed.

        :param result: as in metrics, e.g. ``error.quota``.
        """
        with self._lock:
            now = self._clock()
            self._count(now, 0, 1)
            self._last_error = FailedLaunch(result, clipped(text), now, node_id, label)
            self._errors.pop(node_id or "", None)
            while len(self._errors) >= MAX_ERRORS:
                del self._errors[next(iter(self._errors))]
            self._errors[node_id or ""] = clipped(text)

    def error_of(self, node_id: str) -> str:
        """Why the last attempt to launch a node failed; empty = that is not known, or long ago."""
        with self._lock:
            return self._errors.get(node_id, "")

    def status(self, running: int) -> LaunchesStatus:
        """What is counted now; the last error is told as long as it is counted.

        :param running: launches in progress.
        """
        with self._lock:
            oldest = self._clock() - AGE_SECONDS
            while self._spans and self._spans[0][0] < oldest:
                self._spans.popleft()
            if self._last_error is not None and self._last_error.at < oldest:
                self._last_error = None
            ready = sum(ready for _, ready, _ in self._spans)
            failed = sum(failed for _, _, failed in self._spans)
            return LaunchesStatus(running, ready, failed, self._last_error)

    def _count(self, now: float, ready: int, failed: int) -> None:
        """Call with ``_lock`` held."""
        if not self._spans or not 0 <= now - self._spans[-1][0] < SPAN_SECONDS:
            self._spans.append((now, 0, 0))
        begun, more_ready, more_failed = self._spans[-1]
        self._spans[-1] = (begun, more_ready + ready, more_failed + failed)
