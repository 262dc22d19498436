# SPDX-License-Identifier: Apache-2.0
"""`AwsFacts`: what seldom changes: images, types of instances, and subnets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.subnet_client import SubnetClient
from nodepool.driver.aws.types import AwsImage, InstanceType
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.exceptions import RuntimeConfigurationException

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.config import AwsLabel
    from nodepool.driver.aws.image_config import AwsCloudImage

T = TypeVar("T")

#: How long the newest image of some filters is remembered.
FILTERED_SECONDS: Final = 300.0
#: The devices of an AMI and the size of a type never change.
FOR_EVER: Final = float("inf")
_UNKNOWN_TYPE: Final = ("InvalidInstanceType", "InvalidParameterValue")


class AwsFacts:
    """Thread-safe; ``_lock`` guards the tables, and is not held while AWS is asked."""

    def __init__(self, client: Ec2, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._images: dict[str, Fact[AwsImage]] = {}
        self._filtered: dict[str, Fact[str]] = {}
        self._types: dict[str, Fact[InstanceType]] = {}
        self._subnets = SubnetClient(client.transport)
        self._zones: dict[str, Fact[str]] = {}
        self._default_zones: Fact[list[str]] = Fact(self._zones_with_default_subnets, clock)

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
        found = self._subnets.subnets([subnet_id]).get(subnet_id)
        if found is None:
            raise AwsNotFound(f"there is no subnet {subnet_id}; correct subnet-id", code="InvalidSubnetID.NotFound")
        return found.zone

    def _zones_with_default_subnets(self) -> list[str]:
        return sorted({subnet.zone for subnet in self._subnets.default_subnets().values()})

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
                fact = table[key] = Fact(ask, self._clock)
            return fact
