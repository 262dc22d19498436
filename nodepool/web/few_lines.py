# SPDX-License-Identifier: Apache-2.0
"""`FewLines`: how many lines of a kind may be logged, where anybody can cause them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from nodepool.clock import monotonic


class FewLines:
    """Any thread.

    :param most: lines within ``seconds``; more are not logged.
    :param clock: monotonic seconds.
    """

    def __init__(self, most: int = 30, seconds: float = 60.0, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._begun = -seconds
        self._count = 0

    def one_more(self) -> bool:
        """May a line be logged? Counts it."""
        with self._lock:
            now = self._clock()
            if now - self._begun >= self._seconds:
                self._begun, self._count = now, 0
            self._count += 1
            return self._count <= self._most
