# SPDX-License-Identifier: Apache-2.0
"""What answers of Azure have beside what was asked for, as recordings of it show. Pure.

The facts, with the recordings that they are from, are in ``tests/unit/simulators/azure/recorded_facts.yaml``.
"""

from __future__ import annotations

import copy
from typing import Final

from simulators.base.messages import Json, new_id

#: Calls that are left, by kind and operation: names of two windows, and how many calls the first one has.
_WINDOWS: Final = {
    "virtualMachines.put": ("PutVM", 240),
    "virtualMachines.delete": ("DeleteVM", 240),
    "virtualMachines.get": ("LowCostGet", 4000),
    "virtualMachines.instanceview": ("LowCostGet", 4000),
    "virtualMachines.list": ("HighCostGet", 240),
    "operations.get": ("GetOperation", 15000),
    "diskOperations.get": ("GetOperation", 50000),
    "disks.put": ("CreateUpdateDisks", 3000),
    "disks.get": ("LowCostGet", 15000),
    "disks.list": ("HighCostGet", 240),
    "images.put": ("CreateImages", 40),
    "images.delete": ("DeleteImages", 120),
    "images.get": ("GetImages", 360),
}


def windows_left(operation: str) -> str | None:
    """``x-ms-ratelimit-remaining-resource`` of a call, of somebody who makes few; None = it is not there."""
    if operation not in _WINDOWS:
        return None
    name, calls = _WINDOWS[operation]
    return f"Microsoft.Compute/{name}3Min;{calls - 1},Microsoft.Compute/{name}30Min;{5 * calls - 1}"


def complete_vm(properties: Json) -> None:
    """What Azure adds to the properties of an order."""
    storage = properties["storageProfile"]
    if "publisher" in storage.get("imageReference", {}):
        storage["imageReference"] = {**storage["imageReference"], "exactVersion": "12.20260101.1"}
    storage["osDisk"] = {"osType": "Linux", "caching": "ReadWrite", "diskSizeGB": 30, **storage["osDisk"]}
    storage["dataDisks"] = []
    profile = properties["osProfile"]
    linux = {"disablePasswordAuthentication": False, **(profile.get("linuxConfiguration") or {})}
    profile["linuxConfiguration"] = {**linux, "provisionVMAgent": True, "patchSettings": {"patchMode": "ImageDefault"}}
    profile |= {"secrets": [], "allowExtensionOperations": True, "requireGuestProvisionSignal": True}


def accepted_vm(document: Json) -> Json:
    """A VM as the answer to its order has it: its disk has no id yet."""
    shown = copy.deepcopy(document)
    shown["properties"]["storageProfile"]["osDisk"]["managedDisk"].pop("id", None)
    return shown


def accepted_disk(document: Json) -> Json:
    """A disk as the answer to its order has it."""
    given = ("name", "id", "type", "location", "tags")
    shown = {name: document[name] for name in given if name in document} | {"sku": {"name": document["sku"]["name"]}}
    properties = {"creationData": document["properties"]["creationData"], "provisioningState": "Updating"}
    return {**shown, "properties": properties}


def disk_properties(stamp: str) -> Json:
    """Of each disk."""
    return {
        "encryption": {"type": "EncryptionAtRestWithPlatformKey"},
        "networkAccessPolicy": "AllowAll",
        "publicNetworkAccess": "Enabled",
        "timeCreated": stamp,
        "uniqueId": new_id(),
    }


def accepted_image(document: Json) -> Json:
    """An image as the answer to its order has it."""
    return {**document, "properties": {**document["properties"], "provisioningState": "Creating"}}


def etag() -> Json:
    """What everything of a network has."""
    return {"etag": f'W/"{new_id()}"'}


def interface_properties() -> Json:
    """Of each network interface."""
    return {
        "resourceGuid": new_id(),
        "dnsSettings": {"dnsServers": [], "appliedDnsServers": []},
        "enableAcceleratedNetworking": False,
        "enableIPForwarding": False,
        "hostedWorkloads": [],
        "tapConfigurations": [],
    }


def address_properties() -> Json:
    """Of each public address."""
    return {"resourceGuid": new_id(), "idleTimeoutInMinutes": 4, "ipTags": []}


def instance_view(state: str, error: Json | None, disk: str, stamp: str) -> Json:
    """The state of a VM.

    :param state: of provisioning, in lower case. ``error``: why it failed; ``disk``: name of its disk.
    """
    if error is not None:
        status: Json = {
            "code": f"ProvisioningState/failed/{error['code']}",
            "level": "Error",
            "displayStatus": "Provisioning failed",
            "message": error["message"],
            "time": stamp,
        }
    else:
        told = f"Provisioning {state}"
        status = {"code": f"ProvisioningState/{state}", "level": "Info", "displayStatus": told, "time": stamp}
    made = {
        "code": "ProvisioningState/succeeded",
        "level": "Info",
        "displayStatus": "Provisioning succeeded",
        "time": stamp,
    }
    power = {"code": "PowerState/running", "level": "Info", "displayStatus": "VM running"}
    statuses = [status, power] if state == "succeeded" else [status]
    return {"hyperVGeneration": "V2", "disks": [{"name": disk, "statuses": [made]}], "statuses": statuses}


def operation_path(resource_id: str, operation_id: str, subscription: str, location: str) -> str:
    """Of ``Azure-AsyncOperation``, with a query that says who may ask. Disks have a service of their own."""
    lower = resource_id.lower()
    provider = "Microsoft.Network" if "/microsoft.network/" in lower else "Microsoft.Compute"
    kind = "DiskOperations" if "/disks/" in lower else "operations"
    where = f"/subscriptions/{subscription}/providers/{provider}/locations/{location}/{kind}/{operation_id}"
    signed = f"t=638348572813941099&c={'MIIHHjCC' * 200}&s={'X5E4RfIb_-' * 34}&h=Z9QQEra9k9krMd8966td9qfltTR3EBW8"
    return f"{where}?p={new_id()}&api-version=2025-11-01&{signed}"
