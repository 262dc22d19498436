# SPDX-License-Identifier: Apache-2.0
"""Launch templates, instant fleets and dedicated hosts of the simulated region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.testing.aws.conftest import Caller

Refused = Callable[..., str]
TAGS = [{"Key": "a", "Value": "b"}]


def _template(caller: Caller, name: str = "np-template", **data: Any) -> str:
    specification = [{"ResourceType": "launch-template", "Tags": TAGS}]
    given = {"LaunchTemplateName": name, "LaunchTemplateData": {"KeyName": "zuul", **data}}
    answer = caller.ec2.create_launch_template(**given, TagSpecifications=specification)
    return str(answer["LaunchTemplate"]["LaunchTemplateId"])


def _fleet(caller: Caller, *overrides: dict[str, Any], spot: bool = False, **more: Any) -> dict[str, Any]:
    config = {
        "LaunchTemplateSpecification": {"LaunchTemplateName": "np-template", "Version": "$Latest"},
        "Overrides": [{"ImageId": caller.image_id, **override} for override in overrides],
    }
    answer: dict[str, Any] = caller.ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[config],
        TargetCapacitySpecification={
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        TagSpecifications=[{"ResourceType": "instance", "Tags": TAGS}],
        **more,
    )
    return answer


def test_templates(caller: Caller, refused: Refused) -> None:
    template_id = _template(caller)
    assert refused(_template, caller) == "InvalidLaunchTemplateName.AlreadyExistsException"
    describe, delete = caller.ec2.describe_launch_templates, caller.ec2.delete_launch_template
    (found,) = describe(Filters=[{"Name": "tag:a", "Values": ["b"]}], MaxResults=1)["LaunchTemplates"]
    assert (found["LaunchTemplateId"], found["LaunchTemplateName"], found["Tags"]) == (template_id, "np-template", TAGS)
    assert found["CreateTime"].timestamp() == caller.clock()
    assert describe(LaunchTemplateNames=["np-template"])["LaunchTemplates"] == [found]
    delete(LaunchTemplateId=template_id)
    assert refused(delete, LaunchTemplateId=template_id) == "InvalidLaunchTemplateId.NotFound"
    assert refused(describe, LaunchTemplateNames=["np-template"]) == "InvalidLaunchTemplateName.NotFoundException"


def test_a_fleet_takes_what_there_is(caller: Caller) -> None:
    """What the first type lacks is told in an answer that is no error; the next one is taken."""
    _template(caller, MetadataOptions={"HttpTokens": "required"})
    caller.simulator.change(capacity=[{"instance_type": "t3.*"}])
    answer = _fleet(caller, {"InstanceType": "t3.small"}, {"InstanceType": "m5.large"})
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["InsufficientInstanceCapacity"]
    (group,) = answer["Instances"]
    assert (group["InstanceType"], group["Lifecycle"]) == ("m5.large", "on-demand")
    (instance,) = caller.shown().values()
    assert group["InstanceIds"] == [instance["InstanceId"]]
    assert (instance["KeyName"], instance["MetadataOptions"]["HttpTokens"]) == ("zuul", "required")
    assert {tag["Key"] for tag in instance["Tags"]} == {"a", "aws:ec2:fleet-id"}
    caller.ec2.create_tags(Resources=[instance["InstanceId"]], Tags=[{"Key": "c", "Value": ""}])


def test_a_fleet_that_gets_nothing(caller: Caller) -> None:
    _template(caller)
    caller.simulator.change(quotas={"L-34B43A08": 1})
    answer = _fleet(caller, {"InstanceType": "t3.small"}, {"InstanceType": "q1.none"}, spot=True)
    assert answer["Instances"] == []
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["MaxSpotInstanceCountExceeded", "InvalidInstanceType"]


def test_priorities_strategies_and_tokens(caller: Caller, refused: Refused) -> None:
    _template(caller)
    types = ({"InstanceType": "t3.small", "Priority": 2.0}, {"InstanceType": "m5.large", "Priority": 1.0})
    first = _fleet(caller, *types, ClientToken="a", OnDemandOptions={"AllocationStrategy": "prioritized"})
    assert first["Instances"][0]["InstanceType"] == "m5.large"
    again = _fleet(caller, *types, ClientToken="a", OnDemandOptions={"AllocationStrategy": "prioritized"})
    assert again["Instances"] == first["Instances"]
    assert refused(_fleet, caller, types[0], ClientToken="a") == "IdempotentParameterMismatch"
    odd = {"SpotOptions": {"AllocationStrategy": "prioritized"}}
    assert refused(_fleet, caller, types[0], spot=True, **odd) == "InvalidParameterValue"


def test_a_fleet_without_its_template(caller: Caller, refused: Refused) -> None:
    code = "InvalidLaunchTemplateName.NotFoundException"
    assert refused(_fleet, caller, {"InstanceType": "t3.small"}) == code


def _allocate(caller: Caller, kind: str = "mac2.metal", **more: Any) -> str:
    given = {"InstanceType": kind, "AvailabilityZone": "us-east-1a", "Quantity": 1, "AutoPlacement": "off", **more}
    specification = [{"ResourceType": "dedicated-host", "Tags": TAGS}]
    return str(caller.ec2.allocate_hosts(**given, TagSpecifications=specification)["HostIds"][0])


def test_life_of_a_host(caller: Caller, refused: Refused) -> None:
    caller.simulator.change(host_seconds=5)
    with caller.simulator.cloud() as cloud:
        image = cloud.images.add("mac", architecture="arm64")
    host_id = _allocate(caller, ClientToken="h")
    assert _allocate(caller, ClientToken="h") == host_id
    assert refused(_allocate, caller, "m5.large", ClientToken="h") == "IdempotentParameterMismatch"
    placement = {"Tenancy": "host", "HostId": host_id, "Affinity": "host", "AvailabilityZone": "us-east-1a"}
    mine: dict[str, Any] = {"ImageId": image.id, "InstanceType": "mac2.metal", "Placement": placement}
    assert refused(caller.run, **mine) == "InvalidHostState"
    caller.clock.pass_seconds(5)
    (host,) = caller.ec2.describe_hosts(Filter=[{"Name": "tag-key", "Values": ["a"]}], MaxResults=5)["Hosts"]
    assert (host["State"], host["HostProperties"]["InstanceType"]) == ("available", "mac2.metal")
    instance = caller.run(**mine)[0]
    assert (instance["Placement"]["HostId"], instance["Placement"]["Tenancy"]) == (host_id, "host")
    assert refused(caller.run, **mine) == "InsufficientCapacityOnHost"

    def release() -> str | None:
        answer = caller.ec2.release_hosts(HostIds=[host_id])
        return answer["Unsuccessful"][0]["Error"]["Code"] if answer["Unsuccessful"] else None

    assert release() == "Client.InvalidHost.Occupied"
    caller.ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    caller.clock.pass_seconds(5)
    assert release() == "Client.HostMinAllocationPeriodUnexpired"
    caller.clock.pass_seconds(24 * 3600)
    assert release() is None
    assert caller.ec2.describe_hosts(HostIds=[host_id])["Hosts"][0]["State"] == "released"
    assert refused(caller.ec2.describe_hosts, HostIds=["h-00"]) == "InvalidHostID.NotFound"


@pytest.mark.parametrize(
    ("settings", "code"),
    [({"quotas": {"L-8B27377A": 1}}, "HostLimitExceeded"), ({"capacity": [{"room": 1}]}, "InsufficientHostCapacity")],
)
def test_limits_of_hosts(caller: Caller, refused: Refused, settings: Any, code: str) -> None:
    caller.simulator.change(**settings)
    _allocate(caller, "m5.large")
    assert refused(_allocate, caller, "m5.large") == code
