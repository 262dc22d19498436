# SPDX-License-Identifier: Apache-2.0
"""The threads of a daemon in one table, from which start, revival and stop follow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from nodepool.clock import monotonic


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
        self._make = make
        #: Replaced by the main thread only; any thread may read it.
        self.current: P = make()

    def renew(self) -> None:
        """Put another thread in place of `current`, which has ended; it is not started."""
        self.current = self._make()


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
                part.renew()
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
