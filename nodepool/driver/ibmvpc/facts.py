# SPDX-License-Identifier: Apache-2.0
"""What seldom changes in a region of IBM VPC.

First what the names of the configuration stand for (`IbmFacts`): VPC, subnets, SSH keys, profiles, images, resource
groups. They are read again every ten minutes, when a name is not among them, and after a rejected launch (IV-2). Then
the places where an instance may be launched.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudRefused, CloudSetup
from nodepool.driver.framework.fact import MAX_AGE_SECONDS, Fact
from nodepool.driver.ibmvpc import types as t
from nodepool.driver.ibmvpc.client import MISSING_SECONDS, IbmVpc
from nodepool.driver.ibmvpc.config import IbmCloudImage, IbmLabel, IbmPool, IbmProviderConfig
from nodepool.exceptions import RuntimeConfigurationException

T = TypeVar("T")

log = logging.getLogger("nodepool.driver.ibmvpc.facts")

#: How long the image of a name or a filter is remembered.
FOUND_SECONDS: Final = 300.0
#: What owner types of Nodepool 11.0.0 are today (IV-8).
_VISIBILITY: Final = {"user": "private", "provider": "public"}


class IbmFacts:
    """Of one provider. Thread-safe: what changes a table is one operation."""

    def __init__(self, config: IbmProviderConfig, client: IbmVpc) -> None:
        self._config = config
        self._client = client
        self._lock = threading.Lock()
        self._vpcs: Fact[dict[str, str]] = Fact(lambda: client.ids("vpcs"))
        self._subnets: Fact[list[t.IbmSubnet]] = Fact(client.subnets)
        self._keys: Fact[dict[str, str]] = Fact(lambda: client.ids("keys"))
        self._profiles: Fact[dict[str, t.IbmProfile]] = Fact(client.profiles)
        self._images: dict[str, Fact[str]] = {}
        self._forgotten_at = float("-inf")
        #: Resource groups that were made here: lists may be late.
        self._made: dict[str, Fact[str]] = {}

    def instance_body(
        self, name: str, label: IbmLabel, place: IbmPlace, image_id: str | None, metadata: Mapping[str, str]
    ) -> dict[str, Any]:
        """What an instance is to be like: the body of the call that makes it (IV-5). May block.

        :param image_id: of the upload; None = the label's cloud image.
        :param metadata: whose it is. Name and resource group say it, too.
        :raises CloudSetup: something that it is made of is not there.
        """
        image = label.cloud_image or label.diskimage
        assert image is not None
        volume: dict[str, Any] = {
            "name": name,
            "profile": {"name": "general-purpose"},
            "user_tags": t.volume_tags(metadata),
        }
        if label.volume_size:
            volume["capacity"] = label.volume_size
        body: dict[str, Any] = {
            "name": name,
            "profile": {"name": place.profile},
            "vpc": {"id": self.vpc_id()},
            "resource_group": {"id": self.group_id(t.group_of_pool(self._config.name, label.pool.name))},
            "zone": {"name": place.zone},
            "image": self.image(label, image_id),
            "keys": [{"id": self.key_id(key)} for key in image.ssh_keys],
            "primary_network_interface": {"name": "eth0", "subnet": {"id": place.subnet_id}},
            "boot_volume_attachment": {"delete_volume_on_instance_delete": True, "volume": volume},
        }
        if label.user_data:
            body["user_data"] = label.user_data
        if place.spot:
            # Who runs a job on it must see that it was taken away, and why: so it is not deleted by itself.
            body |= {"availability": {"class": "spot"}, "availability_policy": {"preemption": "stop"}}
        return body

    def forget(self) -> None:
        """IBM rejected a launch: look up again what it was made of. Many launches may be rejected at once."""
        now = monotonic()
        with self._lock:
            if now - self._forgotten_at < MISSING_SECONDS:
                return
            self._forgotten_at = now
            self._images, self._made = {}, {}
        for fact in (self._vpcs, self._subnets, self._keys, self._profiles, self._client.known_groups):
            fact.clear()

    # -- the network --

    def vpc_id(self) -> str:
        """Of the configuration's VPC. May block; raises CloudSetup."""
        return _named(self._vpcs, self._config.vpc, f"the region has no VPC {self._config.vpc!r}; correct vpc")

    def subnets(self, pool: IbmPool) -> list[t.IbmSubnet]:
        """Those of a pool, in the order of the configuration. May block.

        :raises CloudSetup: one is not there, or a zone has none.
        """
        vpc = self.vpc_id()
        try:
            return _chosen(pool, vpc, self._subnets.get())
        except CloudSetup:
            return _chosen(pool, vpc, self._subnets.get(MISSING_SECONDS))

    def key_id(self, name: str) -> str:
        """Of an SSH key. May block; raises CloudSetup."""
        return _named(self._keys, name, f"the region has no SSH key {name!r}; correct keys of the image, or make it")

    # -- profiles --

    def profile(self, name: str) -> t.IbmProfile:
        """A profile. May block.

        :raises RuntimeConfigurationException: the region does not have it.
        """
        found = self._profiles.get().get(name) or self._profiles.get(MISSING_SECONDS).get(name)
        if found is None:
            text = f"the region {self._config.region} has no profile {name!r}; correct profile"
            raise RuntimeConfigurationException(text)
        return found

    # -- resource groups --

    def group_id(self, name: str) -> str:
        """Of a resource group, which is made if it is not there. May block.

        :raises CloudRefused: IBM does not let us make it.
        """
        found = self._client.known_groups.get().get(name)
        if found is not None:
            return found
        return self._made.setdefault(name, Fact(lambda: self._new_group(name))).get(math.inf)

    def _new_group(self, name: str) -> str:
        """One that was not in the list. One thread at a time, for each name."""
        known = self._client.known_groups
        if found := known.get(MISSING_SECONDS).get(name):
            return found
        try:
            made = self._client.create_group(name)
        except CloudRefused:
            # Another launcher may have been first.
            if found := known.get_new().get(name):
                return found
            raise
        log.info("Provider %s: resource group %s was made", self._config.name, name)
        return made

    # -- images --

    def image(self, label: IbmLabel, image_id: str | None) -> dict[str, str]:
        """What an instance of a label is made of, as IBM takes it. May block.

        :param image_id: of the upload; None = the label's cloud image.
        :raises CloudSetup: there is no such image.
        """
        if image_id is not None:
            return {"id": image_id}
        image = label.cloud_image
        assert image is not None
        if image.image_href:
            return {"href": image.image_href}
        if image.image_id:
            return {"id": image.image_id}
        fact = Fact(lambda: self._find_image(image).id)
        return {"id": self._images.setdefault(image.name, fact).get(FOUND_SECONDS)}

    def _find_image(self, image: IbmCloudImage) -> t.IbmImage:
        filters = {"name": image.image_name} if image.image_name else {}
        if image.owner_type:
            filters["visibility"] = _VISIBILITY[image.owner_type]
        found = next((one for one in self._client.images(**filters) if matches(one, image)), None)
        if found is None:
            wanted = f"the name {image.image_name!r}" if image.image_name else f"image-filter {_told(image)}"
            text = f"the region has no image with {wanted}; correct cloud image {image.name!r}"
            raise CloudSetup(text, code="image_not_found", status=404)
        return found


