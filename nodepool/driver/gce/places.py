# SPDX-License-Identifier: Apache-2.0
"""Where Compute Engine may have capacity for an instance: the combinations that a label allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.request_zones import RequestZones
from nodepool.driver.framework.resting_places import RestingPlaces

if TYPE_CHECKING:
    from nodepool.driver.gce.config import GceLabel
    from nodepool.model.request import NodeRequest


class GcePlace(NamedTuple):
    """One combination."""

    machine_type: str
    zone: str
    spot: bool

    def __str__(self) -> str:
        return f"{self.machine_type}{' (spot)' if self.spot else ''} in {self.zone}"


def places_of(label: GceLabel) -> list[GcePlace]:
    """All that a label allows, in the order of its machine types, and then of the zones. What is a standard instance
    only because there is no spot instance comes last.
    """
    kinds = (True, False) if label.use_spot and label.spot_fallback else (label.use_spot,)
    zones = label.pool.provider.zones
    return [GcePlace(name, zone, spot) for spot in kinds for name in label.machine_types for zone in zones]


class GcePlaces(RestingPlaces[GcePlace]):
    """Which of them had no capacity a while ago, and where the nodes of each request are (N-7)."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock)
        self._requests = RequestZones()

    def to_try(self, label: GceLabel, request: NodeRequest | None, az: str | None) -> list[GcePlace]:
        """The places of a label in order, but for those that rest. If all rest, the one that has rested longest.

        What is in the zone of the other nodes of the request comes first. Does not block.

        :param az: the zone of a node that the request has already.
        """
        found = self.awake(places_of(label))
        if az is None and self._requests.concerns(request):
            az = self._requests.choose(request.key, found[0].zone)
        return sorted(found, key=lambda place: az not in (None, place.zone))

    def made(self, place: GcePlace, request: NodeRequest | None) -> None:
        """A node of a request is there."""
        if self._requests.concerns(request):
            self._requests.made(request.key, place.zone)

    def no_room_for(self, place: GcePlace, request: NodeRequest | None) -> None:
        """Google has no capacity there for a node of a request."""
        self.no_room(place)
        if self._requests.concerns(request):
            self._requests.no_room(request.key, place.zone)
