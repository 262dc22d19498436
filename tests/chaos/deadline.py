# SPDX-License-Identifier: Apache-2.0
"""A deadline that gives time for time that the machine did not have.

What must be over within a minute needs some CPU time in that minute. On a machine that others keep busy it may get
little, and that is no fault of what is tested. So seconds in which the CPUs had nothing to spare do not count, up to a
limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

#: Least share of the CPU time that nobody used, for the time to count.
LEAST_SPARE = 0.1
#: Most seconds that do not count.
MOST_SECONDS = 60.0
#: Shortest time that is judged: the kernel counts in hundredths.
JUDGED_SECONDS = 0.2


class CpuTimes(NamedTuple):
    """What all CPUs did since the machine was started, in ticks."""

    spare: int
    all: int


def cpu_times(file: Path = Path("/proc/stat")) -> CpuTimes:
    """See proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are in user."""
    ticks = [int(text) for text in file.read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    return CpuTimes(ticks[3] + ticks[4], sum(ticks))


class Deadline:
    """So many seconds from now.

    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        seconds: float,
        times: Callable[[], CpuTimes] = cpu_times,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._times = times
        self._clock = clock
        self._begun = self._looked = clock()
        self._before = times()
        self._seconds = seconds
        #: Seconds that did not count.
        self.starved = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning, all of them."""
        return self._clock() - self._begun

    def at_least(self, seconds: float) -> None:
        """From now on there must be so much time."""
        self._seconds = max(self._seconds, self.elapsed - self.starved + seconds)

    def passed(self) -> bool:
        """Is the time over? To be asked often: the time from one question to the next counts, or does not."""
        now = self._clock()
        if now - self._looked >= JUDGED_SECONDS:
            times = self._times()
            if times.spare - self._before.spare < LEAST_SPARE * (times.all - self._before.all):
                self.starved = min(MOST_SECONDS, self.starved + now - self._looked)
            self._looked, self._before = now, times
        return now - self._begun >= self._seconds + self.starved
