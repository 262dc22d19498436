# SPDX-License-Identifier: Apache-2.0
"""What a VM is to be like: the body of the PUT that makes it, its network interface, its addresses and its disk (AZ-4,
AZ-5). Pure, but for a password that nobody knows.
"""

from __future__ import annotations

import base64
import secrets
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.azure import names
from nodepool.driver.azure.client import NETWORK_VERSION
from nodepool.driver.framework.dynamic_values import dynamic_value

if TYPE_CHECKING:
    from nodepool.driver.azure.config import AzureLabel, AzurePool
    from nodepool.driver.azure.image_config import AzureCloudImage, AzureDiskImage
    from nodepool.driver.azure.places import VmPlace
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

PASSWORD_LENGTH: Final = 64
#: Azure wants three kinds of characters.
_KINDS: Final = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
#: What the names of tags must not have.
_NOT_IN_TAGS: Final = str.maketrans(dict.fromkeys("<>%&\\?/", "_"))
MAX_TAG_VALUE: Final = 256


def vm_tags(label: AzureLabel, metadata: Mapping[str, str], request: NodeRequest | None, log: Log) -> dict[str, str]:
    """Tags: the label's, the dynamic ones, and what says whose it is; the later one wins (CM-2)."""
    tags = dict(label.tags)
    for name, template in label.dynamic_tags.items():
        value = dynamic_value(template, request)
        if value is None:
            log.error("Label %s: dynamic-tags: %s cannot be formatted; it is left out", label.name, name)
        else:
            tags[name] = value
    return {name.translate(_NOT_IN_TAGS): value[:MAX_TAG_VALUE] for name, value in {**tags, **metadata}.items()}


def generated_password() -> str:
    """Letters and digits, of each kind at least one."""
    while True:
        password = "".join(secrets.choice("".join(_KINDS)) for _ in range(PASSWORD_LENGTH))
        if all(set(password) & set(kind) for kind in _KINDS):
            return password


def vm_body(
    name: str,
    hostname: str,
    provider: str,
    location: str,
    label: AzureLabel,
    place: VmPlace,
    image: Mapping[str, str],
    subnet_id: str,
    tags: Mapping[str, str],
) -> dict[str, Any]:
    """The body.

    :param name: of the VM.
    :param hostname: what the VM calls itself. Windows takes 15 characters, which names of later creations exceed.
    :param image: ``imageReference``.
    """
    disk: dict[str, Any] = {
        "name": names.disk_name(name, provider),
        "createOption": "FromImage",
        "deleteOption": "Delete",
    }
    if label.volume_size:
        disk["diskSizeGB"] = label.volume_size
    source = label.diskimage or label.cloud_image
    assert source is not None
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": place.size},
        "storageProfile": {"imageReference": dict(image), "osDisk": disk},
        "osProfile": _os_profile(hostname, source),
        "networkProfile": {
            "networkApiVersion": NETWORK_VERSION,
            "networkInterfaceConfigurations": [_interface(name, label.pool, subnet_id, tags)],
        },
    }
    if label.custom_data:
        properties["osProfile"]["customData"] = _encoded(label.custom_data)
    if label.user_data:
        properties["userData"] = _encoded(label.user_data)
    if place.spot:
        properties |= {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}}
    body: dict[str, Any] = {"location": location, "tags": dict(tags), "properties": properties}
    if place.zone:
        body["zones"] = [place.zone]
    return body


def _os_profile(hostname: str, image: AzureCloudImage | AzureDiskImage) -> dict[str, Any]:
    profile: dict[str, Any] = {"computerName": hostname, "adminUsername": image.username}
    if image.ssh_key:
        path = f"/home/{image.username}/.ssh/authorized_keys"
        profile["linuxConfiguration"] = {
            "ssh": {"publicKeys": [{"path": path, "keyData": image.ssh_key}]},
            "disablePasswordAuthentication": True,
        }
    if image.password:
        profile["adminPassword"] = image.password
    elif image.generate_password:
        profile["adminPassword"] = generated_password()
    return profile


def _interface(name: str, pool: AzurePool, subnet_id: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """One interface with a configuration for each family of addresses."""
    configurations: list[dict[str, Any]] = []
    for wanted, public, version in ((pool.ipv4, pool.public_ipv4, "v4"), (pool.ipv6, pool.public_ipv6, "v6")):
        if not wanted:
            continue
        properties: dict[str, Any] = {
            "subnet": {"id": subnet_id},
            "privateIPAddressVersion": f"IP{version}",
            # Of several one must be.
            "primary": not configurations,
        }
        if public:
            properties["publicIPAddressConfiguration"] = {
                "name": f"{name}-{version}-ip",
                "sku": {"name": "Standard", "tier": "Regional"},
                "properties": {
                    "deleteOption": "Delete",
                    "publicIPAllocationMethod": "Static",
                    "publicIPAddressVersion": f"IP{version}",
                },
                "tags": dict(tags),
            }
        configurations.append({"name": f"{name}-{version}-config", "properties": properties})
    return {
        "name": names.interface_name(name),
        "properties": {"primary": True, "deleteOption": "Delete", "ipConfigurations": configurations},
        "tags": dict(tags),
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
