# SPDX-License-Identifier: Apache-2.0
"""Instances of the simulated region, from RunInstances until they are no longer shown, with AWS's own client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from simulators.aws import AwsSimulator
from simulators.aws.simulator import SECRET_KEY
from tests.support.manual_clock import ManualClock
from tests.support.tables import rows


class Caller:
    """A region, whose time passes only when the test says so, and a client of boto3 that makes each call once."""

    def __init__(self, simulator: AwsSimulator, clock: ManualClock) -> None:
        self.simulator = simulator
        self.passes = clock.pass_seconds
        self.ec2: Any = boto3.client(
            "ec2",
            region_name="us-east-1",
            endpoint_url=simulator.url,
            aws_access_key_id="AKIASIMULATED",
            aws_secret_access_key=SECRET_KEY,
            config=Config(retries={"mode": "standard", "total_max_attempts": 1}),
        )
        with simulator.cloud() as cloud:
            self.image_id = cloud.image_id

    def run(self, number: int = 1, **more: Any) -> list[dict[str, Any]]:
        """RunInstances with what is needed."""
        given = {"ImageId": self.image_id, "InstanceType": "t3.small", "MinCount": number, "MaxCount": number, **more}
        instances: list[dict[str, Any]] = self.ec2.run_instances(**given)["Instances"]
        return instances

    def run_id(self, **more: Any) -> str:
        """The id of one new instance."""
        return str(self.run(**more)[0]["InstanceId"])

    def shown(self, *ids: str) -> dict[str, dict[str, Any]]:
        """DescribeInstances, by id, over all pages."""
        filters = [{"Name": "instance-id", "Values": list(ids)}] if ids else []
        pages = self.ec2.get_paginator("describe_instances").paginate(Filters=filters)
        reservations = [reservation for answer in pages for reservation in answer["Reservations"]]
        return {instance["InstanceId"]: instance for found in reservations for instance in found["Instances"]}

    def states(self) -> list[str]:
        return [instance["State"]["Name"] for instance in self.shown().values()]

    def end(self, *ids: str) -> Any:
        return self.ec2.terminate_instances(InstanceIds=list(ids))["TerminatingInstances"]


@pytest.fixture
def caller() -> Iterator[Caller]:
    clock = ManualClock()
    with AwsSimulator(clock=clock) as simulator:
        simulator.change(boot_seconds=10, end_seconds=5)
        made = Caller(simulator, clock)
        yield made
        made.ec2.close()
        assert simulator.state()["bugs"] == []


def refused(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """The code that a call is refused with."""
    with pytest.raises(ClientError) as caught:
        call(*arguments, **named)
    return str(caught.value.response["Error"]["Code"])


def tags(**values: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in values.items()]


def test_life_of_an_instance(caller: Caller) -> None:
    made = caller.run(
        KeyName="zuul",
        EbsOptimized=True,
        NetworkInterfaces=[{"DeviceIndex": 0, "AssociatePublicIpAddress": True, "Ipv6AddressCount": 1}],
        UserData="#cloud-config\n",
        IamInstanceProfile={"Arn": "arn:aws:iam::1:instance-profile/x"},
        MetadataOptions={"HttpTokens": "required", "HttpEndpoint": "enabled"},
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": tags(Name="np1")},
            {"ResourceType": "volume", "Tags": tags(of="np1")},
        ],
    )[0]
    instance: str = made["InstanceId"]
    assert (made["State"], made["StateReason"]["Code"]) == ({"Code": 0, "Name": "pending"}, "pending")
    assert (made["Tags"], made["KeyName"], made["EbsOptimized"]) == (tags(Name="np1"), "zuul", True)
    assert made["MetadataOptions"]["HttpTokens"] == "required"
    assert "PublicIpAddress" not in made
    assert caller.ec2.get_console_output(InstanceId=instance)["Output"] == ""
    with caller.simulator.cloud() as cloud:
        assert cloud.instances.instances[instance].spec.user_data == b"#cloud-config\n"
    caller.passes(10)
    (running,) = caller.shown().values()
    assert running["State"]["Name"] == "running"
    assert running["PublicIpAddress"].startswith("127.60.")
    ipv6 = [{"Ipv6Address": f"::ffff:{running['PrivateIpAddress']}"}]
    assert running["NetworkInterfaces"][0]["Ipv6Addresses"] == ipv6
    assert instance in caller.ec2.get_console_output(InstanceId=instance)["Output"]
    volume_id = running["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    (volume,) = caller.ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"]
    assert (volume["State"], volume["Size"], volume["Tags"]) == ("in-use", 8, tags(of="np1"))
    (change,) = caller.end(instance)
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    caller.passes(5)
    (ended,) = caller.shown().values()
    assert ended["State"] == {"Code": 48, "Name": "terminated"}
    assert ended["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert "PrivateIpAddress" not in ended
    assert caller.ec2.describe_volumes()["Volumes"] == []
    caller.passes(3600)
    assert caller.shown() == {}


def test_a_token_makes_the_same_instances(caller: Caller) -> None:
    """A refused call is not remembered."""
    caller.simulator.change(capacity=[{}])
    assert refused(caller.run, ClientToken="a") == "InsufficientInstanceCapacity"
    caller.simulator.change(capacity=[])
    first = caller.run_id(ClientToken="a")
    assert caller.run_id(ClientToken="a") == first
    assert caller.run_id(ClientToken="b") != first
    assert refused(caller.run, ClientToken="a", InstanceType="t3.large") == "IdempotentParameterMismatch"
    caller.end(first)
    assert caller.run_id(ClientToken="a") == first
    caller.passes(5)
    assert refused(caller.run, ClientToken="a") == "IdempotentInstanceTerminated"
    for long in ({"ClientToken": "x" * 65}, {"UserData": "x" * 16385}):
        assert refused(caller.run, **long) == "InvalidParameterValue"


@rows(__file__, "test_what_is_refused")
def test_what_is_refused(caller: Caller, code: str, arguments: list[dict[str, Any]]) -> None:
    """The same code for each of these."""
    assert {refused(caller.run, **given) for given in arguments} == {code}
    assert caller.shown() == {}
