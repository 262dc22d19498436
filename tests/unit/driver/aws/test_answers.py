# SPDX-License-Identifier: Apache-2.0
"""Answers, read by botocore out of bytes, and our parser of lists against botocore's. Each row names where it is from.
The service models are those of botocore: nothing in an answer is required there.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.httpsession import URLLib3Session
from botocore.parsers import ResponseParserError, ResponseParserFactory
from botocore.session import Session
from urllib3 import HTTPResponse

from benchmarks.aws_lists import answer
from nodepool.driver.aws import types
from nodepool.driver.aws.client import AnswerParsers, AwsTransport, Ec2
from nodepool.driver.aws.images import ObjectStore
from nodepool.driver.aws.launches import run_instances
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from tests.support.tables import driver_table
from tests.unit.driver.aws.support import Rig, instance, shown

MODEL = Session().get_service_model("ec2")
LIST = MODEL.operation_model("DescribeInstances").output_shape
MADE = MODEL.operation_model("RunInstances").output_shape
LEAST = "<instanceId>i-1</instanceId><instanceState><code>0</code><name>pending</name></instanceState>"
PROXY = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Hello</body></html>"
#: AWS answers with this namespace.
SPACE = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'


def ec2(operation: str, inner: str = "") -> bytes:
    return f"<{operation}Response {SPACE}>{inner}</{operation}Response>".encode()


def page(*instances: str, token: str = "") -> bytes:
    """A list with a reservation for each instance."""
    items = "".join(f"<item><instancesSet><item>{text}</item></instancesSet></item>" for text in instances)
    next_token = f"<nextToken>{token}</nextToken>" if token else "<nextToken/>"
    return ec2("DescribeInstances", f"<reservationSet>{items}</reservationSet>{next_token}")


def parsed(factory: Any, body: bytes, status: int = 200, shape: Any = LIST) -> dict[str, Any]:
    found = factory.create_parser("ec2").parse({"body": body, "headers": {"a": "b"}, "status_code": status}, shape)
    assert isinstance(found, dict)
    return found


def both(body: bytes) -> list[types.AwsRecord]:
    """What our parser finds; what botocore's does is the same."""
    ours, theirs = (
        [types.AwsRecord(data) for reservation in found["Reservations"] for data in reservation["Instances"]]
        for found in (parsed(AnswerParsers(), body), parsed(ResponseParserFactory(), body))
    )
    assert ours == theirs
    return ours


@pytest.mark.parametrize("more", driver_table("aws", "parts_of_an_instance"))
def test_parts_of_an_instance(more: str) -> None:
    """AW-2: each field that is used: there, empty, and absent."""
    assert len(both(page(LEAST + more))) == 1


def test_lists() -> None:
    """AW-2: usual ones, several instances of a reservation, and the token of the next page."""
    usual = both(answer(30))
    assert len(usual) == 30
    assert usual[7].metadata["nodepool_node_id"] == "0000000007"
    found = parsed(AnswerParsers(), page(f"{LEAST}</item><item>{LEAST.replace('i-1', 'i-2')}", token="more"))
    (reservation,) = found["Reservations"]
    assert [data["InstanceId"] for data in reservation["Instances"]] == ["i-1", "i-2"]
    assert found["NextToken"] == "more"
    assert found["ResponseMetadata"] == {"HTTPStatusCode": 200, "HTTPHeaders": {"a": "b"}}
    assert both(page()) == []
    assert "NextToken" not in parsed(AnswerParsers(), page())


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        *((body, [LIST, MADE, None]) for body in (b"", b"<html/>", b"<Response/>", b'{"a": 1}', PROXY)),
        (b"<html>", [LIST]),
        (page(LEAST)[:-9], [LIST]),
    ],
)
def test_answers_of_others(body: bytes, shapes: list[Any]) -> None:
    """What the page of a proxy leaves out is not deleted; nor what comes after a broken end."""
    for shape in shapes:
        text = "the list of instances cannot be read" if shape is LIST else "the answer is not of EC2"
        with pytest.raises(ResponseParserError, match=text):
            parsed(AnswerParsers(), body, shape=shape)


