# SPDX-License-Identifier: Apache-2.0
"""`CallSpacing`: time between calls in which more orders gather."""

from __future__ import annotations

from collections.abc import Callable

from nodepool.clock import monotonic


class CallSpacing:
    """The first call begins at once. Later calls begin after a pause. For one thread at a time.

    :param seconds: the least time from the beginning of a call to that of the next one.
    :param sleep: blocks for some seconds; may raise, then there is no call.
    """

    def __init__(self, seconds: float, sleep: Callable[[float], None], clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._sleep = sleep
        self._clock = clock
        self._not_before = float("-inf")

    def wait(self) -> None:
        """Block until a call may begin. Raises what ``sleep`` raises."""
        left = self._not_before - self._clock()
        if left > 0:
            self._sleep(left)
        self._not_before = self._clock() + self._seconds
