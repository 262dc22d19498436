# SPDX-License-Identifier: Apache-2.0
"""`Outage`: what is logged, and when, while there is no connection to ZooKeeper (rule J-4)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

#: A cause that is not known is waited for so long, in seconds.
CAUSE_SECONDS: Final = 5.0
#: So often the log is reminded, in seconds.
REMIND_SECONDS: Final = 60.0


class Outage:
    """Thread-safe; ``_lock`` guards the times, all in monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told: float | None = None

    def begin(self, now: float) -> None:
        """There is no connection, or none yet."""
        with self._lock:
            if self._since is None:
                self._since, self._told = now, None

    def end(self, now: float) -> float | None:
        """There is a connection. Returns how long there was none, in seconds; None = nothing was logged of that."""
        with self._lock:
            since, told, self._since = self._since, self._told, None
        return None if since is None or told is None else now - since

    def line(self, now: float, reasons: Sequence[str], hosts: str) -> str | None:
        """What is to be logged now; None = nothing.

        :param reasons: a sentence for each server that failed, each with the server.
        :param hosts: all servers.
        """
        with self._lock:
            if self._since is None:
                return None
            seconds = now - self._since
            if self._told is None:
                if not reasons and seconds < CAUSE_SECONDS:
                    return None
            elif now - self._told < REMIND_SECONDS:
                return None
            again = self._told is not None
            self._told = now
        head = f"No connection to ZooKeeper for {seconds:.0f} s" if again else "No connection to ZooKeeper"
        if not reasons:
            return f"{head}: no answer from {hosts} yet"
        return f"{head}: {reasons[0]}" if len(reasons) == 1 else "\n".join([f"{head}:", *reasons])
