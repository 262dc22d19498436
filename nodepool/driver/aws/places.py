# SPDX-License-Identifier: Apache-2.0
"""Where AWS may have room for an instance: the combinations of type and subnet or zone that a label allows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.clock import monotonic

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel

#: For so long what had no room is left alone, by the launches of all nodes.
REST_SECONDS: Final = 180.0


class LaunchPlace(NamedTuple):
    """One combination. ``subnet_id`` or ``zone`` or neither."""

    instance_type: str
    subnet_id: str | None
    zone: str | None
    spot: bool

    def __str__(self) -> str:
        where = self.subnet_id or self.zone or "any zone"
        return f"{self.instance_type}{' (spot)' if self.spot else ''} in {where}"


def places_of(label: AwsLabel) -> list[LaunchPlace]:
    """All that a label allows, in the order of its types, and then of the subnets or zones of its pool. What is on
    demand only because there is no spot instance comes last.
    """
    pool = label.pool
    # With one subnet there may be its zone, too.
    zone = pool.availability_zones[0] if pool.availability_zones else None
    where: list[tuple[str | None, str | None]] = [(subnet, zone) for subnet in pool.subnet_ids]
    where = where or [(None, name) for name in pool.availability_zones] or [(None, None)]
    kinds = (True, False) if label.use_spot and label.spot_fallback else (label.use_spot,)
    return [LaunchPlace(name, *one, spot) for spot in kinds for name in label.instance_types for one in where]


class Places:
    """Which of them had no room a while ago. Thread-safe, does not block; ``_lock`` guards the table."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rest_until: dict[LaunchPlace, float] = {}

    def to_try(self, label: AwsLabel) -> list[LaunchPlace]:
        """The places of a label in order, but for those that rest. If all rest, the one that has rested longest."""
        found = places_of(label)
        with self._lock:
            now = self._clock()
            self._rest_until = {place: until for place, until in self._rest_until.items() if until > now}
            awake = [place for place in found if place not in self._rest_until]
            return awake or [min(found, key=self._rest_until.__getitem__)]

    def rests(self, place: LaunchPlace) -> bool:
        """Had it no room a while ago?"""
        with self._lock:
            return self._rest_until.get(place, 0.0) > self._clock()

    def no_room(self, place: LaunchPlace) -> None:
        """AWS said so."""
        with self._lock:
            self._rest_until[place] = self._clock() + REST_SECONDS
