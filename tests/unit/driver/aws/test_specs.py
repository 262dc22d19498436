# SPDX-License-Identifier: Apache-2.0
"""What is sent for a configuration, and what answers mean: pure tables (AW-3, AW-4, AW-8 to AW-10, AW-17).

Each body is valid by botocore's models of the services, too.
"""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest
from botocore.validate import ParamValidator

from nodepool.driver.aws.facts import places_of
from nodepool.driver.aws.image_store import (
    image_tags,
    import_arguments,
    metadata_of_key,
    object_tagging,
    provider_prefix,
    registration,
)
from nodepool.driver.aws.instances import AwsInstances, external_id, instance_of
from nodepool.driver.aws.launch_calls import (
    fleet_arguments,
    instance_tags,
    run_arguments,
    template_data,
    template_name,
    template_tags,
    with_tags,
)
from nodepool.driver.aws.types import AwsHost, AwsImage, AwsRecord
from nodepool.model.quota import QuotaInformation
from nodepool.model.request import NodeRequest
from tests.unit.driver.aws import support as aws
from tests.unit.driver.aws.support import rows


def label_of(label: dict[str, Any] | None = None, **pool: Any) -> Any:
    given = {key.replace("_", "-"): value for key, value in pool.items()}
    return aws.load(aws.section(label, pool=given)).pools["main"].labels["small"]


def assert_valid(method: str, arguments: dict[str, Any]) -> None:
    report = ParamValidator().validate(arguments, aws.shapes()[method])
    assert not report.has_errors(), report.generate_report()


# -- instances --

ROOT: Any = {
    "DeviceName": "/dev/xvda",
    "Ebs": {"SnapshotId": "snap-1", "VolumeSize": 8, "VolumeType": "gp2", "DeleteOnTermination": True},
}
#: Whether it is encrypted its snapshot says.
OTHER = {"DeviceName": "/dev/sdb", "Ebs": {"SnapshotId": "snap-2", "DeleteOnTermination": True}}
TAGGED = [{"ResourceType": kind, "Tags": [{"Key": "a", "Value": "b"}]} for kind in ("instance", "volume")]
LEAST = {
    "ClientToken": "token-1",
    "ImageId": "ami-1",
    "InstanceType": "t3.medium",
    "KeyName": "zuul",
    "EbsOptimized": False,
    "BlockDeviceMappings": [ROOT, OTHER],
    "TagSpecifications": TAGGED,
    "NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}],
}


@pytest.mark.parametrize(("label", "pool", "more"), rows("instances"))
def test_instance(label: dict[str, Any], pool: dict[str, Any], more: dict[str, Any]) -> None:
    """AW-3, AW-4: what is configured, and no more. The root is as the label wants it, and no volume stays."""
    wanted = label_of(label, **pool)
    sent = with_tags(run_arguments(wanted, places_of(wanted)[0], AwsImage.of(aws.IMAGE)), {"a": "b"}, "token-1")
    assert sent == {**LEAST, **more}
    assert_valid("run_instances", {**sent, "MinCount": 1, "MaxCount": 1})
    assert "BlockDeviceMappings" not in run_arguments(wanted, places_of(wanted)[0], AwsImage.of({"ImageId": "ami-1"}))


def test_order_of_tags(caplog: pytest.LogCaptureFixture) -> None:
    """CM-1, CM-2: label, dynamic, ours, the name; a dynamic one that cannot be formatted is left out."""
    request = NodeRequest("200-7")
    request.tenant_name = "t"
    tags = {"team": "ci", "year": 2026, "tenant": "x", "Name": "mine", "nodepool_node_id": "mine"}
    dynamic = {"tenant": "{request.tenant_name}", "bad": "{request.nothing}"}
    label = label_of({"tags": tags, "dynamic-tags": dynamic})
    with caplog.at_level(logging.ERROR):
        found = instance_tags("np42", label, aws.METADATA, request, aws.LOG)
    assert found == {"team": "ci", "year": "2026", "tenant": "t", **aws.METADATA, "Name": "np42"}
    assert [record.getMessage() for record in caplog.records] == [
        "Label small: dynamic-tags: bad cannot be formatted; it is left out"
    ]


