# SPDX-License-Identifier: Apache-2.0
"""What seldom changes in Azure.

First the places where a VM may be launched, then the subnet, sizes, images and limits (`AzureFacts`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from nodepool.driver.azure.client import IMAGES, SUCCEEDED, Arm, ArmResource, Usage, VmRecord, VmSize, plain_location
from nodepool.driver.azure.config import AzureCloudImage, AzureLabel, AzureProviderConfig
from nodepool.driver.framework.cloud_errors import CloudSetup, else_correct
from nodepool.driver.framework.fact import Fact, Repeats
from nodepool.exceptions import RuntimeConfigurationException
from nodepool.model.node import QuotaInformation

log = logging.getLogger("nodepool.driver.azure.facts")

#: How long the image of a filter is remembered, in seconds.
FILTERED_SECONDS: Final = 300.0
#: The list of sizes has some MB.
SIZES_SECONDS: Final = 6 * 3600.0
#: Limits seldom change.
LIMITS_SECONDS: Final = 600.0
FOR_EVER: Final = float("inf")
#: So often the log is reminded of what cannot be had, in seconds.
_REMIND_SECONDS: Final = 3600.0

#: Azure's names of quotas: cores of all regular VMs, of all spot VMs, and VMs.
CORES: Final = "cores"
SPOT_CORES: Final = "lowPriorityCores"
VMS: Final = "virtualMachines"
ADDRESSES: Final = "StandardSkuPublicIPAddresses"
#: Its name in newer subscriptions.
ADDRESSES_ALSO: Final = "IPv4StandardSkuPublicIpAddresses"


# Where Azure may have capacity for a VM: the combinations of size and zone that a label allows. Pure functions.


class VmPlace(NamedTuple):
    """One combination."""

    size: str
    zone: str | None
    spot: bool

    def __str__(self) -> str:
        return f"{self.size}{' (spot)' if self.spot else ''} in {f'zone {self.zone}' if self.zone else 'any zone'}"


def places_of(label: AzureLabel) -> list[VmPlace]:
    """All that a label allows, in the order of its sizes, and then of the zones of its pool. What is regular only
    because there is no spot VM comes last.
    """
    zones: list[str | None] = [*label.pool.availability_zones] or [None]
    return [VmPlace(size, zone, spot) for spot in label.spot_kinds for size in label.vm_sizes for zone in zones]


class AzureFacts:
    """Of one provider. Thread-safe. What is not stated to be pure, or not to block, may block."""

    def __init__(self, config: AzureProviderConfig, client: Arm) -> None:
        self._config = config
        self._client = client
        self._subnet: Fact[str] = Fact(self._ask_subnet)
        self._sizes: Fact[dict[str, VmSize]] = Fact(client.sizes)
        self._usages: Fact[list[Usage]] = Fact(client.usages)
        #: Ids of images. Replaced as a whole; what is added has one key.
        self._images: dict[str, Fact[str]] = {}
        self._repeats = Repeats(_REMIND_SECONDS)

    # -- what a VM is made of --

    def subnet_id(self) -> str:
        """Of the VMs.

        :raises CloudSetup: there is no such subnet.
        """
        return self._subnet.get(FOR_EVER)

    def image_reference(self, label: AzureLabel, image_name: str | None) -> Mapping[str, str]:
        """What a VM of a label is made of.

        :param image_name: of the upload (AZ-6); None = the label's cloud image.
        :raises CloudSetup: there is no such image.
        """
        if image_name is not None:
            return {"id": self._image_id(f"upload {image_name}", lambda: self._uploaded(image_name), FOR_EVER)}
        image = label.cloud_image
        assert image is not None
        if not image.has_filter:
            return image.reference()
        return {"id": self._image_id(f"filter {image.name}", lambda: self._filtered(image).id, FILTERED_SECONDS)}

    def forget(self) -> None:
        """Azure refused a launch: look up again what it was made of. Does not block."""
        self._images = {}
        self._subnet.clear()

    def _ask_subnet(self) -> str:
        named = self._config.subnet
        if named is None:
            return self._config.subnet_id or ""
        with else_correct("correct network of the provider"):
            return self._client.subnet_id(self._client.subnet(*named))

    def _uploaded(self, name: str) -> str:
        with else_correct("upload the image again"):
            return self._client.image(name).id

    def _filtered(self, image: AzureCloudImage) -> ArmResource:
        found = [candidate for candidate in self._client.all_of(IMAGES) if matches(candidate, image)]
        if not found:
            given = {"name": image.filter_name, "location": image.filter_location, "tags": image.filter_tags}
            wanted = ", ".join(f"{name}={value}" for name, value in given.items() if value)
            group = self._config.resource_group
            raise CloudSetup(
                f"the resource group {group} has no image with {wanted or 'any name'}; correct image-filter of cloud "
                f"image {image.name!r}",
                code="ImageNotFound",
            )
        return max(found, key=lambda candidate: candidate.name)

    def _image_id(self, key: str, ask: Callable[[], str], max_age: float) -> str:
        return self._images.setdefault(key, Fact(ask)).get(max_age)

    # -- sizes and quotas (AZ-9) --

    def size(self, name: str) -> VmSize:
        """A size.

        :raises RuntimeConfigurationException: the location does not have it, or not for this subscription.
        """
        found = self._sizes.get(SIZES_SECONDS).get(name.lower())
        where = f"the location {self._config.location}"
        if found is None:
            raise RuntimeConfigurationException(f"{where} has no size {name!r}; correct hardware-profile.vm-size")
        if found.restricted:
            raise RuntimeConfigurationException(
                f"{where} does not give the size {name!r} to this subscription ({found.restricted}); choose another one"
            )
        return found

    def _known_size(self, name: str) -> VmSize | None:
        """The same if the list was asked for before. Does not block."""
        return (self._sizes.known() or {}).get(name.lower())

    def know_sizes(self) -> None:
        """Have the sizes of VMs for `use_of`; without them each counts as a VM only."""
        text = "Provider %s: the sizes of VMs are not known: %s"
        with self._repeats.logged("sizes", log.warning, text, self._config.name):
            self._sizes.get(SIZES_SECONDS)

    def limits(self) -> QuotaInformation:
        """Of what the labels of the configuration need, as far as Azure says.

        Nothing waits for it: without an answer the last one counts, or there are no limits. What Azure then refuses
        waits all the same (AZ-10).
        """
        text = "Provider %s: the quota of the subscription is not known: %s"
        with self._repeats.logged("quota", log.warning, text, self._config.name):
            self._usages.get(LIMITS_SECONDS)
        by_name = {usage.name.lower(): usage.limit for usage in self._usages.known() or ()}
        if ADDRESSES_ALSO.lower() in by_name:
            by_name.setdefault(ADDRESSES.lower(), by_name[ADDRESSES_ALSO.lower()])
        found = {name: by_name[name.lower()] for name in self._needed() if name.lower() in by_name}
        instances = by_name.get(VMS.lower(), math.inf)
        return QuotaInformation(default=math.inf, instances=instances, **_named(found))

    def _needed(self) -> set[str]:
        """Names of the quotas that count."""
        needed = {ADDRESSES}
        for pool in self._config.pools.values():
            for place in (place for label in pool.labels.values() for place in places_of(label)):
                if size := self._known_size(place.size):
                    needed |= _cores_of(size, place.spot).keys()
        return needed

    def need_of(self, label: AzureLabel) -> QuotaInformation:
        """What a node of a label uses, if it is of the first of its sizes.

        :raises RuntimeConfigurationException: the location does not have the size.
        """
        public = int(label.pool.public_ipv4) + int(label.pool.public_ipv6)
        return _use(self.size(label.vm_sizes[0]), label.use_spot, public)

    def use_of(self, record: VmRecord) -> QuotaInformation:
        """What a VM uses, as far as its size is known. Does not block."""
        size = self._known_size(record.size)
        if size is None:
            return QuotaInformation(instances=1)
        addresses = record.addresses
        public = sum(1 for address in (addresses.public_ipv4, addresses.public_ipv6) if address)
        return _use(size, record.spot, public)


def matches(candidate: ArmResource, image: AzureCloudImage) -> bool:
    """Does an image have all that a filter names? Names of images, locations and tags ignore case. Pure."""
    tags = {name.lower(): value for name, value in candidate.metadata.items()}
    return (
        candidate.status == SUCCEEDED
        and (image.filter_name is None or image.filter_name.lower() == candidate.name.lower())
        and (
            image.filter_location is None or plain_location(image.filter_location) == plain_location(candidate.location)
        )
        and all(tags.get(name.lower()) == value for name, value in image.filter_tags.items())
    )


def _cores_of(size: VmSize, spot: bool) -> dict[str, float]:
    """Quotas that the cores of a VM count against: spot VMs have one of their own, for all families."""
    if spot:
        return {SPOT_CORES: size.cores}
    return {CORES: size.cores, **({size.family: size.cores} if size.family else {})}


def _use(size: VmSize, spot: bool, public_addresses: int) -> QuotaInformation:
    named = {**_cores_of(size, spot), **({ADDRESSES: public_addresses} if public_addresses else {})}
    return QuotaInformation(instances=1, cores=size.cores, ram=size.ram_mib, **_named(named))


def _named(quotas: dict[str, float]) -> dict[str, float]:
    """``cores`` of Nodepool are those of all VMs; Azure's count only regular ones."""
    return {("regularCores" if name == CORES else name): amount for name, amount in quotas.items()}
