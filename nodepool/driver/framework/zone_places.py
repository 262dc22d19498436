# SPDX-License-Identifier: Apache-2.0
"""`ZonePlaces`: which of the places of a label to try, so that the nodes of a request are in one zone (N-7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.request_zones import RequestZones
from nodepool.driver.framework.resting_places import RestingPlaces

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest


class ZonePlace(Protocol):
    """A combination of type or size and zone. It is a value."""

    @property
    def zone(self) -> str | None:
        """None = the cloud chooses."""

    def __hash__(self) -> int: ...


Z = TypeVar("Z", bound=ZonePlace)


class ZonePlaces(RestingPlaces[Z]):
    """Of one provider: places that had no capacity a while ago, and where the nodes of each request are. Thread-safe,
    does not block.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock)
        self._requests = RequestZones()

    def to_try(self, places: Sequence[Z], request: NodeRequest | None, az: str | None) -> list[Z]:
        """Places in order, but for those that rest. If all rest, the one that has rested longest.

        What is in the zone of the other nodes of the request comes first.

        :param places: all that the label allows, at least one.
        :param az: the zone of a node that the request has already.
        """
        found = self.awake(places)
        wanted = az or None
        if wanted is None and self._requests.concerns(request):
            wanted = self._requests.choose(request.key, found[0].zone or "")
        return sorted(found, key=lambda place: wanted not in (None, place.zone or ""))

    def made(self, place: Z, request: NodeRequest | None) -> None:
        """A node of a request is there."""
        if self._requests.concerns(request):
            self._requests.made(request.key, place.zone or "")

    def no_room_for(self, place: Z, request: NodeRequest | None) -> None:
        """The cloud has no capacity there for a node of a request."""
        self.no_room(place)
        if self._requests.concerns(request):
            self._requests.no_room(request.key, place.zone or "")
