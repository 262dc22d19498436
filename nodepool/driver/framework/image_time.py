# SPDX-License-Identifier: Apache-2.0
"""`ImageTime`: how long something about an image may take, and when to look at it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework.held_time import TimeLimit, held_here
from nodepool.exceptions import ImageCreateException
from nodepool.plan.backoff import Backoff

#: Between two looks at an image that the cloud works on.
LOOK: Final = Backoff(0.5, 10.0, factor=1.5)
#: So often who looks asks whether it is still of interest, in seconds.
WANTED_SECONDS: Final = 1.0


class ImageTime:
    """Begins when it is made. Waits for our own limits do not count.

    :param what: has a limit, for errors, e.g. ``Provider a: the upload of image b``.
    :param seconds: the limit.
    :param stopped: ends all waiting.
    :param wanted: asked at least once in `WANTED_SECONDS` between looks; what it raises ends them.
    """

    def __init__(
        self,
        what: str,
        seconds: float,
        stopped: threading.Event,
        clock: Callable[[], float] = monotonic,
        wanted: Callable[[], None] = lambda: None,
    ) -> None:
        self._what = what
        self._seconds = seconds
        self._stopped = stopped
        self._clock = clock
        self._wanted = wanted
        self._limit = TimeLimit(seconds, held_here(clock), clock)

    def check(self) -> None:
        """:raises ImageCreateException: it is over, or the provider was stopped. Does not block."""
        if self._stopped.is_set():
            raise ImageCreateException(f"{self._what} ended, because the provider was stopped")
        if self.left() <= 0:
            raise self.over()

    def left(self) -> float:
        """Seconds; may be negative."""
        return self._limit.left

    def over(self) -> ImageCreateException:
        """What to raise when it is."""
        return ImageCreateException(f"{self._what} took more than {self._seconds:g} s")

    def wait(self, seconds: float) -> bool:
        """Block for a while. False = there is no time for that, or the provider was stopped."""
        return self.left() > seconds and not self._stopped.wait(seconds)

    def looks(self, seconds: float | None = None) -> Iterator[None]:
        """Times to look: now, and after growing pauses until it is over. Raises what ``wanted`` does.

        :param seconds: or until these are.
        """
        part = self._limit if seconds is None else TimeLimit(seconds, held_here(self._clock), self._clock)
        for looks in itertools.count(1):
            yield
            pause = LOOK.pause(looks)
            if min(part.left, self.left()) <= pause or not wait_wanted(pause, self._stopped, self._wanted):
                return


def wait_wanted(seconds: float, stopped: threading.Event, wanted: Callable[[], None]) -> bool:
    """Block for a while. Raises what ``wanted`` does, which is asked once in `WANTED_SECONDS`.

    :return: False = the provider was stopped.
    """
    left = seconds
    while left > 0:
        if stopped.wait(min(WANTED_SECONDS, left)):
            return False
        wanted()
        left -= WANTED_SECONDS
    return True
