# SPDX-License-Identifier: Apache-2.0
"""What answers show late: new things that are missing in lists, tags and states that are old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Lagging(Generic[V]):
    """A value of which readers see an older one for a while.

    :param clock: seconds.
    """

    def __init__(self, value: V, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shown = value
        #: Later values and when they are seen, oldest first.
        self._coming: list[tuple[float, V]] = []

    @property
    def value(self) -> V:
        """The true value."""
        return self._coming[-1][1] if self._coming else self._shown

    def set(self, value: V, lag_seconds: float = 0.0) -> None:
        """Changes it; readers see it after the lag, and never before what was set earlier."""
        when = self._clock() + lag_seconds
        if self._coming:
            when = max(when, self._coming[-1][0])
        self._coming.append((when, value))

    @property
    def shown(self) -> V:
        """What readers see."""
        if self._coming:
            now = self._clock()
            while self._coming and self._coming[0][0] <= now:
                self._shown = self._coming.pop(0)[1]
        return self._shown
