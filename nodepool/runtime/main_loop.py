# SPDX-License-Identifier: Apache-2.0
"""The main loop of a daemon (rules G-1, G-3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

from nodepool.clock import monotonic
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard

#: One turn of the main loop (G-1).
LOOP_SECONDS: Final = 1.0


class ChangeWait(Protocol):
    """How the loop waits between turns, e.g. `nodepool.runtime.file_watch.FileWatch`."""

    def open(self) -> None:
        """Before the first wait."""

    def close(self) -> None:
        """After the last one."""

    def wait(self, seconds: float) -> None:
        """Block at most so many seconds; ends when the configuration may have changed."""

    def wake(self) -> None:
        """End the wait. Any thread; does not block."""


class MainLoop:
    """Makes turns, one a second, and one as soon as the configuration changed, until `stop`.

    :param turn: one turn; whatever it raises, the next one comes.
    :param connected: can ZooKeeper be reached? The daemon is ready after its first turn with a connection.
    :param changed: did the configuration change? Must not block.
    :param wait: ends a wait when `changed` is worth asking.
    """

    def __init__(
        self,
        turn: Callable[[], None],
        connected: Callable[[], bool],
        changed: Callable[[], bool],
        wait: ChangeWait,
        log: logging.Logger,
    ) -> None:
        self.log = log
        self._turn = turn
        self._connected = connected
        self._changed = changed
        self._wait = wait
        #: Set by `stop`.
        self.stopping = threading.Event()
        #: Set once the daemon serves.
        self.ready = threading.Event()
        #: Monotonic time of the end of the last turn, seconds.
        self.last_turn = monotonic()

    def run(self) -> None:
        """Make turns until `stop`; blocks."""
        self._wait.open()
        try:
            while not self.pause():
                self.guarded_turn()
        finally:
            self._wait.close()

    def stop(self) -> None:
        """End after the turn that is being made. Any thread; does not block."""
        self.stopping.set()
        self._wait.wake()

    def pause(self) -> bool:
        """Wait for the next turn, or until the configuration changed. True = it is time to stop."""
        if not self.ready.is_set():
            return self.stopping.is_set()
        until = monotonic() + LOOP_SECONDS
        while not self.stopping.is_set():
            # First: when the last turn did not follow a change, e.g. because it ended early, turns must not race.
            self._wait.wait(max(0.0, until - monotonic()))
            if monotonic() >= until or self._changed():
                break
        return self.stopping.is_set()

    def guarded_turn(self) -> None:
        """One turn. Does not raise; after an error it waits a little."""
        # The daemon serves on with what it has; the next turn tries again.
        with Guard(self.log, "Error in the main loop, going on") as guard:
            try:
                self._turn()
                if self._connected():
                    self.ready.set()
                elif not self.ready.is_set():
                    self.stopping.wait(LOOP_SECONDS)
            except ZKConnectionError as error:
                self.log.warning("Main loop interrupted: %s", error)
                self.stopping.wait(LOOP_SECONDS)
        if guard.error is not None:
            self.stopping.wait(LOOP_SECONDS)
        self.last_turn = monotonic()
