# SPDX-License-Identifier: Apache-2.0
"""A thread that makes passes: when it is woken, or after a while to be safe."""

from __future__ import annotations

import logging
import threading
from typing import Final

from nodepool.clock import monotonic
from nodepool.exceptions import ZKConnectionError
from nodepool.zk.client import ZooKeeperClient

#: Seconds between looks at a connection that is gone (rule G-3).
DISCONNECTED_WAIT_SECONDS: Final = 30.0


class Worker(threading.Thread):
    """Base of a daemon's threads.

    Subclasses implement `run_once`, one pass, which tests call without the thread. No exception ends the
    thread: it is logged and the next pass comes after ``error_wait_seconds``.

    :param name: of the thread.
    :param client: nothing is done while ZooKeeper cannot be reached.
    :param idle_seconds: longest time between two passes.
    """

    error_wait_seconds = 1.0

    def __init__(self, name: str, client: ZooKeeperClient, log: logging.Logger, idle_seconds: float) -> None:
        super().__init__(name=name, daemon=True)
        self._client = client
        self.log = log
        self._idle_seconds = idle_seconds
        self._event = threading.Event()
        self._stopping = threading.Event()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wake(self) -> None:
        """Make a pass soon. Any thread; does not block."""
        self._event.set()

    def stop(self) -> None:
        """Ask the thread to end after the pass that it is in. Does not block."""
        self._stopping.set()
        self._event.set()

    def run_once(self) -> float | None:
        """One pass. Returns seconds until the next one is due even if nothing happens, or None."""
        raise NotImplementedError

    def on_stop(self) -> None:
        """Last words of the thread."""
        return

    def run(self) -> None:
        try:
            while not self.stopping:
                wait = self._guarded_pass()
                self._event.wait(min(wait, self._idle_seconds))
        finally:
            try:
                self.on_stop()
            except ZKConnectionError as error:
                self.log.warning("What is left to do ends with the session: %s", error)
            except Exception:
                # Of a thread that ends: for its log, and for nobody else.
                self.log.exception("Error while stopping")

    def _guarded_pass(self) -> float:
        if not self._client.connected:
            self.log.info("Waiting for ZooKeeper")
            self._wait_connected()
            return 0.0
        # Cleared before the pass: what happens during it causes another one.
        self._event.clear()
        try:
            wait = self.run_once()
        except ZKConnectionError as error:
            self.log.warning("Pass interrupted: %s", error)
            return self.error_wait_seconds
        except (Exception, SystemExit):
            # The thread survives whatever a driver raises. SystemExit: its library may call sys.exit().
            self.log.exception("Error in a pass, going on")
            self._event.clear()
            return self.error_wait_seconds
        return self._idle_seconds if wait is None else max(0.0, wait)

    def _wait_connected(self) -> None:
        deadline = monotonic() + DISCONNECTED_WAIT_SECONDS
        while not self.stopping and monotonic() < deadline:
            if self._client.wait_connected(0.5):
                return
            # A client that is being closed does not wait.
            self._stopping.wait(0.1)
