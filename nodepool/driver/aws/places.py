# SPDX-License-Identifier: Apache-2.0
"""Where AWS may have room for an instance: the combinations of type and subnet or zone that a label allows."""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.request_zones import RequestZones
from nodepool.driver.framework.resting_places import RestingPlaces
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel
    from nodepool.driver.aws.facts import AwsFacts
    from nodepool.model.request import NodeRequest

log = logging.getLogger("nodepool.driver.aws.places")


class LaunchPlace(NamedTuple):
    """One combination. ``subnet_id`` or ``zone`` or neither."""

    instance_type: str
    subnet_id: str | None
    zone: str | None
    spot: bool

    def __str__(self) -> str:
        where = self.subnet_id or self.zone or "any zone"
        return f"{self.instance_type}{' (spot)' if self.spot else ''} in {where}"


def places_of(label: AwsLabel, zones: Sequence[str] = ()) -> list[LaunchPlace]:
    """All that a label allows, in the order of its types, and then of the subnets or zones of its pool. What is on
    demand only because there is no spot instance comes last.

    :param zones: for a pool that names neither subnets nor zones; empty = AWS chooses.
    """
    pool = label.pool
    # With one subnet there may be its zone, too.
    zone = pool.availability_zones[0] if pool.availability_zones else None
    where: list[tuple[str | None, str | None]] = [(subnet, zone) for subnet in pool.subnet_ids]
    where = where or [(None, name) for name in pool.availability_zones or zones] or [(None, None)]
    kinds = (True, False) if label.use_spot and label.spot_fallback else (label.use_spot,)
    if label.fleet_types:
        # Types and subnets are all told to AWS, which chooses.
        return [LaunchPlace(f"fleet of {', '.join(label.fleet_types)}", None, None, spot) for spot in kinds]
    return [LaunchPlace(name, *one, spot) for spot in kinds for name in label.instance_types for one in where]


class Places(RestingPlaces[LaunchPlace]):
    """Which of them had no room a while ago, and where the nodes of each request are.

    :param facts: knows the zones of subnets.
    """

    def __init__(self, facts: AwsFacts, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock)
        self._facts = facts
        self._requests = RequestZones()

    def to_try(self, label: AwsLabel, request: NodeRequest | None = None, az: str | None = None) -> list[LaunchPlace]:
        """The places of a label in order, but for those that rest. If all rest, the one that has rested longest.

        What is in the zone of the other nodes of the request comes first (N-7). Then it may block.

        :param az: the zone of a node that the request has already.
        """
        if label.fleet_types or (az is None and not self._requests.concerns(request)):
            return self.awake(places_of(label))
        try:
            return self._in_one_zone(label, request, az)
        except LaunchError as error:
            log.warning("Label %s: the zones of a request are not known: %s", label.name, error)
            return self.awake(places_of(label))

    def _in_one_zone(self, label: AwsLabel, request: NodeRequest | None, az: str | None) -> list[LaunchPlace]:
        pool = label.pool
        zones = [] if pool.subnet_ids or pool.availability_zones else self._facts.default_zones()
        if zones and request is not None:
            # Another one first for each request.
            first = zlib.crc32(request.key.encode()) % len(zones)
            zones = zones[first:] + zones[:first]
        found = self.awake(places_of(label, zones))
        wanted = az or self._requests.choose(request.key if request else "", self._zone_of(found[0]))
        return sorted(found, key=lambda place: self._zone_of(place) != wanted)

    def made(self, place: LaunchPlace, request: NodeRequest | None) -> None:
        """A node of a request was made there. May block."""
        if self._requests.concerns(request):
            with contextlib.suppress(LaunchError):
                self._requests.made(request.key, self._zone_of(place))

    def lost(self, place: LaunchPlace, request: NodeRequest | None) -> None:
        """AWS ended a node of a request that was made there. May block."""
        if self._requests.concerns(request):
            with contextlib.suppress(LaunchError):
                self._requests.lost(request.key, self._zone_of(place))

    def no_room_for(self, place: LaunchPlace, request: NodeRequest | None) -> None:
        """AWS said so, when it was to make a node of a request. May block."""
        self.no_room(place)
        if self._requests.concerns(request):
            with contextlib.suppress(LaunchError):
                self._requests.no_room(request.key, self._zone_of(place))

    def _zone_of(self, place: LaunchPlace) -> str:
        """ "" = AWS chooses."""
        if place.subnet_id is not None and place.zone is None:
            return self._facts.zone_of_subnet(place.subnet_id)
        return place.zone or ""