ADDRESSES: dict[str, Any] = {
    "PublicIpAddress": "198.51.100.7",
    "NetworkInterfaces": [{"Ipv6Addresses": [{"Ipv6Address": "2001:db8::7"}, {"Ipv6Address": "2001:db8::8"}]}],
    "PrivateIpAddress": "10.0.0.7",
}


@pytest.mark.parametrize(("without", "address"), [(0, "198.51.100.7"), (1, "2001:db8::7"), (2, "10.0.0.7"), (3, None)])
def test_record_of_a_node(without: int, address: str | None) -> None:
    """AW-10, CM-3: what the node says; its address is public IPv4, else public IPv6, else private IPv4."""
    place = {"AvailabilityZone": "eu-north-1a", "HostId": "h-1"}
    data = aws.instance(Placement=place, InstanceLifecycle="spot", **dict(list(ADDRESSES.items())[without:]))
    limits = SimpleNamespace(use_of=lambda *_: QuotaInformation(instances=1))
    cloud: Any = SimpleNamespace(config=SimpleNamespace(region_name="eu-north-1"), limits=limits, _volumes={})
    made = AwsInstances.instance(cloud, AwsRecord.of(data))
    assert (made.az, made.interface_ip, made.private_ipv6) == ("eu-north-1a", address, None)
    assert made.node_properties == {"fleet": False, "spot": True}
    assert (made.host_id, made.slot, made.driver_data) == (None, None, None)


@pytest.mark.parametrize(("stored", "expected"), rows("stored_ids"))
def test_external_id(stored: Any, expected: str | None) -> None:
    """AW-7, CM-8: an object; of old nodes a text."""
    assert instance_of(stored) == expected
    assert instance_of(external_id("i-1")) == "i-1"


NOW = datetime(2026, 6, 1, tzinfo=UTC)
C5 = {"HostProperties": {"InstanceType": "c5.large"}}


@pytest.mark.parametrize(("hours", "more", "expected"), [(23, {}, False), (24, {}, True), (0, C5, True)])
def test_hosts_that_may_be_released(hours: int, more: dict[str, Any], expected: bool) -> None:
    """AW-20: the search for leaks asks only for what AWS lets go; hosts of macOS stay 24 hours."""
    assert AwsHost.of(aws.host(AllocationTime=NOW - timedelta(hours=hours), **more)).may_be_released(NOW) is expected


# -- fleets --


def fleet_of(strategy: str, spot: bool = False, **label: Any) -> Any:
    fleet = {"instance-types": ["t3.medium", "t3.large"], "allocation-strategy": strategy}
    given = {key.replace("_", "-"): value for key, value in label.items()}
    more = {"subnet_id": ["a", "b"], "security_group_id": "sg-1"}
    return label_of({"instance-type": None, "fleet": fleet, "use-spot": spot, **given}, **more)


@pytest.mark.parametrize(("strategy", "spot", "sent"), rows("fleets"))
def test_fleet(strategy: str, spot: bool, sent: str) -> None:
    """AW-8: one instance at once, of any type in any subnet. EC2 does not know each strategy for both kinds."""
    places = [(name, subnet) for name in ("t3.medium", "t3.large") for subnet in "ab"]
    overrides = [
        {"InstanceType": name, "ImageId": "ami-1", "SubnetId": subnet}
        | ({"Priority": number} if strategy == "prioritized" else {})
        for number, (name, subnet) in enumerate(places)
    ]
    template = {"LaunchTemplateName": "template-1", "Version": "$Latest"}
    kind = "spot" if spot else "on-demand"
    found = fleet_arguments(fleet_of(strategy), "ami-1", "template-1", {"a": "b"}, "token-1", spot=spot)
    assert_valid("create_fleet", found)
    assert found == {
        "ClientToken": "token-1",
        "Type": "instant",
        "TagSpecifications": TAGGED,
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": kind},
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": template, "Overrides": overrides}],
        "SpotOptions" if spot else "OnDemandOptions": {"AllocationStrategy": sent},
    }


