# SPDX-License-Identifier: Apache-2.0
"""What an instance is to be like: the body of the insert (GC-2, GC-3). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nodepool.driver.gce.labels import labels_of

if TYPE_CHECKING:
    from nodepool.driver.gce.config import GceLabel, GcePool
    from nodepool.driver.gce.places import GcePlace

#: Of the public address, as the Google Cloud console calls it.
ACCESS_NAME = "External NAT"


def instance_body(
    name: str, label: GceLabel, place: GcePlace, image: str, metadata: Mapping[str, str]
) -> dict[str, Any]:
    """The body.

    :param image: its link.
    :param metadata: says whose the instance is: labels of instance and disk, and metadata items as in 11.0.0.
    """
    zone, labels = f"zones/{place.zone}", labels_of(metadata)
    disk = {
        "boot": True,
        "autoDelete": True,
        "initializeParams": {
            "sourceImage": image,
            "diskType": f"{zone}/diskTypes/{label.volume_type}",
            "diskSizeGb": str(label.volume_size),
            "labels": labels,
        },
    }
    items = _items(label, metadata)
    body: dict[str, Any] = {
        "name": name,
        "machineType": f"{zone}/machineTypes/{place.machine_type}",
        "labels": labels,
        "disks": [disk],
        "networkInterfaces": [_interface(label.pool)],
        "serviceAccounts": [],
        "metadata": {"items": [{"key": key, "value": value} for key, value in items.items()]},
    }
    if label.service_account:
        body["serviceAccounts"] = [{"email": label.service_account, "scopes": list(label.scopes)}]
    if label.pool.network_tags:
        body["tags"] = {"items": list(label.pool.network_tags)}
    shielded = {
        "enableSecureBoot": label.secure_boot,
        "enableVtpm": label.vtpm,
        "enableIntegrityMonitoring": label.integrity_monitoring,
    }
    wanted = {option: value for option, value in shielded.items() if value is not None}
    if wanted:
        body["shieldedInstanceConfig"] = wanted
    if place.spot:
        body["scheduling"] = {
            "provisioningModel": "SPOT",
            "instanceTerminationAction": "DELETE",
            "automaticRestart": False,
            "onHostMaintenance": "TERMINATE",
        }
    return body


def _items(label: GceLabel, metadata: Mapping[str, str]) -> dict[str, str]:
    items = dict(label.metadata)
    image = label.diskimage or label.cloud_image
    if image is not None and image.ssh_key:
        items["ssh-keys"] = f"{image.username}:{image.ssh_key}"
    return {**items, **metadata}


def _interface(pool: GcePool) -> dict[str, Any]:
    interface: dict[str, Any] = {"network": network_path(pool.network)}
    if pool.subnetwork:
        interface["subnetwork"] = subnetwork_path(pool.subnetwork, pool.provider.region)
        if pool.network == "default" and "/" in pool.subnetwork:
            # It says the network, which may be one of another project.
            del interface["network"]
    if pool.public_ipv4:
        interface["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": ACCESS_NAME}]
    return interface


def network_path(given: str) -> str:
    """A network of the project by its name, or any by its link."""
    return given if "/" in given else f"global/networks/{given}"


def subnetwork_path(given: str, region: str) -> str:
    """The same of a subnetwork."""
    return given if "/" in given else f"regions/{region}/subnetworks/{given}"
