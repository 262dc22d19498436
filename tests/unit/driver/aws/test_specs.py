# SPDX-License-Identifier: Apache-2.0
"""What is sent for a configuration, and what answers mean (AW-3, AW-4, AW-7 to AW-10, AW-17).

The region takes only what is valid by botocore's models of the services.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from nodepool.driver.aws.images import image_tags, metadata_of_key, object_tagging, provider_prefix
from nodepool.driver.aws.instances import external_id, instance_of
from nodepool.driver.aws.types import AwsHost
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.model.request import NodeRequest
from tests.support.tables import driver_table
from tests.unit.driver.aws import support as aws
from tests.unit.driver.aws.support import rows

NAMED = {**aws.METADATA, "Name": f"np{aws.NODE}"}


def body(rig: aws.Rig, method: str, tags: dict[str, str], *kinds: str) -> dict[str, Any]:
    """What the call got, but for its token and for the tags of these kinds of things."""
    found = dict(rig.region.last(method))
    given = {one["ResourceType"]: aws.tags_in(one["Tags"]) for one in found.pop("TagSpecifications")}
    assert given == dict.fromkeys(kinds, tags)
    assert found.pop("ClientToken", None)
    return found


# -- instances --


@pytest.mark.parametrize(("label", "pool", "more"), rows("instances"))
def test_instance(label: dict[str, Any], pool: dict[str, Any], more: dict[str, Any]) -> None:
    """AW-3, AW-4: what is configured, and no more. The root is as the label wants it, and no volume stays."""
    rig = aws.Rig(aws.section(label, pool=pool))
    rig.creation().advance()
    assert body(rig, "run_instances", NAMED, "instance", "volume") == {**driver_table("aws", "least"), **more}
    rig.region.answers["describe_images"] = {"Images": [{"ImageId": "ami-2"}]}
    rig.cloud.facts.forget(rig.label)
    rig.creation().advance()
    assert "BlockDeviceMappings" not in rig.region.last("run_instances")


def test_order_of_tags(caplog: pytest.LogCaptureFixture) -> None:
    """CM-1, CM-2: label, dynamic, ours, the name; a dynamic one that cannot be formatted is left out."""
    request = NodeRequest("200-7")
    request.tenant_name = "t"
    tags = {"team": "ci", "year": 2026, "tenant": "x", "Name": "mine", "nodepool_node_id": "mine"}
    dynamic = {"tenant": "{request.tenant_name}", "bad": "{request.nothing}"}
    rig = aws.Rig(aws.section({"tags": tags, "dynamic-tags": dynamic}))
    with caplog.at_level(logging.ERROR):
        rig.creation(request=request).advance()
    body(rig, "run_instances", {"team": "ci", "year": "2026", "tenant": "t", **NAMED}, "instance", "volume")
    assert [record.getMessage() for record in caplog.records] == [
        "Label small: dynamic-tags: bad cannot be formatted; it is left out"
    ]


@pytest.mark.parametrize(("without", "address"), [(0, "198.51.100.7"), (1, "2001:db8::7"), (2, "10.0.0.7"), (3, None)])
def test_record_of_a_node(without: int, address: str | None) -> None:
    """AW-10, CM-3: what the node says; its address is public IPv4, else public IPv6, else private IPv4."""
    addresses: dict[str, Any] = {
        "PublicIpAddress": "198.51.100.7",
        "NetworkInterfaces": [{"Ipv6Addresses": [{"Ipv6Address": "2001:db8::7"}, {"Ipv6Address": "2001:db8::8"}]}],
        "PrivateIpAddress": "10.0.0.7",
    }
    more = dict(list(addresses.items())[without:])
    place = {"AvailabilityZone": "eu-north-1a", "HostId": "h-1"}
    rig = aws.Rig(describe_instances=aws.shown(aws.instance(Placement=place, InstanceLifecycle="spot", **more)))
    (made,) = rig.adapter.listInstances()
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
    assert AwsHost(aws.host(AllocationTime=NOW - timedelta(hours=hours), **more)).may_be_released(NOW) is expected


# -- fleets --


def fleet_rig(strategy: str, label: dict[str, Any], provider: str = aws.PROVIDER) -> aws.Rig:
    """One launch was begun."""
    fleet = {"instance-types": ["t3.medium", "t3.large"], "allocation-strategy": strategy}
    pool = {"subnet-id": ["a", "b"], "security-group-id": "sg-1"}
    data = aws.section({"instance-type": None, "fleet": fleet, **label}, pool=pool, name=provider)
    rig = aws.Rig(data, create_fleet={"Instances": [{"InstanceIds": ["i-1"]}]})
    rig.creation().advance()
    return rig


@pytest.mark.parametrize(("strategy", "spot", "sent"), rows("fleets"))
def test_fleet(strategy: str, spot: bool, sent: str) -> None:
    """AW-8: one instance at once, of any type in any subnet. EC2 does not know each strategy for both kinds."""
    found = body(fleet_rig(strategy, {"use-spot": spot}), "create_fleet", NAMED, "instance", "volume")
    kind, options = ("spot", "SpotOptions") if spot else ("on-demand", "OnDemandOptions")
    assert found.pop("TargetCapacitySpecification") == {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": kind}
    assert found.pop(options) == {"AllocationStrategy": sent}
    (template,) = found["LaunchTemplateConfigs"]
    assert template["LaunchTemplateSpecification"].pop("LaunchTemplateName").startswith("nodepool-launch-template-")
    priorities = [override.pop("Priority", None) for override in template["Overrides"]]
    assert priorities == ([0, 1, 2, 3] if strategy == "prioritized" else [None] * 4)
    assert found == driver_table("aws", "fleet")


def test_template() -> None:
    """AW-9: what it has, and its name: of the content and the provider."""
    label = {"volume-size": 40, "volume-type": "gp3", "imdsv2": "required", "userdata": "#!/bin/sh\n"}
    more: Any = ((label, "north"), (label, "north"), (label, "south"), ({}, "north"))
    rigs = [fleet_rig("prioritized", *given) for given in more]
    found = [rig.region.last("create_launch_template") for rig in rigs]
    assert found[0]["LaunchTemplateData"] == driver_table("aws", "template")
    tags = {"nodepool_managed": "True", "nodepool_provider_name": aws.PROVIDER}
    assert body(rigs[0], "create_launch_template", tags, "launch-template")
    first, same, *others = (one["LaunchTemplateName"] for one in found)
    assert (first, len({first, *others})) == (same, 3)


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


@pytest.mark.parametrize("method", ["snapshot", "image"])
def test_imports(tmp_path: Path, method: str) -> None:
    """AW-17: the tags are those of the task."""
    rig = aws.ImageRig(tmp_path, {"architecture": "arm64", "import-method": method})
    rig.region.answers[f"import_{method}"] = aws.error("InvalidParameter")
    with pytest.raises(CloudRefused):
        rig.upload()
    found = body(rig, f"import_{method}", aws.IDS, f"import-{method}-task")
    source = {"Format": "raw", "UserBucket": {"S3Bucket": aws.BUCKET, "S3Key": rig.job().key}}
    whole = {"DiskContainers": [source], "Architecture": "arm64"}
    assert found == (whole if method == "image" else {"DiskContainer": source})


@pytest.mark.parametrize(("image", "ebs", "more"), rows("registrations"))
def test_registration(tmp_path: Path, image: dict[str, Any], ebs: dict[str, Any], more: dict[str, Any]) -> None:
    """AW-17: of an AMI, out of a snapshot."""
    rig = aws.ImageRig(tmp_path, {"import-method": "ebs-direct", **image})
    rig.region.answers["describe_snapshots"] = [{}, {"Snapshots": [{"SnapshotId": "snap-1", "State": "completed"}]}]
    rig.upload()
    found = dict(rig.region.last("register_image"))
    (tags,) = found.pop("TagSpecifications")
    assert (tags["ResourceType"], aws.tags_in(tags["Tags"])) == ("image", aws.IDS)
    volume = {"SnapshotId": "snap-1", "DeleteOnTermination": True, **ebs}
    devices = {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": volume}]}
    assert found == {**driver_table("aws", "registration"), **devices, **more}
