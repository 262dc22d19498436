# SPDX-License-Identifier: Apache-2.0
"""Lists of the simulated region: pages, filters, tags, types, network, volumes, quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.testing.aws.network import TINY
from tests.unit.testing.aws.conftest import Caller

Refused = Callable[..., str]


def _filter(name: str, *values: str) -> dict[str, Any]:
    return {"Filters": [{"Name": name, "Values": list(values)}]}


def test_pages(caller: Caller, refused: Refused) -> None:
    caller.run(7)
    describe = caller.ec2.describe_instances
    first = describe(MaxResults=5)
    assert len(first["Reservations"][0]["Instances"]) == 5
    rest = describe(MaxResults=5, NextToken=first["NextToken"])
    assert len(rest["Reservations"][0]["Instances"]) == 2
    assert "NextToken" not in rest
    assert refused(describe, MaxResults=4) == refused(describe, MaxResults=1001) == "InvalidParameterValue"
    assert refused(describe, NextToken="x") == "InvalidNextToken"
    assert refused(describe, MaxResults=5, InstanceIds=["i-00"]) == "InvalidParameterCombination"
    caller.simulator.change(page_limit=3)
    assert len(describe(MaxResults=1000)["Reservations"][0]["Instances"]) == 3


@pytest.mark.parametrize(
    ("name", "values", "number"),
    [
        ("instance-state-name", ["pending"], 2),
        ("instance-state-name", ["running", "stopped"], 0),
        ("instance-type", ["t3.*"], 1),
        ("instance-type", ["t3.*", "m5.?arge"], 2),
        ("tag:Name", ["np1"], 1),
        ("tag-key", ["Name"], 1),
        ("instance-lifecycle", ["spot"], 1),
        ("availability-zone", ["us-east-1[abc]"], 0),
    ],
)
def test_filters(caller: Caller, name: str, values: list[str], number: int) -> None:
    caller.run(TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "np1"}]}])
    caller.run(InstanceType="m5.large", InstanceMarketOptions={"MarketType": "spot"})
    assert len(caller.shown(**_filter(name, *values))) == number


def test_bad_filters(caller: Caller, refused: Refused) -> None:
    assert refused(caller.shown, **_filter("colour", "red")) == "InvalidParameterValue"
    assert refused(caller.shown, **_filter("instance-id", *map(str, range(201)))) == "FilterLimitExceeded"


def test_tags(caller: Caller, refused: Refused) -> None:
    instance = caller.run_id()
    (volume,) = caller.ec2.describe_volumes()["Volumes"]
    ids = [instance, volume["VolumeId"]]
    caller.ec2.create_tags(Resources=ids, Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    caller.ec2.delete_tags(Resources=ids, Tags=[{"Key": "a"}])
    found = caller.ec2.describe_tags(**_filter("key", "*"))["Tags"]
    assert {(tag["ResourceId"], tag["ResourceType"], tag["Key"], tag["Value"]) for tag in found} == {
        (instance, "instance", "b", "2"),
        (volume["VolumeId"], "volume", "b", "2"),
    }
    many = [{"Key": str(number), "Value": ""} for number in range(51)]
    assert refused(caller.ec2.create_tags, Resources=ids, Tags=many) == "TagLimitExceeded"
    reserved = [{"Key": "aws:x", "Value": ""}]
    assert refused(caller.ec2.create_tags, Resources=ids, Tags=reserved) == "InvalidParameterValue"
    assert refused(caller.ec2.create_tags, Resources=["what-1"], Tags=many[:1]) == "InvalidID"


def test_volumes(caller: Caller, refused: Refused) -> None:
    made = caller.ec2.create_volume(Size=3, VolumeType="gp3", AvailabilityZone="us-east-1a")
    instance = caller.run_id(
        BlockDeviceMappings=[
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3", "Iops": 4000}},
            {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 5, "DeleteOnTermination": False}},
        ]
    )
    mine = caller.ec2.describe_volumes(**_filter("attachment.instance-id", instance))["Volumes"]
    assert sorted((volume["Size"], volume.get("Iops")) for volume in mine) == [(5, None), (20, 4000)]
    assert refused(caller.ec2.delete_volume, VolumeId=mine[0]["VolumeId"]) == "VolumeInUse"
    caller.ec2.delete_volume(VolumeId=made["VolumeId"])
    assert refused(caller.ec2.delete_volume, VolumeId=made["VolumeId"]) == "InvalidVolume.NotFound"
    caller.ec2.terminate_instances(InstanceIds=[instance])
    caller.clock.pass_seconds(5)
    left = caller.ec2.describe_volumes(**_filter("status", "available"))["Volumes"]
    assert [volume["Size"] for volume in left] == [5]
    caller.simulator.change(quotas={"L-7A658B76": 0})
    denied = {"Size": 3, "VolumeType": "gp3", "AvailabilityZone": "us-east-1a"}
    assert refused(caller.ec2.create_volume, **denied) == "VolumeLimitExceeded"


def test_images(caller: Caller, refused: Refused) -> None:
    (image,) = caller.ec2.describe_images(Owners=["amazon"], **_filter("name", "debian-*"))["Images"]
    assert (image["ImageId"], image["RootDeviceName"]) == (caller.image_id, "/dev/xvda")
    assert image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 8
    assert caller.ec2.describe_images(Owners=["self"])["Images"] == []
    assert refused(caller.ec2.describe_images, ImageIds=["ami-00"]) == "InvalidAMIID.NotFound"
    with caller.simulator.cloud() as cloud:
        late = cloud.images.add("late", state="pending")
    assert refused(caller.run, ImageId=late.id) == "InvalidAMIID.Unavailable"


def test_types(caller: Caller, refused: Refused) -> None:
    (kind,) = caller.ec2.describe_instance_types(InstanceTypes=["m5.xlarge"])["InstanceTypes"]
    assert (kind["VCpuInfo"]["DefaultVCpus"], kind["VCpuInfo"]["DefaultCores"]) == (4, 2)
    assert kind["MemoryInfo"]["SizeInMiB"] == 16384
    assert refused(caller.ec2.describe_instance_types, InstanceTypes=["q1.big"]) == "InvalidInstanceType"
    offers = caller.ec2.describe_instance_type_offerings
    found = offers(LocationType="availability-zone", **_filter("instance-type", "g4dn.xlarge"))
    assert [offer["Location"] for offer in found["InstanceTypeOfferings"]] == ["us-east-1a"]
    assert offers(**_filter("instance-type", "t3.small"))["InstanceTypeOfferings"][0]["Location"] == "us-east-1"


def test_network(caller: Caller, refused: Refused) -> None:
    ec2 = caller.ec2
    subnets = {subnet["SubnetId"]: subnet for subnet in ec2.describe_subnets()["Subnets"]}
    assert len(subnets) == 4
    assert subnets[TINY]["AvailableIpAddressCount"] == 1
    (group,) = ec2.describe_security_groups(**_filter("group-name", "default"))["SecurityGroups"]
    assert caller.run(SecurityGroupIds=[group["GroupId"]])[0]["SecurityGroups"] == [{"GroupId": group["GroupId"]}]
    assert [key["KeyName"] for key in ec2.describe_key_pairs()["KeyPairs"]] == ["zuul"]
    assert [zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]] == [
        "us-east-1a",
        "us-east-1b",
        "us-east-1c",
    ]
    assert refused(ec2.describe_subnets, SubnetIds=["subnet-00"]) == "InvalidSubnetID.NotFound"
    assert refused(ec2.describe_security_groups, GroupIds=["sg-00"]) == "InvalidGroup.NotFound"
    assert refused(ec2.describe_key_pairs, KeyNames=["nobody"]) == "InvalidKeyPair.NotFound"
    assert refused(ec2.describe_availability_zones, ZoneNames=["x"]) == "InvalidParameterValue"


def test_quotas(caller: Caller, refused: Refused) -> None:
    client = caller.client("service-quotas")
    caller.simulator.change(quotas={"L-1216C47A": 64}, page_limit=5)
    pages = list(client.get_paginator("list_service_quotas").paginate(ServiceCode="ec2"))
    found = {quota["QuotaCode"]: quota for page in pages for quota in page["Quotas"]}
    assert len(pages) > 1
    assert found["L-1216C47A"]["Value"] == 64
    assert found["L-1216C47A"]["QuotaName"] == "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
    assert client.get_service_quota(ServiceCode="ebs", QuotaCode="L-7A658B76")["Quota"]["ServiceCode"] == "ebs"
    missing = {"ServiceCode": "ec2", "QuotaCode": "L-NONE"}
    assert refused(client.get_service_quota, **missing) == "NoSuchResourceException"
    assert refused(client.list_service_quotas, ServiceCode="s4") == "NoSuchResourceException"
