# SPDX-License-Identifier: Apache-2.0
"""What AWS answers besides what its simulator usually does, read by botocore out of bytes. Each row names where it is
from. The service models are those of botocore: nothing in an answer is required there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.session import Session

from nodepool.driver.aws import types
from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.errors import AwsNotFound, meaning
from nodepool.driver.aws.image_store import ObjectStore
from nodepool.driver.aws.launch_calls import FAILED, AwsHost
from nodepool.driver.aws.transport import AwsTransport
from nodepool.driver.aws.types import PENDING, RUNNING, SHUTTING_DOWN, TERMINATED, AwsRecord
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused

PAGE = b"<html><head><title>404</title></head><body>not here</body></html>"
INSTANCE = "<item><instanceId>i-1</instanceId></item>"


def ec2(operation: str, inner: str = "") -> bytes:
    return (
        f'<{operation}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{inner}</{operation}Response>'.encode()
    )


def reservations(inner: str, token: str = "") -> bytes:
    more = f"<nextToken>{token}</nextToken>" if token else "<nextToken/>"
    found = f"<reservationSet><item><instancesSet>{inner}</instancesSet></item></reservationSet>"
    return ec2("DescribeInstances", found + more)


def refusal(*codes: str) -> bytes:
    errors = "".join(f"<Error><Code>{code}</Code><Message>m {code}</Message></Error>" for code in codes)
    return f"<Response><Errors>{errors}</Errors><RequestID>r</RequestID></Response>".encode()


class Raw:
    """The body of an answer, for botocore."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, *_: Any, **__: Any) -> Any:
        return iter([self._content])

    def read(self, *_: Any) -> bytes:
        content, self._content = self._content, b""
        return content


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bytes]]:
    """What comes next; the last answer is given again and again."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    found: list[tuple[int, bytes]] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        status, content = found.pop(0) if len(found) > 1 else found[0]
        return AWSResponse(request.url, status, {}, Raw(content))

    made = Session.create_client

    def create(session: Session, *arguments: Any, **named: Any) -> Any:
        client = made(session, *arguments, **named)
        client.meta.events.register("before-send", answer)
        return client

    monkeypatch.setattr(Session, "create_client", create)
    monkeypatch.setattr("nodepool.driver.aws.transport.MOST_PAGES", 3)
    monkeypatch.setattr("nodepool.driver.aws.image_store.MOST_PAGES", 3)
    return found


@pytest.fixture
def transport() -> AwsTransport:
    return AwsTransport("north", "eu-north-1", None, 0)


def _instances(transport: AwsTransport) -> Any:
    return [(one.id, one.status) for one in Ec2(transport).instances()]


def _quotas(transport: AwsTransport) -> Any:
    return [(one.code, one.value) for one in Ec2(transport).quotas("ec2")]


def _keys(transport: AwsTransport) -> Any:
    return list(ObjectStore(transport, "images").keys("np"))


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("given", "ask", "expected"),
    [
        # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/Query-Requests.html, Pagination: a page may have fewer
        # entries than were asked for, or none, and a token. Instance.State is not required.
        ([(200, reservations("", "b")), (200, reservations(INSTANCE))], _instances, [("i-1", "")]),
        ([(200, reservations(INSTANCE, "b"))], _instances, "the list does not end"),
        ([(200, ec2("DescribeInstances"))], _instances, []),
        # service-quotas, ServiceQuota.ErrorReason stands in place of Value.
        (
            [
                (200, _json({"Quotas": [], "NextToken": "b"})),
                (
                    200,
                    _json(
                        {
                            "Quotas": [
                                {"QuotaCode": "L-1", "ErrorReason": {"ErrorCode": "DEPENDENCY_SERVICE_ERROR"}},
                                {"QuotaCode": "L-2", "Value": 64.0},
                            ]
                        }
                    ),
                ),
            ],
            _quotas,
            [("L-2", 64.0)],
        ),
        # Answers of success that have nothing in them.
        ([(200, ec2("RunInstances"))], lambda t: Ec2(t).run_instances({}, 1, lambda: None), "has no instances"),
        ([(200, ec2("DescribeInstanceTypes"))], lambda t: Ec2(t).instance_type("t3.small"), CloudRefused),
        # s3, ListObjectsV2Output: a list that says that it is cut, and not where it goes on.
        ([(200, b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>")], _keys, "does not end"),
        # s3: 200 with an error in it.
        (
            [(200, b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>again</Message></Error>")],
            lambda t: ObjectStore(t, "images").begin("np", {}),
            CloudAway,
        ),
        # https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html: several errors in one answer.
        ([(400, refusal("InvalidInstanceID.NotFound", "Other"))], _instances, AwsNotFound),
        # Load balancers and proxies answer with pages, or with nothing.
        ([(404, PAGE)], _instances, "is it a proxy"),
        ([(403, b"<!DOCTYPE html><p>x<br></html>")], _instances, CloudAway),
        ([(413, b"")], _instances, CloudAway),
        ([(502, PAGE)], _instances, CloudAway),
        ([(404, PAGE)], _keys, CloudAway),
    ],
)
def test_answers(
    answers: list[tuple[int, bytes]],
    transport: AwsTransport,
    given: list[tuple[int, bytes]],
    ask: Callable[[AwsTransport], Any],
    expected: Any,
) -> None:
    answers += given
    if isinstance(expected, list):
        assert ask(transport) == expected
        return
    kind = CloudAway if isinstance(expected, str) else expected
    with pytest.raises(kind) as caught:
        ask(transport)
    assert type(caught.value) is kind
    assert not isinstance(expected, str) or expected in str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        # botocore.retries.standard: what is sent again, but for codes of services that are not used.
        *("RequestTimeout", "RequestTimeoutException", "PriorRequestNotComplete", "Throttling", "ThrottlingException"),
        *("ThrottledException", "RequestThrottledException", "TooManyRequestsException", "RequestLimitExceeded"),
        *("BandwidthLimitExceeded", "RequestThrottled", "SlowDown", "EC2ThrottledException"),
        # Models of ebs and service-quotas: exceptions that are a fault of the service.
        *("InternalServerException", "ServiceException"),
        # https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html: no refusal, but this machine's clock.
        "RequestTimeTooSkewed",
    ],
)
def test_codes_that_refuse_nothing(code: str) -> None:
    status = 500 if code == "InternalServerException" else 400
    assert type(meaning("Provider north: it failed", code, "m", status)) is CloudAway


def test_states() -> None:
    """The enumerations of botocore's model of EC2: each value has its place."""
    model = Session().get_service_model("ec2")

    def values(shape: str) -> set[str]:
        return set(model.shape_for(shape).enum)

    assert values("InstanceStateName") == {PENDING, RUNNING, SHUTTING_DOWN, TERMINATED, "stopping", "stopped"}
    lives = [AwsRecord.of({"InstanceId": "i", "InstanceLifecycle": one}) for one in values("InstanceLifecycleType")]
    assert sum(record.spot for record in lives) == 1
    snapshots = {types.PENDING, types.COMPLETED, types.ERROR}
    assert values("SnapshotState") - snapshots == {"recoverable", "recovering"}
    assert types.AVAILABLE in values("ImageState")
    assert values("AllocationState") >= FAILED
    hosts = {one: AwsHost.of({"HostId": "h", "State": one}) for one in values("AllocationState")}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    kept = {state for state, host in hosts.items() if not host.may_be_released(now)}
    assert kept == {"released", "released-permanent-failure", "pending", "configuring"}
