# SPDX-License-Identifier: Apache-2.0
"""Threads that make passes, when they are woken, or after a while to be safe; then the table of a daemon's threads."""

from __future__ import annotations

import logging
import math
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.gateway import LateCall
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard
from nodepool.metrics.catalog import DRIVER_CALL_ERRORS, DRIVER_CALL_SECONDS, DRIVER_CALLS, LATE_CALLS
from nodepool.metrics.registry import REGISTRY, Series
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.status import StatusWriter

#: Seconds between looks at a connection that is lost (rule G-3).
DISCONNECTED_WAIT_SECONDS: Final = 30.0


class PassThread(threading.Thread):
    """Base of a daemon's threads.

    Subclasses implement `run_once`, one pass, which tests call without the thread. No exception ends the
    thread: it is logged and the next pass comes after ``error_wait_seconds``.

    :param name: of the thread.
    :param idle_seconds: longest time between two passes.
    """

    error_wait_seconds = 1.0
    error_text = "Error in a pass, going on"

    def __init__(self, name: str, log: logging.Logger, idle_seconds: float) -> None:
        super().__init__(name=name, daemon=True)
        self.log = log
        self._idle_seconds = idle_seconds
        self._event = threading.Event()
        self._stopping = threading.Event()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wake(self) -> None:
        """Make a pass soon. Any thread; does not block.

        Who wakes it for a change notes the change first: a pass that has not begun yet sees it.
        """
        # To set what is set costs as much as to wake someone; there may be dozens of changes before a pass.
        if not self._event.is_set():
            self._event.set()

    def stop(self) -> None:
        """Ask the thread to end after the pass that it is in. Does not block."""
        self._stopping.set()
        self._event.set()

    def run_once(self) -> float | None:
        """One pass. Returns seconds until the next one is due even if nothing happens, or None."""
        raise NotImplementedError

    def run(self) -> None:
        while not self.stopping:
            wait = min(self._guarded_pass(), self._idle_seconds)
            # A pass clears the event: that of `stop`, too, if it came between our look and the pass.
            if not self.stopping:
                self._event.wait(wait)

    def _guarded_pass(self) -> float:
        # Cleared before the pass: what happens during it causes another one.
        self._event.clear()
        wait: float | None = None
        with Guard(self.log, self.error_text) as guard:
            wait = self._pass()
        if guard.error is not None:
            self._event.clear()
            return self.error_wait_seconds
        return self._idle_seconds if wait is None else max(0.0, wait)

    def _pass(self) -> float | None:
        return self.run_once()


class Worker(PassThread):
    """A thread that works with ZooKeeper.

    :param client: nothing is done while ZooKeeper cannot be reached.
    """

    def __init__(self, name: str, client: ZooKeeperClient, log: logging.Logger, idle_seconds: float) -> None:
        super().__init__(name, log, idle_seconds)
        self._client = client

    def on_stop(self) -> None:
        """Last words of the thread."""
        return

    def run(self) -> None:
        try:
            super().run()
        finally:
            with Guard(self.log, "Error while stopping"):
                try:
                    self.on_stop()
                except ZKConnectionError as error:
                    self.log.warning("Unfinished work was dropped with the ZooKeeper session: %s", error)

    def _guarded_pass(self) -> float:
        if not self._client.connected:
            self.log.debug("Waiting for ZooKeeper")
            self._wait_connected()
            return 0.0
        return super()._guarded_pass()

    def _pass(self) -> float | None:
        try:
            return self.run_once()
        except ZKConnectionError as error:
            self.log.warning("Pass interrupted: %s", error)
            return self.error_wait_seconds

    def _wait_connected(self) -> None:
        deadline = monotonic() + DISCONNECTED_WAIT_SECONDS
        while not self.stopping and monotonic() < deadline:
            if self._client.wait_connected(0.5):
                return
            # A client that is being closed does not wait.
            self._stopping.wait(0.1)


#: So often a daemon looks at what it reports of itself, at least and at most.
REPORT_SECONDS: Final = 10.0
REPORT_PACE_SECONDS: Final = 2.0


class StatusThread(Worker):
    """Writes the status records of a daemon, when it is woken, and removes them at its end."""

    error_text = "Status could not be published"

    def __init__(self, client: ZooKeeperClient, log: logging.Logger) -> None:
        super().__init__("StatusWorker", client, log, REPORT_SECONDS)
        self.writer = StatusWriter(client)
        self._next = -math.inf
        # In a new session all is to be written again.
        client.add_session_listener(lambda _: self.wake())

    def _pass(self) -> float | None:
        # Not until it is woken: each pass of a pool does that, up to hundreds a second. What changes meanwhile is seen.
        if self._stopping.wait(max(0.0, self._next - monotonic())):
            return None
        self._event.clear()
        self._next = monotonic() + REPORT_PACE_SECONDS
        return super()._pass()

    def on_stop(self) -> None:
        """The records are ephemeral: without a connection they go with the session."""
        if self._client.connected:
            self.writer.close()


