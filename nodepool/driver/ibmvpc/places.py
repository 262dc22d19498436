# SPDX-License-Identifier: Apache-2.0
"""Where IBM may have capacity for an instance: the combinations of profile and subnet that a label allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.request_zones import RequestZones
from nodepool.driver.framework.resting_places import RestingPlaces

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.config import IbmLabel
    from nodepool.driver.ibmvpc.types import IbmSubnet
    from nodepool.model.request import NodeRequest


class IbmPlace(NamedTuple):
    """One combination. The subnet has the zone."""

    profile: str
    zone: str
    subnet_id: str
    spot: bool

    def __str__(self) -> str:
        return f"{self.profile}{' (spot)' if self.spot else ''} in zone {self.zone}"


def places_of(label: IbmLabel, subnets: Iterable[IbmSubnet]) -> list[IbmPlace]:
    """All that a label allows, in the order of its profiles, and then of the zones of its pool. What is regular only
    because there is no spot instance comes last. Pure.

    :param subnets: of the pool.
    """
    where = [(zone, subnet.id) for zone in label.pool.zones for subnet in subnets if subnet.zone == zone]
    kinds = (True, False) if label.use_spot and label.spot_fallback else (label.use_spot,)
    return [IbmPlace(profile, *one, spot) for spot in kinds for profile in label.profiles for one in where]


class IbmPlaces(RestingPlaces[IbmPlace]):
    """Which of them had no capacity a while ago, and where the nodes of each request are."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock)
        self._requests = RequestZones()

    def to_try(
        self, label: IbmLabel, subnets: Iterable[IbmSubnet], request: NodeRequest | None, az: str | None
    ) -> list[IbmPlace]:
        """The places of a label in order, but for those that rest. If all rest, the one that has rested longest.

        What is in the zone of the other nodes of the request comes first (N-7).

        :param az: the zone of a node that the request has already.
        """
        found = self.awake(places_of(label, list(subnets)))
        key = _key(request)
        wanted = az or (self._requests.choose(key, found[0].zone) if key else None)
        return found if wanted is None else sorted(found, key=lambda place: place.zone != wanted)

    def made(self, place: IbmPlace, request: NodeRequest | None) -> None:
        """A node of a request runs there."""
        if key := _key(request):
            self._requests.made(key, place.zone)

    def no_room_for(self, place: IbmPlace, request: NodeRequest | None) -> None:
        """IBM said so, when it was to make a node of a request."""
        self.no_room(place)
        if key := _key(request):
            self._requests.no_room(key, place.zone)


def _key(request: NodeRequest | None) -> str | None:
    """Of a request whose nodes belong together."""
    return request.key if request is not None and len(request.node_types) > 1 else None
