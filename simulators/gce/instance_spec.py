# SPDX-License-Identifier: Apache-2.0
"""The body of an insert of an instance: what Google would refuse of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simulators.base.messages import ApiError, Json
from simulators.gce.catalog import DISK_METRICS, TYPES, SimulatedMachineType
from simulators.gce.errors import invalid, not_found
from simulators.gce.links import read_link, region_scope, zone_scope

if TYPE_CHECKING:
    from simulators.gce.cloud import Project

NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME_RULE: Final = "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'"
_LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
_METADATA_KEY: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_METADATA_BYTES, _VALUE_BYTES = 512 * 1024, 256 * 1024
_LABELS_MOST: Final = 64


@dataclass
class InsertDisk:
    """A disk that is to be made."""

    name: str
    type: str
    size_gb: int
    image: str
    labels: dict[str, str]
    auto_delete: bool
    device_name: str


@dataclass
class InsertSpec:
    """An instance that is to be made."""

    name: str
    zone: str
    type: SimulatedMachineType
    spot: bool
    #: What becomes of it when Google takes it away: STOP or DELETE.
    termination: str
    labels: dict[str, str]
    #: Of the items of its metadata.
    metadata: dict[str, str]
    disks: list[InsertDisk]
    body: Json

    @property
    def addresses(self) -> int:
        """External ones."""
        return sum(bool(entry.get("accessConfigs")) for entry in self.body["networkInterfaces"])


def read_instance_spec(cloud: Project, zone: str, body: Json) -> InsertSpec:
    """Reads it.

    :raises ApiError: 400 or 404.
    """
    name = check_name(body)
    labels = read_labels(body.get("labels"), "resource.labels")
    machine = _machine_type(zone, body.get("machineType"))
    metadata = _metadata(body.get("metadata") or {})
    disks = [_disk(cloud, zone, name, number, entry) for number, entry in enumerate(body.get("disks") or [])]
    if not disks or not body["disks"][0].get("boot"):
        raise invalid("resource.disks", "", "At least one boot disk must be specified.")
    interfaces = body.get("networkInterfaces") or []
    if not interfaces:
        raise invalid("resource.networkInterfaces", "", "At least one network interface is required.")
    for number, entry in enumerate(interfaces):
        _check_interface(cloud, zone, number, entry)
    scheduling = body.get("scheduling") or {}
    spot = scheduling.get("provisioningModel") == "SPOT" or bool(scheduling.get("preemptible"))
    if spot and scheduling.get("automaticRestart"):
        text = "Scheduling must have preemptible be false when AutomaticRestart is true."
        raise invalid("resource.scheduling", scheduling, text)
    if spot and scheduling.get("onHostMaintenance") == "MIGRATE":
        raise invalid("resource.scheduling", scheduling, "onHostMaintenance must be TERMINATE for spot instances.")
    termination = scheduling.get("instanceTerminationAction", "STOP")
    return InsertSpec(name, zone, machine, spot, termination, labels, metadata, disks, body)


def check_name(body: Json) -> str:
    """The name of a resource that is to be made.

    :raises ApiError: 400.
    """
    name = body.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise invalid("resource.name", name, _NAME_RULE)
    return name


def read_labels(labels: object, field: str) -> dict[str, str]:
    """Labels of a resource.

    :raises ApiError: 400.
    """
    found = dict(labels) if isinstance(labels, dict) else {}
    for key, value in found.items():
        if not _LABEL_KEY.fullmatch(key):
            raise invalid(field, key, "Label keys have lower case letters, digits, '_' and '-', at most 63.")
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            text = f"Label value '{value}' violates format constraints. Lower case letters, digits, '_' and '-', <= 63."
            raise invalid(field, value, text)
    if len(found) > _LABELS_MOST:
        raise invalid(field, len(found), f"There can be at most {_LABELS_MOST} labels.")
    return found


def _machine_type(zone: str, text: object) -> SimulatedMachineType:
    path = read_link(text)
    place, _, name = path.partition("/machineTypes/")
    machine = TYPES.get(name)
    if not place.endswith(f"/{zone_scope(zone)}"):
        raise invalid("resource.machineType", text, "The URL is malformed.")
    if machine is None or not machine.offered(zone):
        why = f"Machine type with name '{name}' does not exist in zone '{zone}'."
        raise invalid("resource.machineType", text, why)
    return machine


def _metadata(metadata: Json) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in metadata.get("items") or []:
        key, value = entry.get("key"), entry.get("value", "")
        if not isinstance(key, str) or not _METADATA_KEY.fullmatch(key):
            raise invalid("resource.metadata", key, "Keys have letters, digits, '_' and '-', at most 128.")
        if key in found:
            raise invalid("resource.metadata", key, f"Metadata has duplicate key: {key}")
        if not isinstance(value, str) or len(value.encode()) > _VALUE_BYTES:
            raise invalid("resource.metadata", key, "Metadata values are texts of at most 256 KB.")
        found[key] = value
    if sum(len(key) + len(value.encode()) for key, value in found.items()) > _METADATA_BYTES:
        raise invalid("resource.metadata", "", "The total size of all keys and values must be less than 512 KB.")
    return found


def _disk(cloud: Project, zone: str, instance: str, number: int, entry: Json) -> InsertDisk:
    field = f"resource.disks[{number}]"
    given = entry.get("initializeParams")
    if not isinstance(given, dict):
        raise invalid(f"{field}.initializeParams", given, "Only disks that are made with the instance are known.")
    image = cloud.image_of(given.get("sourceImage"))
    if image is None:
        text = "The referenced image resource cannot be found."
        raise invalid(f"{field}.initializeParams.sourceImage", given.get("sourceImage"), text)
    if image.document["status"] != "READY":
        text = f"The resource '{image.path}' is not ready"
        raise ApiError(400, text, "resourceNotReady")
    image_gb = int(image.document["diskSizeGb"])
    size = int(given.get("diskSizeGb") or image_gb)
    if size < image_gb:
        text = f"Requested disk size cannot be smaller than the image size ({image_gb} GB)"
        raise invalid(f"{field}.initializeParams.diskSizeGb", size, text)
    kind_link = given.get("diskType") or f"{zone_scope(zone)}/diskTypes/pd-standard"
    kind = read_link(kind_link).partition(f"/{zone_scope(zone)}/diskTypes/")[2]
    if kind not in DISK_METRICS:
        raise invalid(f"{field}.initializeParams.diskType", kind_link, "The referenced diskType cannot be found.")
    name = given.get("diskName") or (instance if number == 0 else f"{instance}-{number}")
    labels = read_labels(given.get("labels"), f"{field}.initializeParams.labels")
    device = entry.get("deviceName") or f"persistent-disk-{number}"
    return InsertDisk(name, kind, size, image.path, labels, bool(entry.get("autoDelete")), device)


def _check_interface(cloud: Project, zone: str, number: int, entry: Json) -> None:
    field = f"resource.networkInterfaces[{number}]"
    network, subnetwork = entry.get("network"), entry.get("subnetwork")
    if network and read_link(network) not in cloud.networks:
        raise invalid(f"{field}.network", network, "The referenced network resource cannot be found.")
    if subnetwork:
        path = read_link(subnetwork)
        if path not in cloud.subnetworks:
            raise not_found(path or subnetwork)
        if f"/{region_scope(cloud.region_of(zone))}/" not in path:
            raise invalid(f"{field}.subnetwork", subnetwork, "The subnetwork is in another region than the instance.")
    for access in entry.get("accessConfigs") or []:
        if access.get("type", "ONE_TO_ONE_NAT") != "ONE_TO_ONE_NAT":
            raise invalid(f"{field}.accessConfigs[0].type", access.get("type"), "Only ONE_TO_ONE_NAT is known.")
