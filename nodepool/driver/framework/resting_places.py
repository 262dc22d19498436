# SPDX-License-Identifier: Apache-2.0
"""`RestingPlaces`: where a cloud had no capacity a while ago, so that the launches of all nodes leave it alone.

A place is what a driver may choose among: a type or size, with a subnet or zone, and whether it is a spot instance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from nodepool.clock import monotonic

P = TypeVar("P", bound=Hashable)

#: For so long a place without capacity is left alone.
REST_SECONDS: Final = 180.0


class RestingPlaces(Generic[P]):
    """Of one provider. Thread-safe, does not block; ``_lock`` guards the table."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rest_until: dict[P, float] = {}

    def awake(self, places: Sequence[P]) -> list[P]:
        """Places in order, but for those that rest. If all rest, the one that has rested longest.

        :param places: at least one.
        """
        with self._lock:
            now = self._clock()
            self._rest_until = {place: until for place, until in self._rest_until.items() if until > now}
            found = [place for place in places if place not in self._rest_until]
            return found or [min(places, key=self._rest_until.__getitem__)]

    def rests(self, place: P) -> bool:
        """Had it no capacity a while ago?"""
        with self._lock:
            return self._rest_until.get(place, 0.0) > self._clock()

    def no_room(self, place: P) -> None:
        """The cloud said that it has no capacity there."""
        with self._lock:
            self._rest_until[place] = self._clock() + REST_SECONDS
