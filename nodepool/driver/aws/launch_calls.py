# SPDX-License-Identifier: Apache-2.0
"""What launches send to AWS.

First what an instance is to be like, the arguments of RunInstances (AW-3, AW-4), then the same for a fleet of one
instance (AW-8, AW-9). Pure functions.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.aws.types import ROOT_DEVICE, AwsImage, filled, tag_specifications
from nodepool.driver.config import dynamic_values
from nodepool.driver.statemachine.instance import PROVIDER_KEY

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel
    from nodepool.driver.aws.facts import LaunchPlace
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: What is made with an instance, and says whose it is from its first moment on.
TAGGED: Final = ("instance", "volume")


def instance_tags(
    hostname: str, label: AwsLabel, metadata: Mapping[str, str], request: NodeRequest | None, log: Log
) -> dict[str, str]:
    """Tags: the label's, the dynamic ones, what says whose it is, and the name; the later one wins (CM-2)."""
    return {**label.tags, **dynamic_values(label, "dynamic-tags", request, log), **metadata, "Name": hostname}


def with_tags(arguments: Mapping[str, Any], tags: Mapping[str, str], token: str) -> dict[str, Any]:
    """Arguments with the tags of what is made.

    :param token: what AWS knows the creation by when it is sent again.
    """
    return {**arguments, "ClientToken": token, "TagSpecifications": tag_specifications(tags, *TAGGED)}


def run_arguments(label: AwsLabel, place: LaunchPlace, image: AwsImage, host_id: str | None = None) -> dict[str, Any]:
    """All but the number of instances, their tags, and the token.

    :param host_id: of the dedicated host that it is to run on (AW-5).
    """
    pool = label.pool
    interface = {
        "DeviceIndex": 0,
        "AssociatePublicIpAddress": pool.public_ipv4,
        "SubnetId": place.subnet_id,
        "Groups": [pool.security_group_id] if pool.security_group_id else None,
        "Ipv6AddressCount": 1 if pool.public_ipv6 else None,
    }
    on_host = {} if host_id is None else {"Tenancy": "host", "HostId": host_id, "Affinity": "host"}
    spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    return filled(
        {
            "ImageId": image.id,
            "InstanceType": place.instance_type,
            "KeyName": label.key_name,
            "EbsOptimized": label.ebs_optimized,
            "NetworkInterfaces": [filled(interface)],
            "BlockDeviceMappings": block_devices(label, image),
            # botocore encodes it.
            "UserData": label.userdata,
            "IamInstanceProfile": filled(
                {"Name": label.profile_name, "Arn": None if label.profile_name else label.profile_arn}
            ),
            "Placement": filled({"AvailabilityZone": place.zone, **on_host}),
            "MetadataOptions": metadata_options(label),
            "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot} if place.spot else None,
        }
    )


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


def metadata_options(label: AwsLabel) -> dict[str, str]:
    return {"HttpTokens": label.imdsv2, "HttpEndpoint": "enabled"} if label.imdsv2 else {}


def root_values(label: AwsLabel) -> dict[str, Any]:
    """What a label says of the root volume."""
    return filled(
        {
            "VolumeSize": label.volume_size,
            "VolumeType": label.volume_type,
            "Iops": label.iops,
            "Throughput": label.throughput,
        }
    )


# What a fleet of one instance is to be like: launch template and arguments of CreateFleet (AW-8, AW-9).

TEMPLATE_PREFIX: Final = "nodepool-launch-template-"
MANAGED_KEY: Final = "nodepool_managed"
#: As of Nodepool 11: ``str(True)``.
MANAGED: Final = "True"
PRIORITIZED: Final = "prioritized"
LOWEST_PRICE: Final = "lowest-price"


def template_tags(provider: str) -> dict[str, str]:
    """Of the templates of a provider."""
    return {MANAGED_KEY: MANAGED, PROVIDER_KEY: provider}


def template_data(label: AwsLabel) -> dict[str, Any]:
    """What CreateFleet cannot be told otherwise."""
    group, volume = label.pool.security_group_id, root_values(label)
    root = {"DeviceName": ROOT_DEVICE, "Ebs": {"DeleteOnTermination": True, **volume}}
    return filled(
        {
            "KeyName": label.key_name,
            "SecurityGroupIds": [group] if group else None,
            "BlockDeviceMappings": [root] if volume else None,
            "MetadataOptions": metadata_options(label),
            "UserData": base64.b64encode(label.userdata.encode()).decode() if label.userdata else None,
        }
    )


def template_name(data: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    """The same for the same template, and never that of another provider."""
    text = json.dumps({"data": data, "tags": tags}, sort_keys=True)
    return TEMPLATE_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def fleet_arguments(
    label: AwsLabel, image_id: str, template: str, tags: Mapping[str, str], token: str, *, spot: bool
) -> dict[str, Any]:
    """Arguments of CreateFleet for one instance, at once.

    :param template: name of the launch template.
    """
    assert label.fleet_types is not None
    first = label.fleet_strategy == PRIORITIZED
    places: list[dict[str, Any]] = [{"SubnetId": subnet} for subnet in label.pool.subnet_ids] or [{}]
    overrides = [{"InstanceType": name, "ImageId": image_id, **place} for name in label.fleet_types for place in places]
    if first:
        overrides = [{**override, "Priority": float(number)} for number, override in enumerate(overrides)]
    # EC2 does not know every strategy for both kinds: the nearest is taken then.
    if spot:
        kind, options = "spot", "SpotOptions"
        strategy = "capacity-optimized-prioritized" if first else label.fleet_strategy
    else:
        kind, options, strategy = "on-demand", "OnDemandOptions", PRIORITIZED if first else LOWEST_PRICE
    specification = {"LaunchTemplateName": template, "Version": "$Latest"}
    return {
        "ClientToken": token,
        "Type": "instant",
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": kind},
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
        options: {"AllocationStrategy": strategy},
        "TagSpecifications": tag_specifications(tags, *TAGGED),
    }
