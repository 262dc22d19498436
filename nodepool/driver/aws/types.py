# SPDX-License-Identifier: Apache-2.0
"""What AWS says, as small values: only what the driver uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from nodepool.driver.aws.batch_tag import lacks_own, with_node

PENDING: Final = "pending"
RUNNING: Final = "running"
SHUTTING_DOWN: Final = "shutting-down"
TERMINATED: Final = "terminated"


def tags_of(data: Mapping[str, Any]) -> dict[str, str]:
    """The tags of anything."""
    return {tag["Key"]: tag.get("Value", "") for tag in data.get("Tags") or ()}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as AWS takes them."""
    return [{"Key": name, "Value": value} for name, value in tags.items()]


class AwsRecord(NamedTuple):
    """An instance as a list shows it: a record of the inventory (AW-2)."""

    id: str
    status: str
    metadata: Mapping[str, str]
    type: str
    zone: str | None
    spot: bool
    #: Of a dedicated host.
    host_id: str | None
    public_ipv4: str | None
    private_ipv4: str | None
    ipv6: str | None
    volume_ids: tuple[str, ...]
    #: Why it is in its state.
    reason_code: str
    reason: str
    #: Among the instances of one call.
    launch_index: int = 0
    #: Its tags are only those that it has in common with them.
    batched: bool = False
    #: EC2 cannot list what changed.
    updated: str = ""

    @property
    def gone(self) -> bool:
        """Lists show terminated instances for an hour."""
        return self.status == TERMINATED

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AwsRecord:
        placement = data.get("Placement") or {}
        reason = data.get("StateReason") or {}
        tags, index = tags_of(data), data.get("AmiLaunchIndex") or 0
        return cls(
            id=data["InstanceId"],
            status=(data.get("State") or {}).get("Name", ""),
            metadata=with_node(tags, index),
            type=data.get("InstanceType", ""),
            zone=placement.get("AvailabilityZone") or None,
            spot=data.get("InstanceLifecycle") == "spot",
            host_id=placement.get("HostId") or None,
            public_ipv4=data.get("PublicIpAddress") or None,
            private_ipv4=data.get("PrivateIpAddress") or None,
            ipv6=_first_ipv6(data.get("NetworkInterfaces") or ()),
            volume_ids=tuple(
                device["Ebs"]["VolumeId"]
                for device in data.get("BlockDeviceMappings") or ()
                if (device.get("Ebs") or {}).get("VolumeId")
            ),
            reason_code=reason.get("Code", ""),
            reason=reason.get("Message", ""),
            launch_index=index,
            batched=lacks_own(tags),
        )


class AwsVolume(NamedTuple):
    """A volume of EBS."""

    id: str
    status: str
    metadata: Mapping[str, str]
    size_gib: int
    type: str
    iops: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AwsVolume:
        return cls(
            id=data["VolumeId"],
            status=data.get("State", ""),
            # It does not say of which node of a batch it is. What no instance has any more is to go with the first.
            metadata=with_node(tags_of(data), 0),
            size_gib=data.get("Size", 0),
            type=data.get("VolumeType", ""),
            iops=data.get("Iops", 0),
        )


class AwsImage(NamedTuple):
    """An AMI."""

    id: str
    name: str
    status: str
    metadata: Mapping[str, str]
    #: Time as a text that grows with time.
    created: str
    #: Device name and ``Ebs`` of each volume that comes with it, the root first.
    devices: tuple[tuple[str, Mapping[str, Any]], ...]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AwsImage:
        root = data.get("RootDeviceName")
        found = [(device.get("DeviceName", ""), device.get("Ebs")) for device in data.get("BlockDeviceMappings") or ()]
        # A device without one is no volume of EBS.
        devices = [(name, ebs) for name, ebs in found if ebs]
        devices.sort(key=lambda device: device[0] != root)
        return cls(
            id=data["ImageId"],
            name=data.get("Name", ""),
            status=data.get("State", ""),
            metadata=tags_of(data),
            created=data.get("CreationDate", ""),
            devices=tuple(devices),
        )


class InstanceType(NamedTuple):
    """A type, such as ``t3.medium``."""

    name: str
    cores: int
    vcpus: int
    ram_mib: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> InstanceType:
        cpu = data.get("VCpuInfo") or {}
        vcpus = cpu.get("DefaultVCpus", 0)
        return cls(
            name=data["InstanceType"],
            cores=cpu.get("DefaultCores", vcpus),
            vcpus=vcpus,
            ram_mib=(data.get("MemoryInfo") or {}).get("SizeInMiB", 0),
        )


def _first_ipv6(interfaces: Iterable[Mapping[str, Any]]) -> str | None:
    """The first IPv6 address of the first interface."""
    for interface in interfaces:
        for address in interface.get("Ipv6Addresses") or ():
            found: str | None = address.get("Ipv6Address")
            return found
        return None
    return None
