# SPDX-License-Identifier: Apache-2.0
"""Tests of fleets: `nodepool.driver.aws.launch_calls`, `fleet_creation`, `fleet_client` and `launch_templates`."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodepool.clock import wall_time
from nodepool.driver.aws import launch_calls
from nodepool.driver.aws.launches import SPARED
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudQuota, CloudRefused
from nodepool.exceptions import CloudUnavailableException
from tests.unit.driver.aws.support import PROVIDER, TAGS, Rig, error, instance, section

FLEET = {"instance-types": ["t3.medium", "t3.large"], "allocation-strategy": "prioritized"}
MADE = {"FleetId": "fleet-1", "Instances": [{"InstanceIds": ["i-1"], "InstanceType": "t3.large"}], "Errors": []}


def fleet_section(label: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    data = section({"fleet": FLEET, **(label or {})}, **more)
    del data["pools"][0]["labels"][0]["instance-type"]
    return data


def rig_of(label: dict[str, Any] | None = None, **more: Any) -> Rig:
    rig = Rig(fleet_section(label, **more))
    rig.region.answers |= {"create_fleet": MADE, "create_launch_template": {}}
    return rig


def failed(*codes: str) -> dict[str, Any]:
    """An answer of CreateFleet without an instance; its HTTP status is 200."""
    return {"FleetId": "f", "Instances": [], "Errors": [{"ErrorCode": code, "ErrorMessage": "m"} for code in codes]}


def test_launch() -> None:
    """AW-8, AW-10: one instance at once; the node says that it is of a fleet, and uses what its real type uses."""
    rig = rig_of({"use-spot": True}, pool={"subnet-id": ["a", "b"]})
    creation = rig.creation()
    creation.advance()
    creation.advance()
    assert creation.external_id == {"instance": "i-1"}
    sent = rig.region.last("create_fleet")
    template = rig.region.last("create_launch_template")
    assert sent["LaunchTemplateConfigs"] == [
        {
            "LaunchTemplateSpecification": {
                "LaunchTemplateName": template["LaunchTemplateName"],
                "Version": "$Latest",
            },
            "Overrides": [
                {"InstanceType": name, "ImageId": "ami-1", "SubnetId": subnet, "Priority": number}
                for number, (name, subnet) in enumerate(
                    [("t3.medium", "a"), ("t3.medium", "b"), ("t3.large", "a"), ("t3.large", "b")]
                )
            ],
        }
    ]
    assert (sent["Type"], sent["TargetCapacitySpecification"]) == (
        "instant",
        {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
    )
    kinds = {told["ResourceType"]: told["Tags"] for told in sent["TagSpecifications"]}
    assert set(kinds) == {"instance", "volume"}
    assert all(tag in kinds["instance"] for tag in TAGS)
    rig.adapter.facts.instance_type("t3.medium")
    rig.show(instance(InstanceLifecycle="spot"))
    made = creation.advance()
    assert made.node_properties == {"fleet": True, "spot": True}
    assert made.getQuotaInformation().get_resources()["cores"] == 1


def test_token() -> None:
    """AW-8: what is sent again after a lost answer is the same call."""
    rig = rig_of()
    rig.region.answers["create_fleet"] = [error("InternalError", status=500), MADE]
    creation = rig.creation()
    for seconds in (0, 0, 5, 0):
        rig.clock.now += seconds
        creation.advance()
    first, second = [arguments for name, arguments in rig.region.calls if name == "create_fleet"]
    assert first == second
    assert len(first["ClientToken"]) <= 64
    assert creation.external_id == {"instance": "i-1"}


@pytest.mark.parametrize(
    ("strategy", "spot", "expected"),
    [
        ("prioritized", True, {"SpotOptions": {"AllocationStrategy": "capacity-optimized-prioritized"}}),
        ("diversified", True, {"SpotOptions": {"AllocationStrategy": "diversified"}}),
        ("prioritized", False, {"OnDemandOptions": {"AllocationStrategy": "prioritized"}}),
        ("capacity-optimized", False, {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}),
    ],
)
def test_strategies(strategy: str, spot: bool, expected: dict[str, Any]) -> None:
    """AW-8: EC2 does not know each of them for both kinds."""
    rig = rig_of({"use-spot": spot, "fleet": {**FLEET, "allocation-strategy": strategy}})
    rig.creation().advance()
    sent = rig.region.last("create_fleet")
    assert {name: sent[name] for name in ("SpotOptions", "OnDemandOptions") if name in sent} == expected
    overrides = sent["LaunchTemplateConfigs"][0]["Overrides"]
    assert all(("Priority" in override) == (strategy == "prioritized") for override in overrides)


@pytest.mark.parametrize(
    ("codes", "expected", "says"),
    [
        (["VcpuLimitExceeded"], CloudQuota, "VcpuLimitExceeded: m"),
        (
            ["VcpuLimitExceeded", "InsufficientInstanceCapacity"],
            CloudNoCapacity,
            "of other types: VcpuLimitExceeded: m",
        ),
        (["InvalidParameterValue", "VolumeLimitExceeded"], CloudQuota, "of other types: InvalidParameterValue: m"),
        (["InvalidKeyPair.NotFound", "OtherError"], CloudRefused, "InvalidKeyPair.NotFound: m; correct key-name"),
        ([], CloudAway, "neither an instance nor an error"),
    ],
)
def test_errors_in_the_answer(codes: list[str], expected: type[Exception], says: str) -> None:
    """AW-16: an answer without an instance has the errors of all types, which mean what they mean elsewhere."""
    with pytest.raises(expected) as raised:
        launch_calls.instance_of_fleet("CreateFleet failed", failed(*codes))
    assert says in str(raised.value)


def test_quota() -> None:
    """AW-16: a limit is no failed attempt."""
    rig = rig_of()
    rig.region.answers["create_fleet"] = failed("VcpuLimitExceeded")
    with pytest.raises(CloudQuota):
        rig.creation().advance()


def test_spot_fallback() -> None:
    """No spot instance of any type: one on demand, and no attempt is spent; the next launch does not ask for spot."""
    rig = rig_of({"use-spot": True, "spot-fallback": True})
    rig.region.answers["create_fleet"] = [failed("InsufficientInstanceCapacity"), MADE]
    creation = rig.creation()
    creation.advance()
    assert creation.external_id == {"instance": "i-1"}
    rig.creation().advance()
    sent = [arguments for name, arguments in rig.region.calls if name == "create_fleet"]
    kinds = [arguments["TargetCapacitySpecification"]["DefaultTargetCapacityType"] for arguments in sent]
    assert kinds == ["spot", "on-demand", "on-demand"]
    assert len({arguments["ClientToken"] for arguments in sent[:2]}) == 2


def test_answer_without_anything() -> None:
    """What became of it lists show."""
    rig = rig_of()
    rig.region.answers["create_fleet"] = failed()
    creation = rig.creation()
    for seconds in (0, 0, 5, 0, 5, 0):
        rig.clock.now += seconds
        creation.advance()
    assert creation.state == "searching"
    assert isinstance(creation._lost, CloudUnavailableException)


def test_template() -> None:
    """AW-9: what it has, and its name: of the content and the provider."""
    label = {"volume-size": 40, "volume-type": "gp3", "imdsv2": "required", "userdata": "#!/bin/sh\n"}
    rig = rig_of(label, pool={"security-group-id": "sg-1"})
    for _ in range(2):
        rig.creation().advance()
    assert rig.region.count("create_launch_template") == 1
    made = rig.region.last("create_launch_template")
    assert made["LaunchTemplateData"] == {
        "KeyName": "zuul",
        "SecurityGroupIds": ["sg-1"],
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/sda1",
                "Ebs": {"DeleteOnTermination": True, "VolumeSize": 40, "VolumeType": "gp3"},
            }
        ],
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "UserData": base64.b64encode(b"#!/bin/sh\n").decode(),
    }
    assert made["TagSpecifications"] == [
        {
            "ResourceType": "launch-template",
            "Tags": [
                {"Key": "nodepool_managed", "Value": "True"},
                {"Key": "nodepool_provider_name", "Value": PROVIDER},
            ],
        }
    ]
    name, data = made["LaunchTemplateName"], made["LaunchTemplateData"]
    assert name == launch_calls.template_name(data, launch_calls.template_tags(PROVIDER))
    assert name != launch_calls.template_name(data, launch_calls.template_tags("other"))
    assert name.startswith("nodepool-launch-template-")
    assert len(made["ClientToken"]) <= 64


def test_template_of_an_earlier_launcher() -> None:
    """AW-9."""
    rig = rig_of()
    rig.region.answers["create_launch_template"] = error("InvalidLaunchTemplateName.AlreadyExistsException")
    creation = rig.creation()
    creation.advance()
    assert creation.external_id == {"instance": "i-1"}


def test_template_that_cannot_be_made() -> None:
    """It is tried again by the next attempt."""
    rig = rig_of()
    rig.region.answers["create_launch_template"] = error("InvalidKeyPair.NotFound")
    for calls in (1, 2):
        with pytest.raises(CloudRefused, match="correct key-name"):
            rig.creation().advance()
        assert rig.region.count("create_launch_template") == calls
    assert rig.region.count("create_fleet") == 0


def test_template_that_somebody_removed() -> None:
    """The next attempt makes it again."""
    rig = rig_of()
    rig.region.answers["create_fleet"] = error("InvalidLaunchTemplateName.NotFoundException")
    for calls in (1, 2):
        with pytest.raises(CloudRefused):
            rig.creation().advance()
        assert rig.region.count("create_launch_template") == calls


def test_templates_that_no_label_uses() -> None:
    """AW-9: they are removed; not those of others, and not young ones: another launcher may use these."""
    rig = rig_of()
    rig.creation().advance()
    used = rig.region.last("create_launch_template")["LaunchTemplateName"]
    now = datetime.fromtimestamp(wall_time(), UTC)
    old = now - SPARED - timedelta(minutes=1)

    def template(number: int, name: str, created: datetime | None) -> dict[str, Any]:
        return {"LaunchTemplateId": f"lt-{number}", "LaunchTemplateName": name, "CreateTime": created}

    prefix = launch_calls.TEMPLATE_PREFIX
    rig.region.answers["describe_launch_templates"] = {
        "LaunchTemplates": [
            template(1, used, old),
            template(2, f"{prefix}old", old),
            template(3, f"{prefix}new", now),
            template(4, "somebody's", old),
            template(5, f"{prefix}gone", old),
            template(6, f"{prefix}odd", None),
        ]
    }
    rig.region.answers["delete_launch_template"] = [{}, error("InvalidLaunchTemplateId.NotFound")]
    assert "launchtemplate" not in [resource.type for resource in rig.adapter.listResources()]
    deleted = [arguments for name, arguments in rig.region.calls if name == "delete_launch_template"]
    assert deleted == [{"LaunchTemplateId": "lt-2"}, {"LaunchTemplateId": "lt-5"}]
    assert rig.region.last("describe_launch_templates")["Filters"] == [
        {"Name": "tag:nodepool_managed", "Values": ["True"]},
        {"Name": "tag:nodepool_provider_name", "Values": [PROVIDER]},
    ]
    list(rig.adapter.listResources())
    assert rig.region.count("describe_launch_templates") == 1, "once an hour"


def test_need() -> None:
    """AW-11: before the launch nobody knows the type."""
    rig = rig_of({"volume-type": "gp3"})
    assert rig.adapter.getQuotaForLabel(rig.label).get_resources() == {"instances": 1, "cores": 0, "ram": 0}
