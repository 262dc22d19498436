# SPDX-License-Identifier: Apache-2.0
"""The body of a POST that makes an instance: what IBM would refuse of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulators.base.messages import Json
from simulators.ibmvpc.catalog import PROFILES, SimulatedProfile
from simulators.ibmvpc.core import ZONES, VpcError, not_found
from simulators.ibmvpc.groups import ResourceGroup, ResourceGroups
from simulators.ibmvpc.resources import (
    IMAGES,
    INSTANCES,
    KEYS,
    SUBNETS,
    VOLUMES,
    VpcResource,
    VpcTable,
    identity_of,
)
from simulators.ibmvpc.volumes import user_tags

_MOST_USER_DATA = 65_536
#: Status of images that instances can be made of.
_USABLE = ("available", "deprecated")


@dataclass
class VpcInstanceSpec:
    """An instance that is to be made.

    :param interface: name of its interface; ``attachment``: that of the attachment, "" = it has none.
    :param capacity: of the boot volume, in GB.
    """

    name: str
    profile: SimulatedProfile
    zone: str
    group: ResourceGroup
    image: VpcResource
    subnet: VpcResource
    keys: list[VpcResource]
    interface: str
    attachment: str
    volume_name: str
    capacity: int
    delete_volume: bool
    spot: bool = False
    preemption: str = "stop"
    tags: list[str] = field(default_factory=list)
    user_data: str = ""


class SpecReader:
    """Reads bodies. The caller holds the core's lock."""

    def __init__(self, resources: VpcTable, groups: ResourceGroups) -> None:
        self._resources = resources
        self._groups = groups

    def read(self, body: Json) -> VpcInstanceSpec:
        """The instance that a body asks for.

        :raises VpcError: it is refused.
        """
        name = self._resources.check_name(INSTANCES, body.get("name"))
        profile = self._profile(body)
        zone = identity_of(body, "zone", ("name",))
        if zone not in ZONES:
            raise not_found("Zone", zone, 400)
        if zone not in profile.zones:
            text = f"Instance profile {profile.name} is not available in zone {zone}."
            raise VpcError(400, "invalid_profile", text, "profile", profile.name)
        image = self._image(body, profile)
        interface, attachment, subnet = self._interface(body, zone)
        keys = [self._resources.get(KEYS, str(key.get("id")), 400) for key in body.get("keys") or []]
        volume = self._volume(body)
        spot, preemption = _availability(body, profile)
        user_data = body.get("user_data") or ""
        if not isinstance(user_data, str) or len(user_data) > _MOST_USER_DATA:
            raise VpcError(400, "invalid_value", "The user data is not valid.", "user_data")
        return VpcInstanceSpec(
            name=name,
            profile=profile,
            zone=zone,
            group=self._groups.of_body(body),
            image=image,
            subnet=subnet,
            keys=keys,
            interface=interface,
            attachment=attachment,
            **volume,
            spot=spot,
            preemption=preemption,
            user_data=user_data,
        )

    @staticmethod
    def _profile(body: Json) -> SimulatedProfile:
        name = identity_of(body, "profile", ("name",))
        if name not in PROFILES:
            raise not_found("Instance profile", name, 400)
        return PROFILES[name]

    def _image(self, body: Json, profile: SimulatedProfile) -> VpcResource:
        image = self._resources.get(IMAGES, identity_of(body, "image", ("id", "href")).rpartition("/")[2], 400)
        if image.status not in _USABLE:
            raise VpcError(400, "invalid_state", f"Image {image.id} is {image.status}.", "image.id", image.id)
        if image.document["operating_system"]["architecture"] != profile.architecture:
            text = f"The image's architecture does not fit the profile {profile.name}."
            raise VpcError(400, "invalid_profile", text, "profile", profile.name)
        return image

    def _interface(self, body: Json, zone: str) -> tuple[str, str, VpcResource]:
        """Names of the interface and the attachment, and the subnet."""
        attachment = body.get("primary_network_attachment")
        if isinstance(attachment, dict):
            told = attachment.get("virtual_network_interface") or {}
            names = str(told.get("name") or "vni"), str(attachment.get("name") or "eth0")
        else:
            told = body.get("primary_network_interface") or {}
            names = str(told.get("name") or "eth0"), ""
        subnet = self._resources.get(SUBNETS, identity_of(told, "subnet"), 400)
        if subnet.zone != zone:
            text = f"Subnet {subnet.id} is not in zone {zone}."
            raise VpcError(400, "invalid_zone", text, "subnet", subnet.id)
        vpc = body.get("vpc")
        if isinstance(vpc, dict) and vpc.get("id") != subnet.document["vpc"]["id"]:
            raise VpcError(400, "bad_field", f"Subnet {subnet.id} is not in VPC {vpc.get('id')}.", "vpc", vpc.get("id"))
        return *names, subnet

    def _volume(self, body: Json) -> dict[str, Any]:
        """What is to be made of the boot volume."""
        told = body.get("boot_volume_attachment") or {}
        volume = told.get("volume") or {}
        capacity = volume.get("capacity") or 100
        if not isinstance(capacity, int) or not 10 <= capacity <= 32_000:
            raise VpcError(
                400, "invalid_value", "The capacity of a boot volume is 10 to 32000 GB.", "capacity", capacity
            )
        if volume and not (volume.get("profile") or {}).get("name"):
            raise VpcError(400, "validation_required_field", "Missing a required field: profile.", "profile")
        name = volume.get("name") or ""
        return {
            "volume_name": self._resources.check_name(VOLUMES, name) if name else "",
            "capacity": capacity,
            "delete_volume": bool(told.get("delete_volume_on_instance_delete", True)),
            "tags": user_tags(volume.get("user_tags")),
        }


def _availability(body: Json, profile: SimulatedProfile) -> tuple[bool, str]:
    """Is it a spot instance, and what happens to it when it is preempted."""
    wanted = (body.get("availability") or {}).get("class", "standard")
    if wanted not in ("standard", "spot") or (wanted == "spot" and not profile.spot):
        text = f"Availability class {wanted} is not supported by profile {profile.name}."
        raise VpcError(400, "invalid_value", text, "availability.class", wanted)
    preemption = (body.get("availability_policy") or {}).get("preemption", "stop")
    if preemption not in ("stop", "delete"):
        raise VpcError(400, "invalid_value", "preemption must be stop or delete", "preemption", preemption)
    return wanted == "spot", preemption
