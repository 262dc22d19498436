# SPDX-License-Identifier: Apache-2.0
"""A clock for all of `nodepool` in this process: time passes quicker, and a test can let it pass at once.

`nodepool.clock` is the only module that reads the time, so its module ``time`` is replaced. Waits with a timeout end by
this clock, too, where the package made them; those of libraries (Kazoo, urllib3, asyncio) keep the time of the machine.
Time only leaps while this process has nothing to do: what a slow machine does must not look like a slow cloud.
"""

# A virtual clock takes the place of what threading.Condition waits by.
# ruff: noqa: SLF001
from __future__ import annotations

import heapq
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace

import pytest

from nodepool import clock as package_clock

#: Modules whose waits are those of their callers.
WAITING_MODULES = frozenset({"threading", "queue", "concurrent.futures._base"})
#: Between two steps of the clock, in seconds of the machine.
TICK_SECONDS = 0.005
#: A tick that comes later by so many seconds says that other threads, or other processes, want the processor.
LATE_SECONDS = 0.001

_condition_wait = threading.Condition.wait


class _Wait:
    """A thread that waits for a condition, at most until a time."""

    def __init__(self, condition: threading.Condition) -> None:
        self.condition = condition
        self.lock = threading.Lock()
        self.lock.acquire()
        self.expired = False


class VirtualClock:
    """:param step: seconds that pass at each tick while nothing is to be done; else as many as for everybody."""

    #: Where the last clock of this process ended. The next one begins there.
    _latest = 0.0

    def __init__(self, step: float) -> None:
        self.step = step
        self._now = max(time.monotonic(), VirtualClock._latest)
        self._wall = time.time() - self._now
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._waits: list[tuple[float, int, _Wait]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="virtual-clock")

    def monotonic(self) -> float:
        """What `nodepool.clock.monotonic` says to its caller."""
        return time.monotonic() if _is_of(sys._getframe(2), "nodepool.zk.") else self._now

    def wall_time(self) -> float:
        return self._wall + self._now

    def pass_seconds(self, seconds: float) -> None:
        """Lets time pass at once."""
        with self._lock:
            self._now += seconds
        self._end_waits()

    @contextmanager
    def hurrying(self, step: float) -> Iterator[None]:
        """Time leaps by more meanwhile."""
        before, self.step = self.step, max(step, self.step)
        try:
            yield
        finally:
            self.step = before

    def sleep(self, seconds: float) -> None:
        condition = threading.Condition()
        with condition:
            self.wait(condition, seconds)

    def wait(self, condition: threading.Condition, seconds: float) -> bool:
        """As `threading.Condition.wait`. False: the time is over."""
        wait = _Wait(condition)
        # There is no public way to end one wait of several: a list of locks is what `notify` goes by.
        condition._waiters.append(wait.lock)  # type: ignore[attr-defined]
        with self._lock:
            heapq.heappush(self._waits, (self._now + seconds, next(self._order), wait))
        saved = condition._release_save()  # type: ignore[attr-defined]
        try:
            wait.lock.acquire()
        finally:
            condition._acquire_restore(saved)  # type: ignore[attr-defined]
        return not wait.expired

    def _end_waits(self) -> None:
        """Ends the waits whose time is over. One whose condition is in use now comes to its end with a later tick."""
        busy = []
        with self._lock:
            while self._waits and self._waits[0][0] <= self._now:
                entry = heapq.heappop(self._waits)
                if not entry[2].condition.acquire(blocking=False):
                    busy.append(entry)
                    continue
                try:
                    self._end(entry[2])
                finally:
                    entry[2].condition.release()
            for entry in busy:
                heapq.heappush(self._waits, entry)

    @staticmethod
    def _end(wait: _Wait) -> None:
        waiters = wait.condition._waiters  # type: ignore[attr-defined]
        if wait.lock in waiters:
            waiters.remove(wait.lock)
            wait.expired = True
            wait.lock.release()

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._stopping.wait(TICK_SECONDS):
            now = time.monotonic()
            late = now - begun - TICK_SECONDS > LATE_SECONDS
            self.pass_seconds(TICK_SECONDS if late else self.step)
            begun = time.monotonic()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The package goes by this clock meanwhile."""
        stand_in = SimpleNamespace(
            **{name: getattr(time, name) for name in ("strftime", "gmtime", "thread_time")},
            monotonic=self.monotonic,
            time=self.wall_time,
            sleep=self.sleep,
            clock_gettime_ns=lambda _clock: int(self._now * 1e9),
            CLOCK_MONOTONIC=time.CLOCK_MONOTONIC,
        )

        def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
            caller = sys._getframe(1)
            if timeout is None or timeout <= 0 or not _is_of(caller, "nodepool.") or _is_of(caller, "nodepool.zk."):
                return _condition_wait(condition, timeout)
            return self.wait(condition, timeout)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(package_clock, "time", stand_in)
            patch.setattr(threading.Condition, "wait", wait)
            self._thread.start()
            try:
                yield
            finally:
                self._stopping.set()
                self._thread.join()
                VirtualClock._latest = self._now
                # The waits of threads that are still there end.
                self.pass_seconds(1e6)


def _is_of(frame: FrameType | None, package: str) -> bool:
    """Does a module of a package call here, or wait?"""
    while frame is not None and frame.f_globals.get("__name__") in WAITING_MODULES:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(package)
