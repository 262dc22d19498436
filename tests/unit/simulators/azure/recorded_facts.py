# SPDX-License-Identifier: Apache-2.0
"""What real answers of Azure look like: status, headers and fields with their types, by call.

Facts from recordings of Azure that are public: of azure-service-operator (``ASO``, below
``v2/internal/controllers/recordings`` of Azure/azure-service-operator) and of azure-cli (``CLI``, below
``src/azure-cli/azure/cli/command_modules/vm/tests`` of Azure/azure-cli). Fields that no client of ours reads, and of
features that are not used, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

ASO_VM: Final = "ASO Test_Compute_VM_CRUD.yaml"
ASO_IMAGE: Final = "ASO Test_Compute_Image_CRUD.yaml"
CLI_ADDRESSES: Final = "CLI hybrid_2020_09_01/recordings/test_vm_show_list_sizes_list_ip_addresses.yaml"
CLI_ACCESS: Final = "CLI hybrid_2020_09_01/recordings/test_snapshot_access.yaml"
CLI_UPLOAD: Final = "CLI latest/recordings/test_vm_disk_upload.yaml"
CLI_DISK: Final = "CLI latest/recordings/test_accelerated_network.yaml"
CLI_USAGE: Final = "CLI latest/recordings/test_vm_usage.yaml"

#: Expressions that header values match.
NUMBER: Final = r"\d+"
_OPERATION: Final = r"https?://[^/]+/subscriptions/[^/]+/providers/{}/locations/\w+/{}/[-0-9a-f]+\?p=[-0-9a-f]+&.*"
OF_COMPUTE: Final = _OPERATION.format("Microsoft.Compute", "operations")
OF_DISKS: Final = _OPERATION.format("Microsoft.Compute", "DiskOperations")
JSON: Final = "application/json.*"


def left(window: str) -> str:
    """``x-ms-ratelimit-remaining-resource``."""
    return rf"Microsoft\.Compute/{window}3Min;\d+,Microsoft\.Compute/{window}30Min;\d+"


class Recorded(NamedTuple):
    """An answer.

    :param headers: names in lower case; None = it is not there.
    :param fields: names of types by path; ``[]`` is each entry of a list, of which there is at least one; a list
        without it may be empty.
    :param source: the recording.
    """

    status: int
    headers: Mapping[str, str | None]
    fields: Mapping[str, str]
    source: str


def _texts(*paths: str) -> dict[str, str]:
    return dict.fromkeys(paths, "str")


_RESOURCE: Final = _texts("name", "id", "type", "location")
_PROFILE: Final = "properties.osProfile"
_STORAGE: Final = "properties.storageProfile"
_VM: Final = {
    **_RESOURCE,
    **_texts(
        *("properties.vmId", "properties.hardwareProfile.vmSize", "properties.provisioningState"),
        *(f"{_STORAGE}.imageReference.{name}" for name in ("publisher", "offer", "sku", "version", "exactVersion")),
        *(f"{_STORAGE}.osDisk.{name}" for name in ("osType", "createOption", "caching")),
        f"{_STORAGE}.osDisk.managedDisk.storageAccountType",
        *(f"{_PROFILE}.{name}" for name in ("computerName", "adminUsername")),
        f"{_PROFILE}.linuxConfiguration.patchSettings.patchMode",
        "properties.networkProfile.networkInterfaces[].id",
    ),
    f"{_STORAGE}.osDisk.diskSizeGB": "int",
    f"{_STORAGE}.dataDisks": "list",
    f"{_PROFILE}.secrets": "list",
    f"{_PROFILE}.allowExtensionOperations": "bool",
    f"{_PROFILE}.requireGuestProvisionSignal": "bool",
    f"{_PROFILE}.linuxConfiguration.disablePasswordAuthentication": "bool",
    f"{_PROFILE}.linuxConfiguration.provisionVMAgent": "bool",
}
_MADE_VM: Final = {**_VM, **_texts(f"{_STORAGE}.osDisk.name", f"{_STORAGE}.osDisk.managedDisk.id")}
_DISK: Final = {
    **_RESOURCE,
    **_texts("sku.name", "properties.creationData.createOption", "properties.provisioningState"),
}
_MADE_DISK: Final = {
    **_DISK,
    **_texts(
        *("sku.tier", "properties.diskState", "properties.uniqueId", "properties.timeCreated"),
        *("properties.encryption.type", "properties.networkAccessPolicy", "properties.publicNetworkAccess"),
    ),
}
_UPLOAD_SIZE: Final = {"properties.creationData.uploadSizeBytes": "int"}
_IMAGE: Final = {
    **_RESOURCE,
    **_texts(
        *("properties.provisioningState", "properties.hyperVGeneration"),
        *(f"{_STORAGE}.osDisk.{name}" for name in ("osType", "osState")),
    ),
}
_ERROR: Final = _texts("error.code", "error.message")
_STARTED: Final = _texts("startTime", "status", "name")
_ENDED: Final = {**_STARTED, "endTime": "str"}
_ACCEPTED_OF_DISKS: Final = {"azure-asyncoperation": OF_DISKS, "location": f"{OF_DISKS}monitor=true.*"}
_IP: Final = "properties.ipConfigurations[]"

RECORDED: Final[Mapping[str, Recorded]] = {
    "VM ordered": Recorded(
        201,
        {
            "azure-asyncoperation": OF_COMPUTE,
            "location": None,
            "retry-after": NUMBER,
            "x-ms-ratelimit-remaining-resource": left("PutVM"),
        },
        _VM,
        ASO_VM,
    ),
    "operation runs": Recorded(
        200, {"content-type": JSON, "x-ms-ratelimit-remaining-resource": left("GetOperation")}, _STARTED, ASO_VM
    ),
    "operation of a VM ended": Recorded(200, {"content-type": JSON}, _ENDED, ASO_VM),
    "VM": Recorded(200, {"x-ms-ratelimit-remaining-resource": left("LowCostGet")}, _MADE_VM, ASO_VM),
    "VMs": Recorded(
        200,
        {"x-ms-ratelimit-remaining-resource": left("HighCostGet")},
        {f"value[].{path}": kind for path, kind in _MADE_VM.items()},
        CLI_ACCESS,
    ),
    "state of a VM": Recorded(
        200,
        {},
        {
            "hyperVGeneration": "str",
            **_texts("statuses[].code", "statuses[].level", "statuses[].displayStatus"),
            **_texts("disks[].name", *(f"disks[].statuses[].{part}" for part in ("code", "level", "displayStatus"))),
            "disks[].statuses[].time": "str",
        },
        CLI_ADDRESSES,
    ),
    "interface": Recorded(
        200,
        {},
        {
            **_RESOURCE,
            **_texts("etag", "properties.provisioningState", "properties.resourceGuid", "properties.virtualMachine.id"),
            **_texts(*(f"{_IP}.{part}" for part in ("name", "id", "etag", "type"))),
            **_texts(
                *(
                    f"{_IP}.properties.{part}"
                    for part in (
                        *("provisioningState", "privateIPAddress", "privateIPAllocationMethod"),
                        *("privateIPAddressVersion", "publicIPAddress.id", "subnet.id"),
                    )
                )
            ),
            f"{_IP}.properties.primary": "bool",
            "properties.dnsSettings.dnsServers": "list",
            "properties.dnsSettings.appliedDnsServers": "list",
            "properties.enableAcceleratedNetworking": "bool",
            "properties.enableIPForwarding": "bool",
            "properties.primary": "bool",
            "properties.hostedWorkloads": "list",
            "properties.tapConfigurations": "list",
        },
        CLI_ADDRESSES,
    ),
    "public address": Recorded(
        200,
        {},
        {
            **_RESOURCE,
            **_texts(
                *("etag", "sku.name", "properties.provisioningState", "properties.resourceGuid"),
                *("properties.ipAddress", "properties.publicIPAddressVersion", "properties.publicIPAllocationMethod"),
                "properties.ipConfiguration.id",
            ),
            "properties.idleTimeoutInMinutes": "int",
            "properties.ipTags": "list",
        },
        CLI_ADDRESSES,
    ),
    "interface in use": Recorded(
        400, {"content-type": JSON, "azure-asyncoperation": None}, {**_ERROR, "error.details": "list"}, ASO_VM
    ),
    "VM deletion": Recorded(
        202,
        {
            "azure-asyncoperation": OF_COMPUTE,
            "location": f"{OF_COMPUTE}monitor=true.*",
            "retry-after": NUMBER,
            "x-ms-ratelimit-remaining-resource": left("DeleteVM"),
        },
        {},
        ASO_VM,
    ),
    "VM that goes": Recorded(200, {}, _MADE_VM, ASO_VM),
    "disk ordered": Recorded(
        202,
        {**_ACCEPTED_OF_DISKS, "x-ms-ratelimit-remaining-resource": left("CreateUpdateDisks")},
        {**_DISK, **_UPLOAD_SIZE},
        CLI_UPLOAD,
    ),
    "operation of a disk ended": Recorded(
        200,
        {},
        {**_ENDED, **{f"properties.output.{path}": kind for path, kind in {**_MADE_DISK, **_UPLOAD_SIZE}.items()}},
        CLI_UPLOAD,
    ),
    "disk": Recorded(
        200, {"x-ms-ratelimit-remaining-resource": left("LowCostGet")}, {**_MADE_DISK, **_UPLOAD_SIZE}, CLI_DISK
    ),
    "access ordered": Recorded(202, _ACCEPTED_OF_DISKS, {}, CLI_ACCESS),
    "access": Recorded(200, {}, {**_ENDED, "properties.output.accessSAS": "str"}, CLI_ACCESS),
    "access by Location": Recorded(200, {}, {"accessSAS": "str"}, CLI_ACCESS),
    "access ends": Recorded(202, _ACCEPTED_OF_DISKS, {}, CLI_ACCESS),
    "access ended": Recorded(200, {}, _ENDED, CLI_ACCESS),
    "image ordered": Recorded(
        201,
        {
            "azure-asyncoperation": OF_COMPUTE,
            "location": None,
            "retry-after": None,
            "x-ms-ratelimit-remaining-resource": left("CreateImages"),
        },
        _IMAGE,
        ASO_IMAGE,
    ),
    "image": Recorded(200, {"x-ms-ratelimit-remaining-resource": left("GetImages")}, _IMAGE, ASO_IMAGE),
    "image deletion": Recorded(
        202,
        {
            "azure-asyncoperation": OF_COMPUTE,
            "location": f"{OF_COMPUTE}monitor=true.*",
            "retry-after": None,
            "x-ms-ratelimit-remaining-resource": left("DeleteImages"),
        },
        {},
        ASO_IMAGE,
    ),
    "image that is gone": Recorded(404, {"content-type": JSON}, _ERROR, ASO_IMAGE),
    "usages": Recorded(
        200,
        {},
        {
            **_texts("value[].unit", "value[].name.value", "value[].name.localizedValue"),
            **dict.fromkeys(("value[].limit", "value[].currentValue"), "int"),
        },
        CLI_USAGE,
    ),
    "resource group": Recorded(
        200, {"content-type": JSON}, {**_RESOURCE, "properties.provisioningState": "str"}, CLI_UPLOAD
    ),
}

#: Values that say what is the case, by answer.
VALUES: Final[Mapping[str, Mapping[str, object]]] = {
    "VM ordered": {"properties.provisioningState": "Creating"},
    "operation runs": {"status": "InProgress"},
    "operation of a VM ended": {"status": "Succeeded"},
    "VM": {"properties.provisioningState": "Succeeded"},
    "state of a VM": {"statuses[].code": ["ProvisioningState/succeeded", "PowerState/running"]},
    "interface in use": {"error.code": "NicInUse", "error.details": []},
    "VM that goes": {"properties.provisioningState": "Deleting"},
    "disk ordered": {"properties.provisioningState": "Updating"},
    "operation of a disk ended": {"properties.output.properties.diskState": "ReadyToUpload"},
    "image ordered": {"properties.provisioningState": "Creating"},
    "image": {"properties.provisioningState": "Succeeded"},
    "image that is gone": {"error.code": "NotFound"},
}

#: What the simulator has beside that: of later versions of the API, whose models the official clients have, and of
#: what our orders ask for and those of the recordings do not.
ALSO: Final = (
    *("tags", "zones", "managedBy", "sku.tier", "properties.timeCreated", "properties.diskSizeGB"),
    *("properties.priority", "properties.evictionPolicy", "properties.billingProfile"),
    *("properties.networkProfile.networkInterfaces[].properties", "properties.storageProfile.osDisk.name"),
    *("properties.storageProfile.osDisk.deleteOption", "properties.osProfile.linuxConfiguration.ssh"),
    *("properties.storageProfile.osDisk.managedDisk.id", "properties.storageProfile.zoneResilient"),
    # Null or empty on a last page.
    "nextLink",
    # Only of the first of the states.
    "statuses[].time",
)
