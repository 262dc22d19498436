# SPDX-License-Identifier: Apache-2.0
"""`AzureFacts`: what seldom changes: the subnet, sizes and images."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.azure.types import SUCCEEDED, AzureImage, VmSize, plain_location
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudSetup
from nodepool.driver.framework.fact import Fact
from nodepool.exceptions import RuntimeConfigurationException

if TYPE_CHECKING:
    from nodepool.driver.azure.client import Arm
    from nodepool.driver.azure.config import AzureLabel, AzureProviderConfig
    from nodepool.driver.azure.image_config import AzureCloudImage

#: How long the image of a filter is remembered.
FILTERED_SECONDS: Final = 300.0
#: The list of sizes has some MB.
SIZES_SECONDS: Final = 6 * 3600.0
FOR_EVER: Final = float("inf")


class AzureFacts:
    """Of one provider. Thread-safe; ``_lock`` guards the table, and is not held while Azure is asked."""

    def __init__(self, config: AzureProviderConfig, client: Arm, clock: Callable[[], float] = monotonic) -> None:
        self._config = config
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._subnet: Fact[str] = Fact(self._ask_subnet, clock)
        self._sizes: Fact[dict[str, VmSize]] = Fact(client.sizes, clock)
        self._images: dict[str, Fact[str]] = {}

    def subnet_id(self) -> str:
        """Of the VMs; may block.

        :raises CloudSetup: there is no such subnet.
        """
        return self._subnet.get(FOR_EVER)

    def size(self, name: str) -> VmSize:
        """A size; may block.

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

    def known_size(self, name: str) -> VmSize | None:
        """The same if the list was asked for before. Does not block."""
        return (self._sizes.known() or {}).get(name.lower())

    def know_sizes(self) -> None:
        """Have the list, if it can be had; may block."""
        self._sizes.get(SIZES_SECONDS)

    def image_reference(self, label: AzureLabel, image_name: str | None) -> Mapping[str, str]:
        """What a VM of a label is made of; may block.

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
        """Azure refused a launch: look up again what it was made of."""
        with self._lock:
            self._images.clear()
        self._subnet.clear()

    def _ask_subnet(self) -> str:
        named = self._config.subnet
        if named is None:
            return self._config.subnet_id or ""
        try:
            return self._client.subnet_id(*named)
        except CloudNotFound as error:
            raise CloudSetup(f"{error}; correct network of the provider", code=error.code, status=404) from error

    def _uploaded(self, name: str) -> str:
        try:
            return self._client.image(name).id
        except CloudNotFound as error:
            raise CloudSetup(f"{error}; upload the image again", code=error.code, status=404) from error

    def _filtered(self, image: AzureCloudImage) -> AzureImage:
        found = [candidate for candidate in self._client.images() if matches(candidate, image)]
        if not found:
            told = {"name": image.filter_name, "location": image.filter_location, "tags": image.filter_tags}
            wanted = ", ".join(f"{name}={value}" for name, value in told.items() if value)
            group = self._config.resource_group
            raise CloudSetup(
                f"the resource group {group} has no image with {wanted or 'any name'}; correct image-filter of cloud "
                f"image {image.name!r}",
                code="ImageNotFound",
            )
        return max(found, key=lambda candidate: candidate.name)

    def _image_id(self, key: str, ask: Callable[[], str], max_age: float) -> str:
        with self._lock:
            fact = self._images.get(key)
            if fact is None:
                fact = self._images[key] = Fact(ask, self._clock)
        return fact.get(max_age)


def matches(candidate: AzureImage, image: AzureCloudImage) -> bool:
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
