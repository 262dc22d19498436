# SPDX-License-Identifier: Apache-2.0
"""What launches send to AWS.

First what an instance is to be like, the arguments of RunInstances (AW-3, AW-4), then the same for a fleet of one
instance (AW-8, AW-9), then the calls for fleets and for dedicated hosts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.errors import AwsNotFound, meaning
from nodepool.driver.aws.facts import LaunchPlace
from nodepool.driver.aws.types import AwsImage, tag_list, tags_of
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudQuota, CloudRefused
from nodepool.driver.framework.key_schema import dynamic_value
from nodepool.driver.statemachine.instance import PROVIDER_KEY, foreign

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel
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


# What a fleet of one instance is to be like: launch template and arguments of CreateFleet (AW-8, AW-9). Pure functions.

TEMPLATE_PREFIX: Final = "nodepool-launch-template-"
MANAGED_KEY: Final = "nodepool_managed"
#: As of Nodepool 11: ``str(True)``.
MANAGED: Final = "True"
#: The device that most images have as their root.
_ROOT_DEVICE: Final = "/dev/sda1"
PRIORITIZED: Final = "prioritized"
LOWEST_PRICE: Final = "lowest-price"


def template_tags(provider: str) -> dict[str, str]:
    """Of the templates of a provider."""
    return {MANAGED_KEY: MANAGED, PROVIDER_KEY: provider}


def template_data(label: AwsLabel) -> dict[str, Any]:
    """What CreateFleet cannot be told otherwise."""
    data: dict[str, Any] = {"KeyName": label.key_name}
    if label.pool.security_group_id:
        data["SecurityGroupIds"] = [label.pool.security_group_id]
    volume = root_values(label)
    if volume:
        data["BlockDeviceMappings"] = [
            {"DeviceName": _ROOT_DEVICE, "Ebs": {"DeleteOnTermination": True, **volume}},
        ]
    if label.imdsv2:
        data["MetadataOptions"] = metadata_options(label.imdsv2)
    if label.userdata:
        data["UserData"] = base64.b64encode(label.userdata.encode()).decode()
    return data


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
    places: list[dict[str, Any]] = [{"SubnetId": subnet} for subnet in label.pool.subnet_ids] or [{}]
    overrides = [{"InstanceType": name, "ImageId": image_id, **place} for name in label.fleet_types for place in places]
    if label.fleet_strategy == PRIORITIZED:
        overrides = [{**override, "Priority": float(number)} for number, override in enumerate(overrides)]
    return {
        "ClientToken": token,
        "Type": "instant",
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
                "Overrides": overrides,
            }
        ],
        **_strategy(label.fleet_strategy or "", spot),
        "TagSpecifications": tag_specifications(tags, *TAGGED),
    }


def _strategy(strategy: str, spot: bool) -> dict[str, Any]:
    """Not every strategy is one of spot instances, and of instances on demand: the nearest is taken then."""
    if spot:
        chosen = "capacity-optimized-prioritized" if strategy == PRIORITIZED else strategy
        return {"SpotOptions": {"AllocationStrategy": chosen}}
    return {"OnDemandOptions": {"AllocationStrategy": PRIORITIZED if strategy == PRIORITIZED else LOWEST_PRICE}}


def instance_of_fleet(head: str, answer: Mapping[str, Any]) -> str:
    """The id of the instance of an answer of CreateFleet.

    :param head: whose call it was, and which.
    :raises CloudRefused: there is none: no room if one of the types may have some later, a limit if one of them waits
        for that, else the first error.
    """
    for group in answer.get("Instances") or ():
        for instance_id in group.get("InstanceIds") or ():
            return str(instance_id)
    return _raise(head, answer.get("Errors") or ())


def _hopelessness(error: Exception) -> int:
    return 0 if isinstance(error, CloudNoCapacity) else 1 if isinstance(error, CloudQuota) else 2


def _raise(head: str, told: Iterable[Mapping[str, Any]]) -> str:
    errors: dict[tuple[str, str], CloudRefused | CloudAway] = {}
    for error in told:
        code, text = str(error.get("ErrorCode", "")), str(error.get("ErrorMessage", ""))
        errors.setdefault((code, text), meaning(head, code, text, 200))
    if not errors:
        # What became of it, lists will show.
        raise CloudAway(f"{head}: the answer has neither an instance nor an error")
    # The first of the best kind.
    chosen = min(errors.values(), key=_hopelessness)
    others = [f"{code}: {text}" for (code, text), error in errors.items() if error is not chosen]
    if others:
        chosen.args = (f"{chosen}; of other types: {'; '.join(others)}", *chosen.args[1:])
    raise chosen


# `FleetClient`: calls of EC2 for fleets and launch templates.

_TEMPLATES_A_PAGE: Final = 200
_EXISTS: Final = "InvalidLaunchTemplateName.AlreadyExistsException"


class LaunchTemplate(NamedTuple):
    """One of ours."""

    id: str
    name: str
    created: datetime | None


class FleetClient:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has."""

    def __init__(self, transport: t.AwsTransport) -> None:
        self._transport = transport

    def create_fleet(self, arguments: dict[str, Any], permit: Callable[[], None]) -> str:
        """Make a fleet of one instance; returns the id of the instance."""
        answer = self._transport.call("ec2", t.CHANGE, "CreateFleet", arguments, permit)
        return instance_of_fleet(f"Provider {self._transport.provider}: CreateFleet failed", answer)

    def create_template(self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """Make a launch template, unless there is one of the name."""
        arguments = {
            "ClientToken": name[-64:],
            "LaunchTemplateName": name,
            "LaunchTemplateData": data,
            "TagSpecifications": tag_specifications(tags, "launch-template"),
        }
        try:
            self._transport.call("ec2", t.CHANGE, "CreateLaunchTemplate", arguments)
        except CloudRefused as error:
            if error.code != _EXISTS:
                raise

    def templates(self, provider: str) -> list[LaunchTemplate]:
        """Those that launchers made for a provider, but for those of another installation (D-10)."""
        filters = [
            {"Name": f"tag:{MANAGED_KEY}", "Values": [MANAGED]},
            {"Name": f"tag:{PROVIDER_KEY}", "Values": [provider]},
        ]
        given = {"Filters": filters, "MaxResults": _TEMPLATES_A_PAGE}
        found = self._transport.pages("ec2", t.READ, "DescribeLaunchTemplates", given, "LaunchTemplates")
        return [
            LaunchTemplate(data["LaunchTemplateId"], data.get("LaunchTemplateName", ""), data.get("CreateTime"))
            for data in found
            if foreign({tag["Key"]: tag["Value"] for tag in data.get("Tags") or ()}) is None
        ]

    def delete_template(self, template_id: str) -> None:
        self._transport.call("ec2", t.CHANGE, "DeleteLaunchTemplate", {"LaunchTemplateId": template_id})


# `HostClient`: calls of EC2 for dedicated hosts (AW-6).

AVAILABLE: Final = "available"
#: States of hosts that will never work, and of those that are gone.
FAILED: Final = frozenset({"permanent-failure", "released", "released-permanent-failure"})
RELEASED: Final = frozenset({"released", "released-permanent-failure"})
#: AWS keeps hosts of macOS so long after their allocation.
MAC_TIME: Final = timedelta(hours=24)
_HOSTS_A_PAGE: Final = 500


class AwsHost(NamedTuple):
    """A dedicated host."""

    id: str
    status: str
    metadata: Mapping[str, str]
    type: str
    allocated: datetime | None
    #: Are there instances on it?
    used: bool

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AwsHost:
        return cls(
            id=data["HostId"],
            status=data.get("State", ""),
            metadata=tags_of(data),
            type=(data.get("HostProperties") or {}).get("InstanceType", ""),
            allocated=data.get("AllocationTime"),
            used=bool(data.get("Instances")),
        )

    def may_be_released(self, now: datetime) -> bool:
        """Would AWS let it go? It keeps those with instances, those that it cleans, and young ones of macOS."""
        if self.used or self.status in RELEASED or self.status in ("pending", "configuring"):
            return False
        young = self.allocated is not None and now - self.allocated < MAC_TIME
        return not (young and self.type.startswith("mac"))


class HostClient:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has."""

    def __init__(self, transport: t.AwsTransport) -> None:
        self._transport = transport

    def allocate(self, place: LaunchPlace, tags: Mapping[str, str], token: str, permit: Callable[[], None]) -> str:
        """Allocate one host in a zone; returns its id.

        :param token: what AWS knows the call by when it is sent again.
        """
        arguments = {
            "ClientToken": token,
            "InstanceType": place.instance_type,
            "AvailabilityZone": place.zone,
            "Quantity": 1,
            "AutoPlacement": "off",
            "HostRecovery": "off",
            "HostMaintenance": "off",
            "TagSpecifications": tag_specifications(tags, "dedicated-host"),
        }
        answer = self._transport.call("ec2", t.CHANGE, "AllocateHosts", arguments, permit)
        if not answer.get("HostIds"):
            # What became of it, lists will show.
            raise CloudAway(f"Provider {self._transport.provider}: AllocateHosts failed: the answer has no host")
        return str(answer["HostIds"][0])

    def host(self, host_id: str) -> AwsHost:
        """One host, as it is now; raises AwsNotFound."""
        answer = self._transport.call("ec2", t.READ, "DescribeHosts", {"HostIds": [host_id]})
        if not answer.get("Hosts"):
            raise AwsNotFound(f"there is no host {host_id}", code="InvalidHostID.NotFound")
        return AwsHost.of(answer["Hosts"][0])

    def hosts(self) -> list[AwsHost]:
        """All that have the tag of a launcher."""
        given = {"Filter": [{"Name": "tag-key", "Values": [PROVIDER_KEY]}], "MaxResults": _HOSTS_A_PAGE}
        return [AwsHost.of(data) for data in self._transport.pages("ec2", t.READ, "DescribeHosts", given, "Hosts")]

    def release(self, host_id: str) -> None:
        """Give a host back. AWS tells of a failure in an answer that looks like a success."""
        answer = self._transport.call("ec2", t.CHANGE, "ReleaseHosts", {"HostIds": [host_id]})
        for failed in answer.get("Unsuccessful") or ():
            told = failed.get("Error") or {}
            head = f"Provider {self._transport.provider}: ReleaseHosts failed for {failed.get('ResourceId')}"
            raise meaning(head, str(told.get("Code", "")), str(told.get("Message", "")), 200)
