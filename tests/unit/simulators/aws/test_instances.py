# SPDX-License-Identifier: Apache-2.0
"""Instances of the simulated region, from RunInstances until they are no longer shown."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from simulators.aws.network import TINY
from tests.unit.simulators.aws.conftest import Caller

Refused = Callable[..., str]


def _tags(**tags: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def test_life_of_an_instance(caller: Caller) -> None:
    made = caller.run(
        KeyName="zuul",
        EbsOptimized=True,
        NetworkInterfaces=[{"DeviceIndex": 0, "AssociatePublicIpAddress": True, "Ipv6AddressCount": 1}],
        UserData="#!/bin/sh",
        IamInstanceProfile={"Arn": "arn:aws:iam::1:instance-profile/x"},
        MetadataOptions={"HttpTokens": "required", "HttpEndpoint": "enabled"},
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": _tags(Name="np1")},
            {"ResourceType": "volume", "Tags": _tags(of="np1")},
        ],
    )[0]
    assert (made["State"], made["StateReason"]["Code"]) == ({"Code": 0, "Name": "pending"}, "pending")
    assert (made["Tags"], made["KeyName"], made["EbsOptimized"]) == (_tags(Name="np1"), "zuul", True)
    assert made["MetadataOptions"]["HttpTokens"] == "required"
    assert "PublicIpAddress" not in made
    caller.clock.pass_seconds(10)
    (running,) = caller.shown().values()
    assert running["State"]["Name"] == "running"
    assert running["PublicIpAddress"].startswith("127.60.")
    assert running["NetworkInterfaces"][0]["Ipv6Addresses"] == [
        {"Ipv6Address": f"::ffff:{running['PrivateIpAddress']}"}
    ]
    volume_id = running["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    (volume,) = caller.ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"]
    assert (volume["State"], volume["Size"], volume["Tags"]) == ("in-use", 8, _tags(of="np1"))
    (change,) = caller.ec2.terminate_instances(InstanceIds=[made["InstanceId"]])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    caller.clock.pass_seconds(5)
    (ended,) = caller.shown().values()
    assert ended["State"] == {"Code": 48, "Name": "terminated"}
    assert ended["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert "PrivateIpAddress" not in ended
    assert caller.ec2.describe_volumes()["Volumes"] == []
    caller.clock.pass_seconds(3600)
    assert caller.shown() == {}


def test_the_instances_of_a_call_have_indexes(caller: Caller) -> None:
    made = caller.run(4)
    assert [instance["AmiLaunchIndex"] for instance in made] == [0, 1, 2, 3]
    caller.run()
    pages = list(caller.ec2.get_paginator("describe_instances").paginate(MaxResults=5))
    assert [len(reservation["Instances"]) for page in pages for reservation in page["Reservations"]] == [4, 1]


def test_as_many_as_there_is_room_for(caller: Caller, refused: Refused) -> None:
    """MinCount and MaxCount: a part is an answer, too few is none."""
    caller.simulator.change(capacity=[{"zone": "us-east-1a", "room": 3}])
    place: dict[str, Any] = {"Placement": {"AvailabilityZone": "us-east-1a"}, "MaxCount": 5}
    assert len(caller.run(MinCount=1, **place)) == 3
    assert refused(caller.run, **place) == "InsufficientInstanceCapacity"
    assert len(caller.run(2)) == 2, "AWS chooses a zone with room"


def test_a_token_makes_the_same_instances(caller: Caller, refused: Refused) -> None:
    first = caller.run_id(ClientToken="a")
    assert caller.run_id(ClientToken="a") == first
    assert caller.run_id(ClientToken="b") != first
    assert refused(caller.run, ClientToken="a", InstanceType="t3.large") == "IdempotentParameterMismatch"
    assert set(caller.shown(Filters=[{"Name": "client-token", "Values": ["a"]}])) == {first}
    caller.ec2.terminate_instances(InstanceIds=[first])
    assert caller.run_id(ClientToken="a") == first
    caller.clock.pass_seconds(5)
    assert refused(caller.run, ClientToken="a") == "IdempotentInstanceTerminated"
    assert refused(caller.run, ClientToken="x" * 65) == "InvalidParameterValue"


def test_a_refused_call_is_not_remembered(caller: Caller, refused: Refused) -> None:
    caller.simulator.change(capacity=[{}])
    assert refused(caller.run, ClientToken="a") == "InsufficientInstanceCapacity"
    caller.simulator.change(capacity=[])
    assert caller.run_id(ClientToken="a")


def test_one_unknown_id_fails_the_whole_call(caller: Caller, refused: Refused) -> None:
    known = caller.run_id()
    assert refused(caller.ec2.terminate_instances, InstanceIds=[known, "i-00", "i-01"]) == "InvalidInstanceID.NotFound"
    assert caller.states() == ["pending"]
    assert refused(caller.ec2.terminate_instances, InstanceIds=["server"]) == "InvalidInstanceID.Malformed"


def test_new_instances_are_not_there_at_once(caller: Caller, refused: Refused) -> None:
    caller.simulator.change(hidden_rate=1, hidden_seconds=3)
    hidden = caller.run_id()
    filters = [{"Name": "instance-id", "Values": [hidden]}]
    assert caller.shown() == caller.shown(Filters=filters) == {}
    for call in (caller.ec2.describe_instances, caller.ec2.terminate_instances):
        assert refused(call, InstanceIds=[hidden]) == "InvalidInstanceID.NotFound"
    tags = {"Resources": [hidden], "Tags": _tags(a="b")}
    assert refused(caller.ec2.create_tags, **tags) == "InvalidInstanceID.NotFound"
    caller.clock.pass_seconds(3)
    assert set(caller.shown(Filters=filters)) == {hidden}


def test_states_and_tags_lag(caller: Caller) -> None:
    caller.simulator.change(state_lag_seconds=4, tag_lag_rate=1, tag_lag_seconds=2, late_tags=True)
    instance = caller.run_id(TagSpecifications=[{"ResourceType": "instance", "Tags": _tags(a="1")}])
    assert caller.shown()[instance]["Tags"] == []
    caller.clock.pass_seconds(2)
    assert caller.shown()[instance]["Tags"] == _tags(a="1")
    caller.ec2.create_tags(Resources=[instance], Tags=_tags(b="2"))
    assert caller.shown()[instance]["Tags"] == _tags(a="1")
    caller.clock.pass_seconds(2)
    assert caller.shown()[instance]["Tags"] == _tags(a="1", b="2")
    caller.clock.pass_seconds(8)
    assert caller.states() == ["pending"]
    caller.clock.pass_seconds(4)
    assert caller.states() == ["running"]


@pytest.mark.parametrize(
    ("settings", "arguments", "code"),
    [
        ({"quotas": {"L-1216C47A": 3}}, {}, "VcpuLimitExceeded"),
        (
            {"quotas": {"L-34B43A08": 3}},
            {"InstanceMarketOptions": {"MarketType": "spot"}},
            "MaxSpotInstanceCountExceeded",
        ),
        ({"instance_limit": 1}, {}, "InstanceLimitExceeded"),
        ({"quotas": {"L-7A658B76": 0.01}}, {}, "VolumeLimitExceeded"),
        ({"capacity": [{"room": 1}]}, {}, "InsufficientInstanceCapacity"),
        ({}, {"NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": TINY}]}, "InsufficientFreeAddressesInSubnet"),
    ],
)
def test_limits(caller: Caller, refused: Refused, settings: Any, arguments: Any, code: str) -> None:
    """The first instance is taken, the second one is not; when the first has ended another one is."""
    caller.simulator.change(**settings)
    first = caller.run_id(**arguments)
    assert refused(caller.run, **arguments) == code
    caller.ec2.terminate_instances(InstanceIds=[first])
    caller.clock.pass_seconds(5)
    assert caller.run(**arguments)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"ImageId": "ami-00"}, "InvalidAMIID.NotFound"),
        ({"ImageId": "debian"}, "InvalidAMIID.Malformed"),
        ({"InstanceType": "t9.small"}, "InvalidInstanceType"),
        ({"InstanceType": "m6g.large"}, "InvalidParameterValue"),
        ({"InstanceType": "g4dn.xlarge", "Placement": {"AvailabilityZone": "us-east-1b"}}, "Unsupported"),
        ({"Placement": {"AvailabilityZone": "eu-west-1a"}}, "InvalidParameterValue"),
        ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": "subnet-00"}]}, "InvalidSubnetID.NotFound"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-00"]}]}, "InvalidGroup.NotFound"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["default"]}]}, "InvalidGroupId.Malformed"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0}], "SubnetId": TINY}, "InvalidParameterCombination"),
        ({"SubnetId": TINY, "Placement": {"AvailabilityZone": "us-east-1b"}}, "InvalidParameterValue"),
        ({"MinCount": 2, "MaxCount": 1}, "InvalidParameterValue"),
        ({"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 4}}]}, "InvalidBlockDeviceMapping"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True}}]},
            "InvalidBlockDeviceMapping",
        ),
        ({"UserData": "x" * 16385}, "InvalidParameterValue"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
)
def test_what_is_refused(caller: Caller, refused: Refused, arguments: Any, code: str) -> None:
    assert refused(caller.run, **arguments) == code
    assert caller.shown() == {}


def test_failed_boots(caller: Caller) -> None:
    rules = [
        {"kind": "failed", "code": "Client.VolumeLimitExceeded", "message": "Volume limit exceeded", "count": 1},
        {"kind": "stuck", "count": 1},
        {"kind": "interrupted", "spot": True, "seconds": 2},
    ]
    caller.simulator.change(boots=rules)
    for _ in range(2):
        caller.run()
    spot = caller.run_id(InstanceMarketOptions={"MarketType": "spot"})
    assert caller.shown()[spot]["InstanceLifecycle"] == "spot"
    caller.clock.pass_seconds(10)
    caller.states()
    caller.clock.pass_seconds(2)
    assert caller.states() == ["terminated", "pending", "shutting-down"]
    first, _, last = caller.shown().values()
    assert first["StateReason"] == {
        "Code": "Client.VolumeLimitExceeded",
        "Message": "Client.VolumeLimitExceeded: Volume limit exceeded",
    }
    assert last["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    with caller.simulator.cloud() as cloud:
        cloud.instances.release_stuck()
    assert caller.states() == ["terminated", "running", "terminated"]


def test_ends_that_do_not_happen(caller: Caller) -> None:
    caller.simulator.change(ends=[{"kind": "swallowed", "count": 1}, {"kind": "stuck", "count": 1}])
    instance = caller.run_id()
    for state in ("pending", "shutting-down"):
        caller.ec2.terminate_instances(InstanceIds=[instance])
        caller.clock.pass_seconds(9)
        assert caller.states() == [state]


def test_console(caller: Caller) -> None:
    instance = caller.run_id()
    assert caller.ec2.get_console_output(InstanceId=instance)["Output"] == ""
    caller.clock.pass_seconds(10)
    assert instance in caller.ec2.get_console_output(InstanceId=instance)["Output"]


def test_user_data_come_as_they_are(caller: Caller) -> None:
    instance = caller.run_id(UserData="#cloud-config\n")
    with caller.simulator.cloud() as cloud:
        assert cloud.instances.instances[instance].spec.user_data == b"#cloud-config\n"
    assert base64.b64encode(b"#cloud-config\n").decode().isascii()


def test_whose_an_instance_is(caller: Caller) -> None:
    """A node with two instances is seen, also where only the launch index says whose they are."""

    def tags(**own: str) -> list[dict[str, Any]]:
        return [{"ResourceType": "instance", "Tags": _tags(nodepool_provider_name="p", **own)}]

    first, second = caller.run(2, TagSpecifications=tags(nodepool_batch="001 002"))
    caller.ec2.create_tags(Resources=[first["InstanceId"]], Tags=_tags(nodepool_node_id="001"))
    assert caller.simulator.state()["double_nodes"] == []
    assert caller.simulator.state()["peak_by_provider"] == {"p": 2}
    caller.run(TagSpecifications=tags(nodepool_node_id="002"))
    assert caller.simulator.state()["double_nodes"] == ["002"]
    with caller.simulator.cloud() as cloud:
        assert cloud.instances.instances[second["InstanceId"]].node_metadata["nodepool_node_id"] == "002"


def test_an_instance_can_vanish(caller: Caller) -> None:
    instance = caller.run_id()
    with caller.simulator.cloud() as cloud:
        cloud.instances.forget(cloud.instances.instances[instance])
    assert caller.shown() == {}
    assert caller.simulator.state()["contents"] == {
        "instances": 0,
        "volumes": 0,
        "images": 1,
        "hosts": 0,
        "templates": 0,
    }
