# SPDX-License-Identifier: Apache-2.0
"""What a RunInstances asks for, checked as AWS checks it."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from simulators.aws.filters import tags_for
from simulators.aws.images import SimulatedImage
from simulators.aws.instance_types import SimulatedType
from simulators.aws.network import SimulatedSubnet
from simulators.base.messages import ApiError, Json

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

#: Longest user data, in bytes.
MOST_USER_DATA: Final = 16384
_NAMED_TWICE: Final = (
    "Network interfaces and an instance-level {} may not be specified on the same request",
    {"SubnetId": "subnet ID", "SecurityGroupIds": "security groups", "PrivateIpAddress": "private address"},
)


@dataclass(frozen=True)
class RunDevice:
    """A volume that comes with an instance."""

    name: str
    size_gib: int
    type: str
    snapshot_id: str
    iops: int
    throughput: int
    delete_on_termination: bool


@dataclass(frozen=True)
class RunSpec:
    """What each of the instances is to be like. ``zone`` is that of the subnet."""

    image: SimulatedImage
    type: SimulatedType
    subnet: SimulatedSubnet
    groups: tuple[str, ...]
    key_name: str | None
    public_ipv4: bool
    ipv6_count: int
    devices: tuple[RunDevice, ...]
    tags: dict[str, str]
    volume_tags: dict[str, str]
    spot: bool
    token: str
    user_data: bytes
    profile: str | None
    ebs_optimized: bool
    tenancy: str
    host_id: str | None
    http_tokens: str

    @property
    def zone(self) -> str:
        return self.subnet.zone


def read_run_spec(cloud: Region, arguments: Json) -> RunSpec:
    """Reads the arguments of a RunInstances.

    :raises ApiError: 400, AWS would refuse them.
    """
    interface = _interface(arguments)
    if "ImageId" not in arguments:
        raise ApiError(400, "The request must contain the parameter ImageId", "MissingParameter")
    image = cloud.images.usable(arguments["ImageId"])
    kind = cloud.types.get(arguments.get("InstanceType", "m5.large"))
    if kind.architecture != image.architecture:
        text = (
            f"The architecture '{kind.architecture}' of the specified instance type does not match the architecture "
            f"'{image.architecture}' of the specified AMI. Specify an instance type and an AMI that have matching "
            "architectures, and try again."
        )
        raise ApiError(400, text, "InvalidParameterValue")
    placement = arguments.get("Placement", {})
    spot = arguments.get("InstanceMarketOptions", {}).get("MarketType") == "spot"
    subnet = _subnet(cloud, interface, placement.get("AvailabilityZone"), kind, spot)
    groups = tuple(interface.get("Groups", ()))
    cloud.network.check_groups(list(groups))
    if "KeyName" in arguments:
        cloud.network.check_key(arguments["KeyName"])
    profile = arguments.get("IamInstanceProfile", {})
    tag_specifications = arguments.get("TagSpecifications", ())
    return RunSpec(
        image=image,
        type=kind,
        subnet=subnet,
        groups=groups or (next(iter(cloud.network.groups)),),
        key_name=arguments.get("KeyName"),
        public_ipv4=interface.get("AssociatePublicIpAddress", subnet.default),
        ipv6_count=interface.get("Ipv6AddressCount", 0),
        devices=tuple(_devices(image, arguments.get("BlockDeviceMappings", ()))),
        tags=tags_for("instance", tag_specifications),
        volume_tags=tags_for("volume", tag_specifications),
        spot=spot,
        token=arguments.get("ClientToken", ""),
        user_data=_user_data(arguments.get("UserData", "")),
        profile=profile.get("Arn") or profile.get("Name"),
        ebs_optimized=arguments.get("EbsOptimized", False),
        tenancy=placement.get("Tenancy", "default"),
        host_id=placement.get("HostId"),
        http_tokens=arguments.get("MetadataOptions", {}).get("HttpTokens", "optional"),
    )


def _interface(arguments: Json) -> Json:
    """The first network interface, also where its properties stand at the top level."""
    interfaces = arguments.get("NetworkInterfaces")
    if not interfaces:
        own = {"SubnetId": arguments.get("SubnetId"), "Groups": arguments.get("SecurityGroupIds")}
        return {key: value for key, value in own.items() if value is not None}
    text, names = _NAMED_TWICE
    for key, name in names.items():
        if key in arguments:
            raise ApiError(400, text.format(name), "InvalidParameterCombination")
    first: Json = interfaces[0]
    if "DeviceIndex" not in first:
        raise ApiError(400, "Each network interface requires a device index.", "InvalidParameterValue")
    return first


def _subnet(cloud: Region, interface: Json, zone: str | None, kind: SimulatedType, spot: bool) -> SimulatedSubnet:
    if "SubnetId" in interface:
        subnet = cloud.network.subnet(interface["SubnetId"])
        if zone not in (None, subnet.zone):
            text = f"The availability zone {zone} does not match that of the subnet {subnet.id}, {subnet.zone}"
            raise ApiError(400, text, "InvalidParameterValue")
    else:
        offered = cloud.network.default_subnets(zone)
        # AWS chooses a zone that has the type, and room for it.
        subnet = max(
            offered,
            key=lambda one: (
                kind.in_zone(one.zone),
                cloud.instances.capacity(kind.name, one.zone, spot) > 0,
                one.addresses.free,
            ),
        )
    if not kind.in_zone(subnet.zone):
        there = ", ".join(name for name in cloud.core.zones if kind.in_zone(name))
        text = (
            f"Your requested instance type ({kind.name}) is not supported in your requested Availability Zone "
            f"({subnet.zone}). Please retry your request by not specifying an Availability Zone or choosing {there}."
        )
        raise ApiError(400, text, "Unsupported")
    return subnet


def _devices(image: SimulatedImage, mappings: Any) -> list[RunDevice]:
    """The volumes of the image, changed by those of the call, and what the call adds."""
    wanted: dict[str, Json] = {}
    snapshots: dict[str, Json] = {}
    for device in image.devices:
        if ebs := device.get("Ebs"):
            wanted[device["DeviceName"]] = dict(ebs)
            snapshots[ebs.get("SnapshotId", "")] = ebs
    for mapping in mappings:
        name = mapping.get("DeviceName", "")
        ebs = mapping.get("Ebs", {})
        if "Encrypted" in ebs and (ebs.get("SnapshotId") or name in wanted):
            text = f"the encrypted flag cannot be specified since device {name} has a snapshot specified."
            raise ApiError(400, text, "InvalidBlockDeviceMapping")
        wanted[name] = wanted.get(name, {}) | ebs
    devices = []
    for name, ebs in wanted.items():
        snapshot_id = ebs.get("SnapshotId", "")
        least = int(snapshots.get(snapshot_id, {}).get("VolumeSize", 1))
        size = int(ebs.get("VolumeSize", least))
        if size < least:
            text = f"Volume of size {size}GB is smaller than snapshot '{snapshot_id}', expect size >= {least}GB"
            raise ApiError(400, text, "InvalidBlockDeviceMapping")
        devices.append(
            RunDevice(
                name,
                size,
                ebs.get("VolumeType", "gp2"),
                snapshot_id,
                ebs.get("Iops", 0),
                ebs.get("Throughput", 0),
                ebs.get("DeleteOnTermination", True),
            )
        )
    return devices


def _user_data(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, "Invalid BASE64 encoding of user data.", "InvalidUserData.Malformed") from None
    if len(data) > MOST_USER_DATA:
        raise ApiError(400, "User data is limited to 16384 bytes", "InvalidParameterValue")
    return data