# -- whole calls --


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bytes]]:
    """What comes next."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    found: list[tuple[int, bytes]] = []

    def send(_: URLLib3Session, request: Any) -> AWSResponse:
        status, content = found.pop(0)
        return AWSResponse(request.url, status, {}, HTTPResponse(io.BytesIO(content), preload_content=False))

    monkeypatch.setattr(URLLib3Session, "send", send)
    return found


def refusal(*codes: str) -> bytes:
    errors = "".join(f"<Error><Code>{code}</Code><Message>m {code}</Message></Error>" for code in codes)
    return f"<Response><Errors>{errors}</Errors><RequestID>r</RequestID></Response>".encode()


def _instances(transport: AwsTransport) -> Any:
    found = Ec2(transport).listed("DescribeInstances", "Reservations")
    return [(one.id, one.status) for one in types.records_of(found)]


def _quotas(transport: AwsTransport) -> Any:
    return [(one.code, one.value) for one in Ec2(transport).quotas("ec2")]


def _keys(transport: AwsTransport) -> Any:
    return list(ObjectStore(transport, "images").keys("np"))


QUOTAS = [{"QuotaCode": "L-1", "ErrorReason": {"ErrorCode": "DEPENDENCY"}}, {"QuotaCode": "L-2", "Value": 64.0}]


@pytest.mark.parametrize(
    ("bodies", "ask", "expected"),
    [
        # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/Query-Requests.html, Pagination: a page may have fewer
        # entries than were asked for, or none, and a token. Instance.State is not required.
        ([(200, page(token="b")), (200, page("<instanceId>i-1</instanceId>"))], _instances, [("i-1", "")]),
        ([(200, ec2("DescribeInstances"))], _instances, []),
        # service-quotas, ServiceQuota.ErrorReason stands in place of Value.
        (
            [(200, b'{"Quotas": [], "NextToken": "b"}'), (200, json.dumps({"Quotas": QUOTAS}).encode())],
            _quotas,
            [("L-2", 64.0)],
        ),
        # Answers of success that have nothing in them.
        ([(200, ec2("RunInstances"))], lambda t: run_instances(Ec2(t), {}, 1, lambda: None), "has no instances"),
        ([(200, ec2("DescribeInstanceTypes"))], lambda t: Ec2(t).instance_type("t3.small"), CloudRefused),
        ([(200, ec2("DescribeImages"))], lambda t: Ec2(t).image("ami-1"), types.AwsNotFound),
        ([(200, ec2("DescribeHosts"))], lambda t: Ec2(t).host("h-1"), types.AwsNotFound),
        # s3: 200 with an error in it.
        (
            [(200, b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>again</Message></Error>")],
            lambda t: ObjectStore(t, "images").begin("np", {}),
            CloudAway,
        ),
        # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html: several errors in one answer.
        ([(400, refusal("InvalidInstanceID.NotFound", "Other"))], _instances, types.AwsNotFound),
        # Load balancers and proxies answer with pages, or with nothing.
        ([(404, PROXY)], _instances, "is it a proxy"),
        ([(403, b"<!DOCTYPE html><p>x<br></html>")], _instances, CloudAway),
        ([(413, b"")], _instances, CloudAway),
        ([(502, PROXY)], _instances, CloudAway),
        ([(404, PROXY)], _keys, CloudAway),
    ],
)
def test_answers(
    answers: list[tuple[int, bytes]], bodies: list[tuple[int, bytes]], ask: Callable[[AwsTransport], Any], expected: Any
) -> None:
    """AW-16: nothing that an answer lacks is taken for something that is not there."""
    answers += bodies
    transport = AwsTransport("north", "eu-north-1", None, 0)
    if isinstance(expected, list):
        assert ask(transport) == expected
    else:
        kind = CloudAway if isinstance(expected, str) else expected
        with pytest.raises(kind) as caught:
            ask(transport)
        assert type(caught.value) is kind
        assert not isinstance(expected, str) or expected in str(caught.value)
    transport.close()


def test_pages() -> None:
    """AW-15: lists say how long their pages are: AWS takes twice as many of these. A list that leads in a circle, or
    says that it is cut and not where it goes on (s3, ListObjectsV2Output), has an end.
    """
    rig = Rig(describe_instances={**shown(), "NextToken": "x"}, list_objects_v2={"IsTruncated": True})
    client = rig.adapter.client
    assert client.volumes() == []
    assert rig.region.last("describe_volumes")["MaxResults"] == 500
    with pytest.raises(CloudAway, match="the list does not end"):
        _instances(rig.transport)
    with pytest.raises(CloudAway, match="the list does not end"):
        _keys(rig.transport)


def test_states() -> None:
    """AW-2: the enumerations of botocore's model of EC2: each value has its place."""

    def values(shape: str) -> set[str]:
        return set(MODEL.shape_for(shape).enum)

    assert values("InstanceStateName") == {
        types.PENDING,
        types.RUNNING,
        types.SHUTTING_DOWN,
        types.TERMINATED,
        "stopping",
        "stopped",
    }
    states = {state: types.AwsRecord(instance(state=state)).gone for state in values("InstanceStateName")}
    assert [state for state, gone in states.items() if gone] == [types.TERMINATED]
    lives = [types.AwsRecord({"InstanceId": "i", "InstanceLifecycle": one}) for one in values("InstanceLifecycleType")]
    assert sum(record.spot for record in lives) == 1
    assert values("SnapshotState") - {types.PENDING, types.COMPLETED, types.ERROR} == {"recoverable", "recovering"}
    assert types.AVAILABLE in values("ImageState")
    assert values("AllocationState") >= types.FAILED
    hosts = {one: types.AwsHost({"HostId": "h", "State": one}) for one in values("AllocationState")}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    kept = {state for state, host in hosts.items() if not host.may_be_released(now)}
    assert kept == {"released", "released-permanent-failure", "pending", "configuring"}