def matches(candidate: t.IbmImage, image: IbmCloudImage) -> bool:
    """Does an image have all that is wanted? Pure (IV-8)."""
    if image.image_name:
        return candidate.name == image.image_name
    given = candidate.operating_system
    return (
        (candidate.status == image.status if image.status else candidate.status in t.USABLE_IMAGES)
        and image.owner_type in (None, _owner(candidate))
        and all(given.get(name.replace("-", "_")) == value for name, value in image.operating_system.items())
    )


def _owner(candidate: t.IbmImage) -> str | None:
    return next((owner for owner, visibility in _VISIBILITY.items() if visibility == candidate.visibility), None)


def _told(image: IbmCloudImage) -> str:
    given = {**image.operating_system, "owner-type": image.owner_type, "status": image.status}
    return ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)


def _named(fact: Fact[dict[str, T]], name: str, problem: str) -> T:
    """An entry of a list that is asked for again if it lacks the name."""
    for max_age in (MAX_AGE_SECONDS, MISSING_SECONDS):
        found = fact.get(max_age).get(name)
        if found is not None:
            return found
    raise CloudSetup(problem, code="not_found", status=404)


def _chosen(pool: IbmPool, vpc: str, subnets: list[t.IbmSubnet]) -> list[t.IbmSubnet]:
    """The subnets that a pool names. Raises CloudSetup. Pure."""
    chosen = []
    for name in pool.subnets:
        found = [subnet for subnet in subnets if subnet.id == name or (subnet.name == name and subnet.vpc == vpc)]
        if not found:
            text = f"the VPC {pool.provider.vpc!r} has no subnet {name!r}; correct subnet of pool {pool.name}"
            raise CloudSetup(text, code="subnet_not_found", status=404)
        chosen += found
    for zone in pool.zones:
        if all(subnet.zone != zone for subnet in chosen):
            names = ", ".join(f"{subnet.name} ({subnet.zone})" for subnet in chosen)
            text = f"no subnet of pool {pool.name} is in zone {zone}, only {names}; correct zone or subnet"
            raise CloudSetup(text, code="subnet_not_found", status=404)
    return chosen


# Where IBM may have capacity for an instance: the combinations of profile and subnet that a label allows.


class IbmPlace(NamedTuple):
    """One combination. The subnet has the zone."""

    profile: str
    zone: str
    subnet_id: str
    spot: bool

    def __str__(self) -> str:
        return f"{self.profile}{' (spot)' if self.spot else ''} in zone {self.zone}"


def places_of(label: IbmLabel, subnets: Iterable[t.IbmSubnet]) -> list[IbmPlace]:
    """All that a label allows, in the order of its profiles, and then of the zones of its pool. What is regular only
    because there is no spot instance comes last. Pure.

    :param subnets: of the pool.
    """
    where = [(zone, subnet.id) for zone in label.pool.zones for subnet in subnets if subnet.zone == zone]
    return [IbmPlace(profile, *one, spot) for spot in label.spot_kinds for profile in label.profiles for one in where]
