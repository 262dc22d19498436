# SPDX-License-Identifier: Apache-2.0
"""What happened when in a run, and what must not be."""

from __future__ import annotations

import threading
import time


class Events:
    """Keeps what happened, with the seconds since the start. Any thread."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        #: Seconds since the start, and what happened.
        self.events: list[tuple[float, str]] = []
        self._events_lock = threading.Lock()

    def begin(self) -> None:
        """The run starts now."""
        self._begun = time.monotonic()

    def now(self) -> float:
        """Seconds since the start of the run."""
        return time.monotonic() - self._begun

    def note(self, text: str) -> None:
        """Keeps what happened."""
        with self._events_lock:
            self.events.append((round(self.now(), 2), text))


class Violations:
    """What must not be, each once, with the time. Any thread."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._lock = threading.Lock()
        self.found: list[str] = []
        self._seen: set[str] = set()

    def add(self, text: str) -> None:
        with self._lock:
            if text in self._seen:
                return
            self._seen.add(text)
            self.found.append(f"{self._events.now():.1f} s: {text}")
        self._events.note(f"VIOLATION: {text}")