def test_template() -> None:
    """AW-9: what it has, and its name: of the content and the provider."""
    label = fleet_of("prioritized", volume_size=40, volume_type="gp3", imdsv2="required", userdata="#!/bin/sh\n")
    data, tags = template_data(label), template_tags(aws.PROVIDER)
    ebs = {"DeleteOnTermination": True, "VolumeSize": 40, "VolumeType": "gp3"}
    assert data == {
        "KeyName": "zuul",
        "SecurityGroupIds": ["sg-1"],
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": ebs}],
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "UserData": base64.b64encode(b"#!/bin/sh\n").decode(),
    }
    assert tags == {"nodepool_managed": "True", "nodepool_provider_name": aws.PROVIDER}
    name, same = template_name(data, tags), template_name(template_data(label), tags)
    others = {template_name(data, template_tags("other")), template_name({}, tags)}
    assert (name, len({name, *others}), name[:25]) == (same, 3, "nodepool-launch-template-")


# -- images --


def test_tags_of_images(tmp_path: Path) -> None:
    """CM-1, U-4: the build's, then the image's, then whose it is. AW-17: S3 takes ten, and not all characters: ours
    come first.
    """
    rig = aws.ImageRig(tmp_path, {"tags": {"team": "ci", "size": 7, "nodepool_build_id": "other"}})
    found = image_tags(rig.config.diskimages["debian"], {"team": "builders", "os": "linux", **aws.IDS})
    assert found == {"team": "ci", "size": "7", "os": "linux", **aws.IDS}
    many = {f"tag-{number}": "value" for number in range(20)}
    sent = parse_qs(object_tagging({**many, "odd": "a*b", **aws.IDS}))
    assert len(sent) == 10
    assert {key: sent[key] for key in aws.IDS} == {key: [value] for key, value in aws.IDS.items()}
    assert "odd" not in parse_qs(object_tagging({"odd": "a*b", "good": "a b"}))


@pytest.mark.parametrize(
    "more", [{}, {"nodepool_provider_name": "north/2 b"}, {"nodepool_installation_id": "0123456789abcdef"}]
)
def test_key_says_whose_it_is(tmp_path: Path, more: dict[str, str]) -> None:
    """AW-20, D-10: nothing has to ask for the tags of objects; those of another installation are left to it."""
    job = aws.ImageRig(tmp_path).job(tags={**aws.IDS, **more})
    assert metadata_of_key(job.key) == job.tags
    assert job.key.startswith(provider_prefix(job.tags["nodepool_provider_name"]))
    assert job.key.startswith(job.build_prefix)
    assert job.key.endswith("/debian-1.raw")
    assert metadata_of_key("debian-1.raw") == metadata_of_key("nodepool/readme") == {}


def test_imports(tmp_path: Path) -> None:
    """AW-17: the tags are those of the task."""
    job = aws.ImageRig(tmp_path, {"architecture": "arm64"}).job()
    source = {"Format": "raw", "UserBucket": {"S3Bucket": aws.BUCKET, "S3Key": "k"}}
    snapshot, image = (import_arguments(job, aws.BUCKET, "k", whole=whole) for whole in (False, True))
    assert snapshot["DiskContainer"] == source
    assert (image["DiskContainers"], image["Architecture"]) == ([source], "arm64")
    for name, arguments in (("snapshot", snapshot), ("image", image)):
        assert_valid(f"import_{name}", arguments)
        (tags,) = arguments["TagSpecifications"]
        assert (tags["ResourceType"], aws.tags_in(tags["Tags"])) == (f"import-{name}-task", aws.IDS)
        assert (arguments["ClientToken"], len(job.token)) == (job.token, 64)


@pytest.mark.parametrize(("image", "ebs", "more"), rows("registrations"))
def test_registration(tmp_path: Path, image: dict[str, Any], ebs: dict[str, Any], more: dict[str, Any]) -> None:
    """AW-17: of an AMI, out of a snapshot."""
    found = registration(aws.ImageRig(tmp_path, image).job(), "snap-1")
    assert_valid("register_image", found)
    volume = {"SnapshotId": "snap-1", "DeleteOnTermination": True, **ebs}
    assert [tags["ResourceType"] for tags in found.pop("TagSpecifications")] == ["image"]
    assert found == {
        "Name": "debian-1",
        "Architecture": "x86_64",
        "RootDeviceName": "/dev/sda1",
        "VirtualizationType": "hvm",
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": volume}],
        **more,
    }
