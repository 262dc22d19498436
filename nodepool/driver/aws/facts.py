# SPDX-License-Identifier: Apache-2.0
"""What seldom changes in a region of AWS.

First images, types of instances and subnets (`AwsFacts`), then the places where an instance may be launched.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.types import AwsImage, InstanceType
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.quota_support import ZonePlaces
from nodepool.exceptions import LaunchError, RuntimeConfigurationException

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.config import AwsCloudImage, AwsLabel
    from nodepool.model.request import NodeRequest

T = TypeVar("T")

#: How long the newest image of some filters is remembered.
FILTERED_SECONDS: Final = 300.0
#: The devices of an AMI and the size of a type never change.
FOR_EVER: Final = float("inf")
_UNKNOWN_TYPE: Final = ("InvalidInstanceType", "InvalidParameterValue")


class AwsFacts:
    """Thread-safe; ``_lock`` guards the tables, and is not held while AWS is asked."""

    def __init__(self, client: Ec2) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._images: dict[str, Fact[AwsImage]] = {}
        self._filtered: dict[str, Fact[str]] = {}
        self._types: dict[str, Fact[InstanceType]] = {}
        self._zones: dict[str, Fact[str]] = {}
        self._default_zones: Fact[list[str]] = Fact(self._zones_with_default_subnets)

    def image(self, image_id: str) -> AwsImage:
        """An AMI; may block. Raises what the client raises."""
        return self._of(self._images, image_id, lambda: self._client.image(image_id)).get(FOR_EVER)

    def cloud_image_id(self, label: AwsLabel) -> str:
        """The AMI of a label's cloud image; may block.

        :raises AwsNotFound: its filters find none.
        """
        image = label.cloud_image
        assert image is not None
        if image.image_id:
            return image.image_id
        return self._of(self._filtered, image.name, lambda: self._newest(image)).get(FILTERED_SECONDS)

    def forget(self, label: AwsLabel) -> None:
        """AWS refused a launch: look up again what it was made of."""
        with self._lock:
            filtered = None if label.cloud_image is None else self._filtered.pop(label.cloud_image.name, None)
            self._images.clear()
        if filtered is not None:
            filtered.clear()

    def instance_type(self, name: str) -> InstanceType:
        """A type; may block.

        :raises RuntimeConfigurationException: there is none of the name in the region.
        """
        try:
            return self._of(self._types, name, lambda: self._client.instance_type(name)).get(FOR_EVER)
        except CloudRefused as error:
            if error.code not in _UNKNOWN_TYPE:
                raise
            region = self._client.transport.region
            text = f"the region {region} has no instance type {name!r}; correct instance-type"
            raise RuntimeConfigurationException(text) from None

    def known_type(self, name: str) -> InstanceType | None:
        """The same if it was asked for before. Does not block."""
        with self._lock:
            fact = self._types.get(name)
        return None if fact is None else fact.known()

    def zone_of_subnet(self, subnet_id: str) -> str:
        """The zone that a subnet is in; may block. Raises what the client raises; AwsNotFound: it is not there."""
        return self._of(self._zones, subnet_id, lambda: self._zone_of(subnet_id)).get(FOR_EVER)

    def default_zones(self) -> list[str]:
        """Zones of subnets that instances get which name none, by name; may block. Raises what the client raises."""
        return self._default_zones.get()

    def _zone_of(self, subnet_id: str) -> str:
        found = self._client.subnets([subnet_id]).get(subnet_id)
        if found is None:
            raise AwsNotFound(f"there is no subnet {subnet_id}; correct subnet-id", code="InvalidSubnetID.NotFound")
        return found.zone

    def _zones_with_default_subnets(self) -> list[str]:
        return sorted({subnet.zone for subnet in self._client.default_subnets().values()})

    def _newest(self, image: AwsCloudImage) -> str:
        filters = [{"Name": given.name, "Values": given.values} for given in image.image_filters]
        found = [candidate for candidate in self._client.images_where(filters) if candidate.status == "available"]
        if not found:
            told = ", ".join(map(repr, image.image_filters))
            raise AwsNotFound(
                f"no image has {told}; correct image-filters of cloud image {image.name!r}",
                code="InvalidAMIID.NotFound",
            )
        return max(found, key=lambda candidate: (candidate.created, candidate.id)).id

    def _of(self, table: dict[str, Fact[T]], key: str, ask: Callable[[], T]) -> Fact[T]:
        with self._lock:
            fact = table.get(key)
            if fact is None:
                fact = table[key] = Fact(ask)
            return fact


# Where AWS may have room for an instance: the combinations of type and subnet or zone that a label allows.

log = logging.getLogger("nodepool.driver.aws.facts")


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


class Places(ZonePlaces[LaunchPlace]):
    """The same for AWS, which may have to be asked for the zone of a subnet: all but `rests` may block.

    :param facts: knows the zones of subnets.
    """

    def __init__(self, facts: AwsFacts) -> None:
        super().__init__()
        self._facts = facts

    def of_label(self, label: AwsLabel, request: NodeRequest | None = None, az: str | None = None) -> list[LaunchPlace]:
        """The places of a label; see `to_try`."""
        if not label.fleet_types and (az is not None or self.concerns(request)):
            try:
                return self.to_try(places_of(label, self._zones(label, request)), request, az)
            except LaunchError as error:
                log.warning("Label %s: the zones of a request are not known: %s", label.name, error)
        return self.awake(places_of(label))

    def _zones(self, label: AwsLabel, request: NodeRequest | None) -> list[str]:
        """For a pool that names neither subnets nor zones; another one first for each request."""
        zones = [] if label.pool.subnet_ids or label.pool.availability_zones else self._facts.default_zones()
        first = zlib.crc32(request.key.encode()) % len(zones) if zones and request is not None else 0
        return zones[first:] + zones[:first]

    def zone_of(self, place: LaunchPlace) -> str:
        if place.subnet_id is not None and place.zone is None:
            return self._facts.zone_of_subnet(place.subnet_id)
        return super().zone_of(place)

    def made(self, place: LaunchPlace, request: NodeRequest | None) -> None:
        with contextlib.suppress(LaunchError):
            super().made(place, request)

    def lost(self, place: LaunchPlace, request: NodeRequest | None) -> None:
        with contextlib.suppress(LaunchError):
            super().lost(place, request)

    def no_room_for(self, place: LaunchPlace, request: NodeRequest | None) -> None:
        with contextlib.suppress(LaunchError):
            super().no_room_for(place, request)
