# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.answers` and `answer_parser`: botocore's parser says the same."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

import pytest
from botocore.parsers import ResponseParserError, ResponseParserFactory
from botocore.session import Session
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.aws_lists import answer
from nodepool.driver.aws.answers import AnswerParsers
from nodepool.driver.aws.types import AwsRecord

MODEL = Session().get_service_model("ec2")
SHAPE = MODEL.operation_model("DescribeInstances").output_shape
HEAD = '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
TAIL = "</DescribeInstancesResponse>"


def parsed(factory: ResponseParserFactory, body: bytes, status: int = 200, shape: Any = SHAPE) -> dict[str, Any]:
    found = factory.create_parser("ec2").parse({"body": body, "headers": {"a": "b"}, "status_code": status}, shape)
    assert isinstance(found, dict)
    return found


def records(found: dict[str, Any]) -> list[AwsRecord]:
    return [AwsRecord.of(data) for reservation in found["Reservations"] for data in reservation["Instances"]]


def both(body: bytes) -> tuple[list[AwsRecord], list[AwsRecord]]:
    """What our parser finds, and what botocore's does."""
    return records(parsed(AnswerParsers(), body)), records(parsed(ResponseParserFactory(), body))


def page(*instances: str, token: str = "") -> bytes:
    """An answer with a reservation for each instance."""
    items = "".join(f"<item><instancesSet><item>{text}</item></instancesSet></item>" for text in instances)
    next_token = f"<nextToken>{token}</nextToken>" if token else ""
    return f"{HEAD}<reservationSet>{items}</reservationSet>{next_token}{TAIL}".encode()


LEAST = "<instanceId>i-1</instanceId><instanceState><code>0</code><name>pending</name></instanceState>"


def test_usual_instances() -> None:
    ours, theirs = both(answer(30))
    assert len(ours) == 30
    assert ours == theirs
    assert ours[7].metadata["nodepool_node_id"] == "0000000007"


@pytest.mark.parametrize(
    "more",
    [
        "",
        "<tagSet/><networkInterfaceSet/><blockDeviceMapping/><placement/><stateReason/><ipAddress/>",
        "<instanceLifecycle>spot</instanceLifecycle><amiLaunchIndex>7</amiLaunchIndex>",
        "<stateReason><code>Server.SpotInstanceTermination</code><message>a &amp; b</message></stateReason>",
        "<placement><hostId>h-1</hostId><availabilityZone>a</availabilityZone></placement>",
        "<tagSet><item><key>empty</key><value/></item><item><key>none</key></item></tagSet>",
        "<tagSet><item><key>nodepool_batch</key><value>7 8</value></item></tagSet><amiLaunchIndex>1</amiLaunchIndex>",
        "<blockDeviceMapping><item><deviceName>b</deviceName></item><item><ebs><volumeId>vol-1</volumeId></ebs></item>"
        "<item><ebs><volumeId>vol-2</volumeId></ebs></item></blockDeviceMapping>",
        "<networkInterfaceSet><item/><item><ipv6AddressesSet><item><ipv6Address>::1</ipv6Address></item>"
        "</ipv6AddressesSet></item></networkInterfaceSet>",
        "<futureField><item>1</item></futureField>",
    ],
)
def test_parts(more: str) -> None:
    """Each field that is used: there, empty, and absent."""
    ours, theirs = both(page(LEAST + more))
    assert ours == theirs


KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF))


@given(tags=st.dictionaries(KEYS, VALUES, max_size=4))
def test_tags(tags: dict[str, str]) -> None:
    """Whatever stands in them."""
    items = "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>" for key, value in tags.items()
    )
    ours, theirs = both(page(f"{LEAST}<tagSet>{items}</tagSet>"))
    assert ours == theirs
    assert ours[0].metadata == tags


def test_pages() -> None:
    """The token of the next page, and several instances of a reservation."""
    body = page(f"{LEAST}</item><item>{LEAST.replace('i-1', 'i-2')}", token="more")
    found = parsed(AnswerParsers(), body)
    assert [record.id for record in records(found)] == ["i-1", "i-2"]
    assert found["NextToken"] == "more"
    assert found["ResponseMetadata"] == {"HTTPStatusCode": 200, "HTTPHeaders": {"a": "b"}}
    assert "NextToken" not in parsed(AnswerParsers(), page())
    assert records(parsed(AnswerParsers(), page())) == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"<html/>", b"not XML", f"{HEAD}<reservationSet>".encode()])
def test_another_answer(body: bytes) -> None:
    """A proxy's page is no list without instances."""
    with pytest.raises(ResponseParserError):
        parsed(AnswerParsers(), body)


def test_errors_are_left_to_botocore() -> None:
    body = b"<Response><Errors><Error><Code>AuthFailure</Code><Message>m</Message></Error></Errors></Response>"
    assert parsed(AnswerParsers(), body, 401)["Error"] == {"Code": "AuthFailure", "Message": "m"}


def test_other_calls_are_left_to_botocore() -> None:
    shape = MODEL.operation_model("DescribeKeyPairs").output_shape
    key = b"<keySet><item><keyName>zuul</keyName></item></keySet>"
    body = b'<DescribeKeyPairsResponse xmlns="x">' + key + b"</DescribeKeyPairsResponse>"
    assert parsed(AnswerParsers(), body, shape=shape)["KeyPairs"] == [{"KeyName": "zuul"}]
    assert type(AnswerParsers().create_parser("json")) is type(ResponseParserFactory().create_parser("json"))


RUN = MODEL.operation_model("RunInstances").output_shape


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Hello</body></html>",
        b"<html/>",
        b"<Response/>",
        b'{"a": 1}',
        b"",
    ],
)
@pytest.mark.parametrize("shape", [RUN, None])
def test_answers_of_others(body: bytes, shape: Any) -> None:
    """What the page of a proxy leaves out is not gone."""
    with pytest.raises(ResponseParserError, match="EC2 does not answer, but somebody else"):
        parsed(AnswerParsers(), body, shape=shape)


def test_other_answers() -> None:
    head = b'<?xml version="1.0" encoding="UTF-8"?>\n<RunInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
    body = head + b"<requestId>1</requestId><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet>"
    found = parsed(AnswerParsers(), body + b"</RunInstancesResponse>", shape=RUN)
    assert found["Instances"] == [{"InstanceId": "i-1"}]
