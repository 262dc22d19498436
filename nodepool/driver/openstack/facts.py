# SPDX-License-Identifier: Apache-2.0
"""What seldom changes in a cloud: flavors, images, networks, zones. Asked for once in a while, and after a refusal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.framework.fact import MAX_AGE_SECONDS, Fact
from nodepool.driver.openstack.views import Flavor, Image, Network
from nodepool.exceptions import LaunchNodepoolException

if TYPE_CHECKING:
    from nodepool.driver.openstack.api import Api
    from nodepool.driver.openstack.config import CloudImage, OpenStackLabel

#: How soon something is asked for again because what was looked for is not there (O-7).
MISSING_AGE_SECONDS: Final = 300.0
#: The same before a launch is refused for good: the answer must be from about now.
REFUSAL_AGE_SECONDS: Final = 10.0


class Facts:
    """Facts about the cloud of one provider. All methods may block unless they say otherwise."""

    def __init__(self, provider: str, api: Api) -> None:
        self.provider = provider
        self._api = api
        self._lock = threading.Lock()
        self.flavors: Fact[list[Flavor]] = Fact(api.flavors)
        self.networks: Fact[list[Network] | None] = Fact(api.networks)
        self.zones: Fact[list[str]] = Fact(api.zones)
        #: Ids of networks that have a gateway.
        self.gateways: Fact[frozenset[str]] = Fact(api.networks_with_gateway)
        self._images: dict[str, Fact[Image | None]] = {}
        #: Flavors that are not listed, e.g. deleted ones of old servers.
        self._hidden_flavors: dict[str, Fact[Flavor | None]] = {}

    def clear(self) -> None:
        """Something that we believed in was refused (O-2). Does not block."""
        for fact in (self.flavors, self.networks, self.zones, self.gateways):
            fact.clear()
        with self._lock:
            self._images.clear()

    # -- flavors --

    def flavor_of(self, label: OpenStackLabel) -> Flavor:
        """The flavor of a label (O-1).

        :raises LaunchNodepoolException: there is none.
        """
        for max_age in (MAX_AGE_SECONDS, REFUSAL_AGE_SECONDS):
            flavor = choose_flavor(self.flavors.get(max_age), label.flavor_name, label.min_ram)
            if flavor is not None:
                return flavor
        raise LaunchNodepoolException(f"provider {self.provider}, label {label.name}: {missing_flavor(label)}")

    def flavor(self, flavor_id: str) -> Flavor | None:
        """A flavor by its id; None if nothing is known about it."""
        for flavor in self.flavors.get():
            if flavor.id == flavor_id:
                return flavor
        with self._lock:
            fact = self._hidden_flavors.setdefault(flavor_id, Fact(lambda: self._hidden_flavor(flavor_id)))
        return fact.get(24 * 3600)

    def _hidden_flavor(self, flavor_id: str) -> Flavor | None:
        try:
            return self._api.flavor(flavor_id)
        except CloudNotFound:
            return None

    # -- images --

    def image_id(self, image: CloudImage, max_missing_age: float = MISSING_AGE_SECONDS) -> str | None:
        """Id of a cloud image; None if there is none (O-7). One given by id is not looked for (O-10)."""
        if image.image_id:
            return image.image_id
        with self._lock:
            fact = self._images.setdefault(image.image_name, Fact(lambda: self._find_image(image.image_name)))
        found = fact.get() or fact.get(max_missing_age)
        return None if found is None else found.id

    def image_of(self, label: OpenStackLabel) -> str:
        """Id of the cloud image of a label. Raises LaunchNodepoolException."""
        assert label.cloud_image is not None
        found = self.image_id(label.cloud_image, REFUSAL_AGE_SECONDS)
        if found is None:
            raise LaunchNodepoolException(missing_image(self.provider, label))
        return found

    def _find_image(self, name: str) -> Image | None:
        usable = [image for image in self._api.images(name=name) if image.status == "active"]
        if usable:
            return usable[0]
        try:
            image = self._api.image(name)
        except CloudNotFound:
            return None
        return image if image.status == "active" else None

    # -- networks --

    def network_ids(self, label: OpenStackLabel) -> list[str]:
        """Ids of the networks of a label, in its order; without a network service names are taken for ids.

        :raises LaunchNodepoolException: there is no such network, or several have the name.
        """
        return [self.network_id(name, label) for name in label.networks]

    def network_id(self, name: str, label: OpenStackLabel) -> str:
        """One of them."""
        for max_age in (MAX_AGE_SECONDS, REFUSAL_AGE_SECONDS):
            networks = self.networks.get(max_age)
            if networks is None:
                return name
            ids = [network.id for network in networks if network.id == name] or [
                network.id for network in networks if network.name == name
            ]
            if len(ids) == 1:
                return ids[0]
        trouble = f"has {len(ids)} networks named {name!r}; use ids in" if ids else f"has no network {name!r}; correct"
        raise LaunchNodepoolException(
            f"provider {self.provider}, label {label.name}: the cloud {trouble} networks of the label or its pool"
        )


def choose_flavor(flavors: list[Flavor], name: str | None, min_ram: int) -> Flavor | None:
    """The flavor for a label (O-1).

    :param min_ram: if given, the smallest flavor by (RAM, name) with so much and ``name`` in its name; else exactly it.
    """
    if min_ram or not name:
        ordered = sorted(flavors, key=lambda flavor: (flavor.ram, flavor.name))
        return next((f for f in ordered if f.ram >= min_ram and (not name or name in f.name)), None)
    exact = [flavor for flavor in flavors if flavor.name == name] or [f for f in flavors if f.id == name]
    return exact[0] if exact else None


def missing_flavor(label: OpenStackLabel) -> str:
    """What to tell about a label for which the cloud has no flavor."""
    named = f" {'with' if label.min_ram else 'named'} {label.flavor_name!r}" if label.flavor_name else ""
    named += " in its name and" if label.min_ram and label.flavor_name else ""
    size = f" with at least {label.min_ram} MiB" if label.min_ram else ""
    return f"the cloud has no flavor{named}{size}; correct flavor-name or min-ram, or create the flavor"


def missing_image(provider: str, label: OpenStackLabel) -> str:
    """What to tell about a label whose cloud image is not there."""
    image = label.cloud_image
    name = "" if image is None else image.image_name
    return (
        f"provider {provider}, label {label.name}: the cloud has no usable image {name!r}; "
        "correct cloud-image, or upload the image"
    )
