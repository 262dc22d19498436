# SPDX-License-Identifier: Apache-2.0
"""What an instance is to be like: the arguments of RunInstances (AW-3, AW-4). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.aws.types import AwsImage, tag_list
from nodepool.driver.framework.dynamic_values import dynamic_value

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel
    from nodepool.driver.aws.places import LaunchPlace
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: What is made with an instance, and says whose it is from its first moment on.
TAGGED: Final = ("instance", "volume")


def instance_tags(
    hostname: str, label: AwsLabel, metadata: Mapping[str, str], request: NodeRequest | None, log: Log
) -> dict[str, str]:
    """Tags: the label's, the dynamic ones, what says whose it is, and the name; the later one wins (CM-2)."""
    tags = dict(label.tags)
    for name, template in label.dynamic_tags.items():
        value = dynamic_value(template, request)
        if value is None:
            log.error("Label %s: dynamic-tags: %s cannot be formatted; it is left out", label.name, name)
        else:
            tags[name] = value
    return {**tags, **metadata, "Name": hostname}


def with_tags(arguments: Mapping[str, Any], tags: Mapping[str, str], token: str) -> dict[str, Any]:
    """Arguments with the tags of what is made.

    :param token: what AWS knows the creation by when it is sent again.
    """
    return {**arguments, "ClientToken": token, "TagSpecifications": tag_specifications(tags, *TAGGED)}


def tag_specifications(tags: Mapping[str, str], *kinds: str) -> list[dict[str, Any]]:
    """Tags that things of these kinds have from their first moment on."""
    return [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds]


def run_arguments(label: AwsLabel, place: LaunchPlace, image: AwsImage, host_id: str | None = None) -> dict[str, Any]:
    """All but the number of instances, their tags, and the token.

    :param host_id: of the dedicated host that it is to run on (AW-5).
    """
    pool = label.pool
    interface: dict[str, Any] = {"DeviceIndex": 0, "AssociatePublicIpAddress": pool.public_ipv4}
    if place.subnet_id:
        interface["SubnetId"] = place.subnet_id
    if pool.security_group_id:
        interface["Groups"] = [pool.security_group_id]
    if pool.public_ipv6:
        interface["Ipv6AddressCount"] = 1
    arguments: dict[str, Any] = {
        "ImageId": image.id,
        "InstanceType": place.instance_type,
        "KeyName": label.key_name,
        "EbsOptimized": label.ebs_optimized,
        "NetworkInterfaces": [interface],
    }
    if image.devices:
        arguments["BlockDeviceMappings"] = block_devices(label, image)
    if label.userdata:
        # botocore encodes it.
        arguments["UserData"] = label.userdata
    if label.profile_name:
        arguments["IamInstanceProfile"] = {"Name": label.profile_name}
    elif label.profile_arn:
        arguments["IamInstanceProfile"] = {"Arn": label.profile_arn}
    placement: dict[str, str] = {}
    if place.zone:
        placement["AvailabilityZone"] = place.zone
    if host_id is not None:
        placement |= {"Tenancy": "host", "HostId": host_id, "Affinity": "host"}
    if placement:
        arguments["Placement"] = placement
    if label.imdsv2:
        arguments["MetadataOptions"] = metadata_options(label.imdsv2)
    if place.spot:
        arguments["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    return arguments


def block_devices(label: AwsLabel, image: AwsImage) -> list[dict[str, Any]]:
    """The volumes of the image, all of which go with the instance; the root as the label wants it.

    Released Nodepool says nothing of other volumes than the root: those would stay.
    """
    devices = []
    for position, (name, ebs) in enumerate(image.devices):
        # Whether it is encrypted says the snapshot: AWS refuses both.
        kept = {key: value for key, value in ebs.items() if key != "Encrypted"}
        wanted = root_values(label) if position == 0 else {}
        devices.append({"DeviceName": name, "Ebs": {**kept, "DeleteOnTermination": True, **wanted}})
    return devices


def metadata_options(tokens: str) -> dict[str, str]:
    return {"HttpTokens": tokens, "HttpEndpoint": "enabled"}


def root_values(label: AwsLabel) -> dict[str, Any]:
    """What a label says of the root volume."""
    wanted = {
        "VolumeSize": label.volume_size,
        "VolumeType": label.volume_type,
        "Iops": label.iops,
        "Throughput": label.throughput,
    }
    return {name: value for name, value in wanted.items() if value}
