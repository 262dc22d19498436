# SPDX-License-Identifier: Apache-2.0
"""Limits how often a persistent error is logged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Final

from nodepool.clock import monotonic

#: So often the log is reminded of trouble that lasts, in seconds.
REMIND_SECONDS: Final = 60.0


class Repeats:
    """Decides whether an error is logged again. Thread-safe, does not block; ``_lock`` guards the times."""

    def __init__(self, seconds: float = REMIND_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[Hashable, float] = {}

    def worth_saying(self, key: Hashable) -> bool:
        """Is it the first time, or long ago? Then it counts as said."""
        with self._lock:
            now = self._clock()
            if now - self._said.get(key, float("-inf")) < self._seconds:
                return False
            self._said[key] = now
            return True

    def over(self, key: Hashable) -> bool:
        """The trouble has ended: the next time is the first again. Returns whether there was any."""
        with self._lock:
            return self._said.pop(key, None) is not None
