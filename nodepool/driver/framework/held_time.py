# SPDX-License-Identifier: Apache-2.0
"""How long launches, deletions and uploads wait for ourselves: such time does not count against their time-outs.

A call waits for its turn in a rate limit, for the end of other calls, or for one of our threads. The cloud has not got
it by then, so that says nothing of the cloud. What a thread works for is known in the thread, and goes with each call
that is given to another one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from nodepool.clock import monotonic

_thread: Final = threading.local()


class HeldTime:
    """Of one launch, deletion or upload. Thread-safe; waits at the same time count once."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waits = 0
        self._since = 0.0
        self._seconds = 0.0

    def begin(self) -> None:
        """It waits. Does not block."""
        with self._lock:
            if not self._waits:
                self._since = self._clock()
            self._waits += 1

    def end(self) -> None:
        """The wait is over."""
        with self._lock:
            self._waits -= 1
            if not self._waits:
                self._seconds += self._clock() - self._since

    @property
    def seconds(self) -> float:
        """In all, with the wait that has not ended."""
        with self._lock:
            return self._seconds + (self._clock() - self._since if self._waits else 0.0)


class HeldTogether(HeldTime):
    """Of what several wait for: they wait as long as that does.

    :param who: says whose time it is when a wait begins; those who come later `join`.
    """

    def __init__(self, who: Callable[[], Iterable[HeldTime]]) -> None:
        super().__init__()
        self._who = who
        self._held: set[HeldTime] = set()

    def begin(self) -> None:
        super().begin()
        self.join(self._who())

    def join(self, work: Iterable[HeldTime]) -> None:
        """More wait for it, too; nothing happens while it does not wait."""
        with self._lock:
            new = set(work) - self._held if self._waits else set()
        # Not under the lock, because each has one of its own. The wait may be over by then.
        for held in new:
            held.begin()
        with self._lock:
            joined = new - self._held if self._waits else set()
            self._held |= joined
        for held in new - joined:
            held.end()

    def end(self) -> None:
        super().end()
        with self._lock:
            if self._waits:
                return
            over, self._held = self._held, set()
        for held in over:
            held.end()


class TimeLimit:
    """A time-out that begins when it is made.

    :param seconds: of the time-out.
    :param held: time that does not count.
    """

    def __init__(self, seconds: float, held: HeldTime, clock: Callable[[], float] = monotonic) -> None:
        self._held = held
        self._clock = clock
        self._end = clock() + seconds - held.seconds

    @property
    def left(self) -> float:
        """Seconds; may be negative."""
        return self._end + self._held.seconds - self._clock()


def held_work() -> tuple[HeldTime, ...]:
    """Of all that this thread works for now."""
    work: tuple[HeldTime, ...] = getattr(_thread, "work", ())
    return work


def held_here(clock: Callable[[], float] = monotonic) -> HeldTime:
    """That of the work of this thread; one of its own if it works for nothing that has one."""
    return next(iter(held_work()), None) or HeldTime(clock)


@contextlib.contextmanager
def working_for(work: Iterable[HeldTime]) -> Iterator[None]:
    """Inside, this thread works for others than before."""
    before, _thread.work = held_work(), tuple(work)
    try:
        yield
    finally:
        _thread.work = before


class Hold:
    """The work of this thread waits from now on, until `end`, which any thread may call."""

    __slots__ = ("_waits", "work")

    def __init__(self) -> None:
        self.work = held_work()
        self._waits = False
        self.begin()

    def begin(self) -> None:
        """It waits again. Nothing happens if it waits."""
        if not self._waits:
            self._waits = True
            for held in self.work:
                held.begin()

    def end(self) -> None:
        """The wait is over. Nothing happens if it was over."""
        if self._waits:
            self._waits = False
            for held in self.work:
                held.end()


@contextlib.contextmanager
def held_up() -> Iterator[None]:
    """Inside, the work of this thread waits."""
    hold = Hold()
    try:
        yield
    finally:
        hold.end()
