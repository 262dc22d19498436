# SPDX-License-Identifier: Apache-2.0
"""How much time there was in which a request could be served at all.

While no quorum of ZooKeeper's servers serves, no launcher can do anything, and while the client has no connection it
hears of nothing: Zuul's waits longer and longer between its tries. That is no fault of a launcher, so it does not count
as waiting. What a launcher needs to find back to ZooKeeper afterwards, and to get its locks again, does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_SECONDS = 0.25


class ServedTime:
    """Counts the seconds in which ZooKeeper served; looks in its own thread.

    :param serves: does it now? May take a while, raises nothing.
    :param clock: monotonic seconds.
    """

    def __init__(self, serves: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._serves = serves
        self._clock = clock
        self._looked = clock()
        self._served = False
        #: Since the start.
        self.seconds = 0.0
        self.seconds_without = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="served-time")

    def now(self) -> float:
        """Monotonic seconds, all of them."""
        return self._clock()

    def start(self) -> None:
        self._looked, self._served = self._clock(), self._serves()
        self._thread.start()

    def stop(self) -> None:
        """Waits for the thread."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self) -> None:
        """The time since the last look counts when ZooKeeper served then, and does now."""
        serves, now = self._serves(), self._clock()
        if serves and self._served:
            self.seconds += now - self._looked
        else:
            self.seconds_without += now - self._looked
        self._looked, self._served = now, serves

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()


class Patience:
    """So many seconds of served time from now, but not more than so many of all time.

    :param seconds: that count.
    :param most: when they are over, patience is over too, whether anything was served or not.
    """

    def __init__(self, time_: ServedTime, seconds: float, most: float) -> None:
        self._time = time_
        self._served_end = time_.seconds + seconds
        self._end = time_.now() + most

    def left(self) -> float:
        """Seconds until it may be over, and not before; 0 or less: it is."""
        return min(self._served_end - self._time.seconds, self._end - self._time.now())
