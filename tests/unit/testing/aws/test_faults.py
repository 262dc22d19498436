# SPDX-License-Identifier: Apache-2.0
"""Credentials, policy, throttles and calls that go wrong in the simulated region."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError

from nodepool.testing.aws import AwsSettings, AwsSimulatorClient
from nodepool.testing.aws.buckets import CHANGES, READS, WHOLE_LISTS, request_bucket
from tests.unit.testing.aws.conftest import Caller

Refused = Callable[..., str]


def test_credentials(caller: Caller, refused: Refused) -> None:
    stranger = caller.client("ec2", "AKIASTRANGER")
    assert refused(stranger.describe_instances) == "AuthFailure"
    other = caller.client("service-quotas", "AKIASTRANGER")
    assert refused(other.list_service_quotas, ServiceCode="ec2") == "UnrecognizedClientException"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(caller.simulator.url)
    caught.value.close()
    assert caught.value.code == 403


def test_policy(caller: Caller, refused: Refused) -> None:
    caller.simulator.change(denied=["ec2.CreateTags", "servicequotas.*"])
    tags = {"Resources": ["i-00"], "Tags": [{"Key": "a", "Value": "b"}]}
    assert refused(caller.ec2.create_tags, **tags) == "UnauthorizedOperation"
    quotas = caller.client("service-quotas")
    assert refused(quotas.list_service_quotas, ServiceCode="ec2") == "AccessDeniedException"
    assert caller.shown() == {}


def test_buckets(caller: Caller, refused: Refused) -> None:
    """RunInstances has 5 and then 2 a second; reads are not put off by it."""
    caller.simulator.change(throttles=True)
    for _ in range(5):
        caller.run()
    assert refused(caller.run) == "RequestLimitExceeded"
    assert len(caller.shown(MaxResults=1000)) == 5
    caller.clock.pass_seconds(1)
    caller.run()
    caller.run()
    assert refused(caller.run) == "RequestLimitExceeded"


def test_bucket_of_instances(caller: Caller, refused: Refused) -> None:
    caller.simulator.change(throttles=True)
    caller.run(1000)
    caller.clock.pass_seconds(2)
    assert refused(caller.run, 5) == "RequestLimitExceeded"
    assert len(caller.run(4)) == 4


def test_bucket_of_quotas(caller: Caller, refused: Refused) -> None:
    caller.simulator.change(throttles=True)
    quotas = caller.client("service-quotas")
    for _ in range(10):
        quotas.list_service_quotas(ServiceCode="ec2")
    assert refused(quotas.list_service_quotas, ServiceCode="ec2") == "TooManyRequestsException"


@pytest.mark.parametrize(
    ("operation", "arguments", "bucket"),
    [
        ("ec2.DescribeInstances", {"MaxResults": 5}, READS),
        ("ec2.DescribeInstances", {"Filters": []}, READS),
        ("ec2.DescribeInstances", {}, WHOLE_LISTS),
        ("ec2.DescribeSubnets", {}, READS),
        ("ec2.CreateFleet", {}, CHANGES),
        ("ec2.DeleteVolume", {}, CHANGES),
    ],
)
def test_which_bucket(operation: str, arguments: Any, bucket: Any) -> None:
    assert request_bucket(operation, arguments) is bucket


def test_lost_answers(caller: Caller) -> None:
    """The work is done; whoever asks again with the token learns of it."""
    caller.simulator.change(errors=[{"operation": "ec2.RunInstances", "kind": "drop", "after": True, "count": 1}])
    with pytest.raises(ConnectionClosedError):
        caller.run(ClientToken="a")
    (made,) = caller.shown()
    assert caller.run_id(ClientToken="a") == made
    assert caller.simulator.state()["calls"]["ec2.RunInstances"] == 2


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({"kind": "500"}, "InternalError"),
        ({"kind": "503"}, "Unavailable"),
        ({"kind": "503", "code": "RequestLimitExceeded"}, "RequestLimitExceeded"),
        ({"kind": "400", "code": "IncorrectState", "message": "not now"}, "IncorrectState"),
    ],
)
def test_errors_on_demand(caller: Caller, refused: Refused, rule: Any, code: str) -> None:
    caller.simulator.change(errors=[{"operation": "ec2.Describe*", "count": 1, **rule}])
    assert refused(caller.ec2.describe_volumes) == code
    assert caller.ec2.describe_volumes()["Volumes"] == []


def test_unknown_operations_and_arguments(caller: Caller) -> None:
    """Who calls something that the simulator does not have is told so."""

    def send(**form: str) -> str:
        request = urllib.request.Request(caller.simulator.url, urllib.parse.urlencode(form).encode())
        scope = "Credential=AKIASIMULATED/20260101/us-east-1/ec2/aws4_request"
        request.add_header("Authorization", f"AWS4-HMAC-SHA256 {scope}, Signature=x")
        with pytest.raises(urllib.error.HTTPError) as caught, urllib.request.urlopen(request):
            pass
        with caught.value:
            return caught.value.read().decode()

    assert "<Code>InvalidAction</Code>" in send(Action="ReplaceRoute")
    assert "<Code>UnknownParameter</Code>" in send(Action="DescribeInstances", Colour="red")
    assert "<Code>UnknownParameter</Code>" in send(Action="DescribeInstances", **{"Filter.x": "1"})
    assert "<Code>MissingParameter</Code>" in send(Action="TerminateInstances")
    assert "<Code>InvalidParameterValue</Code>" in send(Action="DescribeInstances", MaxResults="many")


def test_admin(caller: Caller) -> None:
    """A launcher in another process is not in the way of the test."""
    admin = AwsSimulatorClient(caller.simulator.url)
    instance = admin.add("instance", metadata={"nodepool_node_id": "1"})
    admin.add("volume", size_gib=2)
    assert admin.instances() == [{"id": instance, "state": "pending", "metadata": {"nodepool_node_id": "1"}}]
    assert admin.state()["contents"] == {"instances": 1, "volumes": 2, "images": 1, "hosts": 0, "templates": 0}
    admin.change(ends=[{"kind": "stuck"}], boots=[{"kind": "stuck"}])
    caller.clock.pass_seconds(10)
    admin.interrupt(instance)
    assert admin.instances()[0]["state"] == "shutting-down"
    admin.release_stuck()
    assert admin.instances() == []
    admin.vanish(admin.add("instance"))
    assert admin.reset_counters()["peak_instances"] == 1
    assert admin.state()["peak_instances"] == 0
    with pytest.raises(ValueError, match="kind must be one of"):
        admin.add("bucket")
    with pytest.raises(ValueError, match="unknown settings: colour"):
        admin.change(colour="red")


def test_settings_can_be_read_and_written_back() -> None:
    settings, copy = AwsSettings(), AwsSettings()
    settings.update(
        {
            "capacity": [{"zone": "a"}],
            "boots": [{"kind": "stuck"}],
            "ends": [{"kind": "stuck"}],
            "errors": [{"kind": "500", "code": "X"}],
            "quotas": {"L-1216C47A": 5},
        }
    )
    copy.update(settings.as_json())
    assert copy == settings
    assert settings.quotas["L-1216C47A"] == 5
    with pytest.raises(ValueError, match="kind 'late'"):
        copy.update({"boots": [{"kind": "late"}]})
