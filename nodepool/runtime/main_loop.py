# SPDX-License-Identifier: Apache-2.0
"""The main loop of a daemon (rules G-1, G-3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from nodepool.clock import monotonic
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard

#: One turn of the main loop (G-1).
LOOP_SECONDS: Final = 1.0
#: So often it looks in between whether the configuration changed.
LOOK_SECONDS: Final = 0.2


class MainLoop:
    """Makes turns, one a second, and one as soon as the configuration changed, until `stop`.

    :param turn: one turn; whatever it raises, the next one comes.
    :param connected: can ZooKeeper be reached? The daemon is ready after its first turn with a connection.
    :param changed: did the configuration change? Must not block.
    """

    def __init__(
        self,
        turn: Callable[[], None],
        connected: Callable[[], bool],
        changed: Callable[[], bool],
        log: logging.Logger,
    ) -> None:
        self.log = log
        self._turn = turn
        self._connected = connected
        self._changed = changed
        #: Set by `stop`.
        self.stopping = threading.Event()
        #: Set once the daemon serves.
        self.ready = threading.Event()
        #: Monotonic time of the end of the last turn, seconds.
        self.last_turn = monotonic()

    def run(self) -> None:
        """Make turns until `stop`; blocks."""
        while not self.pause():
            self.guarded_turn()

    def stop(self) -> None:
        """End after the turn that is being made. Any thread; does not block."""
        self.stopping.set()

    def pause(self) -> bool:
        """Wait for the next turn, or until the configuration changed. True = it is time to stop."""
        if not self.ready.is_set():
            return self.stopping.is_set()
        until = monotonic() + LOOP_SECONDS
        while not self.stopping.wait(LOOK_SECONDS):
            if monotonic() >= until or self._changed():
                return False
        return True

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
