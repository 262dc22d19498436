# SPDX-License-Identifier: Apache-2.0
"""The body of a PUT that makes a VM: what Azure would refuse of it."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulators.azure.catalog import SIZES, SimulatedSize
from simulators.azure.resources import LOCATION
from simulators.base.messages import ApiError, Json

if TYPE_CHECKING:
    from simulators.azure.cloud import Subscription

_BAD_TAG = re.compile(r"[<>%&\\?/]")


@dataclass
class VmSpec:
    """A VM that is to be made."""

    name: str
    size: SimulatedSize
    zone: str
    spot: bool
    tags: dict[str, str]
    properties: Json
    #: As in the body.
    interfaces: list[Json]

    @property
    def public_addresses(self) -> int:
        return sum(
            "publicIPAddressConfiguration" in configuration.get("properties", {})
            for interface in self.interfaces
            for configuration in interface["properties"].get("ipConfigurations", ())
        )


def invalid(message: str, code: str = "InvalidParameter") -> ApiError:
    return ApiError(400, message, code)


def read_vm_spec(cloud: Subscription, name: str, body: Json) -> VmSpec:
    """Reads it.

    :raises ApiError: 400 or 404.
    """
    if (body.get("location") or "").lower() != LOCATION:
        raise invalid(f"The location '{body.get('location')}' is not the one of the simulation.", "LocationRequired")
    tags = dict(body.get("tags") or {})
    if len(tags) > 50 or any(len(key) > 512 or len(value) > 256 or _BAD_TAG.search(key) for key, value in tags.items()):
        raise invalid("The tags are not valid.", "InvalidTagNameCharacters")
    properties = body.get("properties") or {}
    wanted = str((properties.get("hardwareProfile") or {}).get("vmSize"))
    size = SIZES.get(wanted.lower())
    if size is None:
        raise invalid(f"The value {wanted} provided for the VM size is not valid.")
    zones = list(body.get("zones") or [])
    if any(zone not in size.zones for zone in zones):
        text = f"The requested VM size {size.name} is not available in the zone {zones[0]}."
        raise ApiError(409, text, "SkuNotAvailable")
    _check_image(cloud, (properties.get("storageProfile") or {}).get("imageReference") or {})
    _check_login(properties.get("osProfile") or {})
    for data in (properties.get("userData"), (properties.get("osProfile") or {}).get("customData")):
        _check_encoded(data)
    interfaces = (properties.get("networkProfile") or {}).get("networkInterfaceConfigurations") or []
    if not interfaces or not (properties.get("networkProfile") or {}).get("networkApiVersion"):
        raise invalid("The network profile needs networkApiVersion and networkInterfaceConfigurations.")
    for interface in interfaces:
        _check_interface(cloud, interface)
    spot = properties.get("priority") == "Spot"
    return VmSpec(name, size, zones[0] if zones else "", spot, tags, properties, interfaces)


def _check_image(cloud: Subscription, reference: dict[str, Any]) -> None:
    if whole_id := reference.get("id"):
        if cloud.resources.by_id(whole_id) is None:
            raise ApiError(404, f"The image '{whole_id}' was not found.", "ImageNotFound")
    elif reference.get("communityGalleryImageId") or reference.get("sharedGalleryImageId"):
        return
    elif not all(reference.get(part) for part in ("publisher", "offer", "sku", "version")):
        raise invalid("Required parameter 'imageReference' is missing (null).")
    elif reference["publisher"] not in cloud.publishers:
        raise ApiError(404, f"The platform image '{reference['publisher']}' is not available.", "PlatformImageNotFound")


def _check_login(profile: Json) -> None:
    for name in ("computerName", "adminUsername"):
        if not profile.get(name):
            raise invalid(f"Required parameter '{name}' is missing (null).")
    linux = profile.get("linuxConfiguration") or {}
    keys = (linux.get("ssh") or {}).get("publicKeys") or []
    if not profile.get("adminPassword") and not keys:
        raise invalid("Authentication using either SSH or by user name and password must be enabled in Linux profile.")


def _check_encoded(data: Any) -> None:
    if data is not None:
        try:
            base64.b64decode(data, validate=True)
        except (binascii.Error, TypeError):
            raise invalid("Custom data must be in Base64 encoding.") from None


def _check_interface(cloud: Subscription, interface: Json) -> None:
    configurations = (interface.get("properties") or {}).get("ipConfigurations") or []
    if not interface.get("name") or not configurations:
        raise invalid("A network interface needs a name and an IP configuration.")
    primary = sum(bool((entry.get("properties") or {}).get("primary")) for entry in configurations)
    if primary != 1 and len(configurations) > 1:
        raise invalid("One IP configuration must be primary.", "IpConfigurationsNoPrimary")
    for entry in configurations:
        subnet = ((entry.get("properties") or {}).get("subnet") or {}).get("id", "")
        if subnet.lower() not in cloud.subnets:
            raise ApiError(404, f"Resource {subnet} not found.", "InvalidResourceReference")
