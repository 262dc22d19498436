# SPDX-License-Identifier: Apache-2.0
"""Running uploads, with their progress and speed, for status records, commands and metrics."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from nodepool.clock import monotonic

#: The speed is that of so many seconds.
WINDOW_SECONDS: Final = 10.0
#: Between two notes for the speed, and between two calls of a listener.
NOTE_SECONDS: Final = 0.5


@dataclass(frozen=True)
class UploadKey:
    """One upload that runs, e.g. in status records ``fedora/<build id>/cloud/0000000001``."""

    image: str
    build_id: str
    provider: str
    upload_id: str

    def __str__(self) -> str:
        return f"{self.image}/{self.build_id}/{self.provider}/{self.upload_id}"


@dataclass(frozen=True)
class UploadState:
    """How far an upload is.

    :param size: of the file, in bytes.
    """

    done: int
    size: int
    bytes_per_second: float

    @property
    def percent(self) -> float:
        return 100.0 * self.done / self.size if self.size > 0 else 0.0


class Meter:
    """How far one upload is. ``_lock`` guards everything in it.

    :param changed: notified of progress, now and then. Must neither block nor raise.
    """

    def __init__(self, size: int, changed: Callable[[], None], clock: Callable[[], float] = monotonic) -> None:
        self._size = size
        self._changed = changed
        self._clock = clock
        self._lock = threading.Lock()
        self._done = 0
        #: Times, and what was uploaded by then; not more often than `NOTE_SECONDS`.
        self._notes: deque[tuple[float, int]] = deque([(clock(), 0)])

    def report(self, done: int, total: int) -> None:
        """Bytes that are uploaded, as `upload_progress.Report`. Any thread; does not block."""
        now = self._clock()
        with self._lock:
            begins_again = done < self._done
            self._done, self._size = done, total
            due = begins_again or now - self._notes[-1][0] >= NOTE_SECONDS
            if begins_again:
                self._notes.clear()
            if due:
                self._notes.append((now, done))
            while len(self._notes) > 1 and now - self._notes[1][0] >= WINDOW_SECONDS:
                self._notes.popleft()
        if due:
            self._changed()

    def state(self) -> UploadState:
        """Does not block."""
        now = self._clock()
        with self._lock:
            begun, before = self._notes[0]
            speed = (self._done - before) / (now - begun) if now > begun else 0.0
            return UploadState(self._done, self._size, max(0.0, speed))


class RunningUploads:
    """Those of this builder. Any thread, nothing blocks. ``_lock`` guards ``_meters``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._meters: dict[UploadKey, Meter] = {}
        #: Called, in any thread, when an upload begins, ends or gets on; must neither block nor raise.
        self.on_change: Callable[[], None] = _nothing

    @contextlib.contextmanager
    def running(self, key: UploadKey, size: int) -> Iterator[Meter]:
        """Inside, the upload runs.

        :param size: of the file, in bytes.
        """
        meter = Meter(size, lambda: self.on_change())
        with self._lock:
            self._meters[key] = meter
        self.on_change()
        try:
            yield meter
        finally:
            with self._lock:
                self._meters.pop(key, None)
            self.on_change()

    def states(self) -> dict[UploadKey, UploadState]:
        """All that run, with how far they are."""
        with self._lock:
            meters = dict(self._meters)
        return {key: meter.state() for key, meter in meters.items()}

    def as_status(self) -> dict[str, dict[str, float]]:
        """For the status record of the builder, in the form that commands read."""
        return {
            str(key): {
                "percent": round(state.percent, 1),
                "bytes_per_second": round(state.bytes_per_second),
                "size": state.size,
            }
            for key, state in self.states().items()
        }


def _nothing() -> None:
    """Stands for a listener."""