# The threads of a daemon in one table, from which start, revival and stop follow.


class Thread(Protocol):
    """What a part runs, e.g. a `nodepool.runtime.worker.Worker`."""

    @property
    def name(self) -> str: ...

    def start(self) -> None: ...

    def is_alive(self) -> bool: ...

    def stop(self) -> None:
        """Ask it to end. Does not block."""

    def join(self, timeout: float | None = None) -> None: ...


P = TypeVar("P", bound=Thread)


class Part(Generic[P]):
    """One thread of a daemon. Who uses it asks for `current` each time: another one may have taken its place.

    :param name: for the log.
    :param make: makes the thread, which is not started yet.
    """

    def __init__(self, name: str, make: Callable[[], P]) -> None:
        self.name = name
        self.make = make
        #: Replaced by the main thread only; any thread may read it.
        self.current: P = make()


class Parts:
    """The table. For the main thread.

    :param table: in the order of their start; they are stopped in the opposite order.
    """

    def __init__(self, table: Sequence[Part[Any]], log: logging.Logger) -> None:
        self._table = tuple(table)
        self.log = log

    def threads(self) -> list[Thread]:
        """All that run, the last one first."""
        return [part.current for part in reversed(self._table)]

    def start(self) -> None:
        """Start all. Does not block."""
        for part in self._table:
            part.current.start()

    def revive(self) -> None:
        """Replace each thread that has died. No exception ends one; this is for the case that one does."""
        for part in self._table:
            if not part.current.is_alive():
                self.log.error("Thread %s died, starting another", part.name)
                part.current = part.make()
                part.current.start()


def stop_all(threads: Iterable[Thread], timeout: float, log: logging.Logger) -> None:
    """Stop threads and wait for them, together at most ``timeout`` seconds."""
    threads = list(threads)
    deadline = monotonic() + timeout
    for thread in threads:
        thread.stop()
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, deadline - monotonic()))
            if thread.is_alive():
                log.warning("%s does not end, going on without it", thread.name)


# `CallWatch`: what the gateway knows of calls of drivers, for the metrics; those that hang are logged while they do.

log = logging.getLogger("nodepool.driver.gateway")

#: So often it looks.
LOOK_SECONDS: Final = 1.0
#: So often it passes on what was counted: dozens of counts for each provider.
PUBLISH_SECONDS: Final = 5.0
#: From so many seconds on it is a warning.
WARNING_SECONDS: Final = 10.0
#: Calls of one hook that one line reports.
MAX_TOLD: Final = 5


class CallWatch(PassThread):
    """One for the process. It asks no driver anything, and does not need ZooKeeper."""

    def __init__(self) -> None:
        super().__init__("CallWatch", log, LOOK_SECONDS)
        self._hostname = socket.gethostname()
        self._publish_at = -math.inf

    def run_once(self) -> float | None:
        """Look once. Does not block."""
        late = gateway.RUNNING.late()
        counts = Counter((call.provider, call.hook) for call in late)
        values: dict[Series, float] = {LATE_CALLS.series(self._hostname, *key): n for key, n in counts.items()}
        REGISTRY.replace("late calls", values)
        for provider, hook in counts:
            self._tell(provider, hook, [call for call in late if (call.provider, call.hook) == (provider, hook)])
        if monotonic() >= self._publish_at:
            self._publish_at = monotonic() + PUBLISH_SECONDS
            self._publish()
        return None

    def _publish(self) -> None:
        values: dict[Series, float] = {}
        for count in gateway.call_counts():
            place = (count.hook, count.provider)
            values[DRIVER_CALLS.series(*place)] = count.calls
            values[DRIVER_CALL_SECONDS.series(*place)] = count.seconds
            if count.errors:
                values[DRIVER_CALL_ERRORS.series(*place)] = count.errors
        REGISTRY.replace("calls", values)

    def _tell(self, provider: str, hook: str, late: list[LateCall]) -> None:
        """One line for the calls of a hook whose time it is."""
        told = [call for call in late if call.tell]
        if not told:
            return
        longest = max(call.seconds for call in told)
        level = logging.INFO if longest < WARNING_SECONDS and told[0].blocks else logging.WARNING
        about = "; ".join(f"{call.about or 'no id'}, thread {call.thread}" for call in told[:MAX_TOLD])
        more = f"; and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
        log.log(level, "Provider %s: %s() has not returned after %.0f s: %s%s", provider, hook, longest, about, more)
