# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.transport`."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from botocore import exceptions
from botocore.parsers import ResponseParserError

from nodepool.driver.aws import transport as t
from nodepool.driver.framework.cloud_errors import CloudAway, CloudQuota, CloudSetup
from nodepool.driver.framework.http.rest_calls import REFUSED_SECONDS
from tests.support.manual_clock import ManualClock
from tests.unit.driver.aws.support import Region, error

NO_ARGUMENTS: dict[str, Any] = {}


class Paced(t.AwsTransport):
    """Sleeps by moving its clock."""

    def __init__(self, region: Region, rate: float = 2) -> None:
        self.clock = ManualClock()
        super().__init__("north", "eu-north-1", None, rate, lambda service: region, self.clock)

    def sleep(self, seconds: float) -> None:
        self.clock.now += seconds


@pytest.fixture
def region() -> Region:
    return Region()


@pytest.fixture
def transport(region: Region) -> Paced:
    return Paced(region)


def call(transport: t.AwsTransport, kind: str = t.RUN) -> dict[str, Any]:
    return transport.call("ec2", kind, "RunInstances", {"MinCount": 1})


def test_a_call(transport: Paced, region: Region) -> None:
    assert call(transport) == region.answers["run_instances"]
    assert region.calls == [("run_instances", {"MinCount": 1})]


def test_pages(transport: Paced, region: Region) -> None:
    """All pages of a list, each a call."""
    region.answers["describe_volumes"] = [{"Volumes": [1, 2], "NextToken": "x"}, {"Volumes": [3]}]
    found = transport.pages("ec2", t.READ, "DescribeVolumes", {"MaxResults": 2}, "Volumes")
    entries: list[Any] = list(found)
    assert entries == [1, 2, 3]
    assert [arguments for _, arguments in region.calls] == [{"MaxResults": 2}, {"MaxResults": 2, "NextToken": "x"}]


@pytest.mark.parametrize(
    ("kind", "burst", "rate"),
    [(t.RUN, 5, 2), (t.TERMINATE, 100, 5), (t.TAG, 100, 10), (t.CHANGE, 50, 5), (t.READ, 100, 20)],
)
def test_pace(transport: Paced, region: Region, kind: str, burst: int, rate: float) -> None:
    """AW-15, CM-5: each class by itself: nine tenths of a burst as EC2 takes it, then ``rate``, and of other
    classes as many more as EC2 takes.
    """
    at_once, left = divmod(0.9 * burst, 1)
    for _ in range(int(at_once)):
        call(transport, kind)
    assert transport.clock.now == 1000
    for _ in range(10):
        call(transport, kind)
    end = pytest.approx(1000 + (10 - left) / rate)
    assert transport.clock.now == end
    call(transport, t.QUOTAS)
    assert transport.clock.now == end, "the others do not wait"


def test_no_limit(region: Region) -> None:
    """``rate: 0``."""
    transport = Paced(region, rate=0)
    for _ in range(1000):
        call(transport)
    assert transport.clock.now == 1000


def test_throttled(transport: Paced, region: Region, caplog: pytest.LogCaptureFixture) -> None:
    """CM-5, AW-16: a call that is put off is made again, after a pause of its class."""
    region.answers["run_instances"] = [error("RequestLimitExceeded", status=503), {"done": True}]
    with caplog.at_level(logging.INFO):
        assert call(transport) == {"done": True}
    assert region.count("run_instances") == 2
    assert transport.clock.now >= 1001
    assert "RunInstances is put off by AWS (RequestLimitExceeded)" in caplog.text


def test_throttled_for_ever(transport: Paced, region: Region) -> None:
    """It is an error at last: nothing was done."""
    region.answers["run_instances"] = error("Throttling")
    with pytest.raises(CloudAway) as caught:
        call(transport)
    assert not caught.value.maybe_done
    assert region.count("run_instances") == t.THROTTLED_ATTEMPTS


def test_is_it_still_wanted(transport: Paced, region: Region) -> None:
    """Asked each time that the turn has come."""
    asked: list[int] = []
    region.answers["run_instances"] = [error("Throttling"), {}]
    transport.call("ec2", t.RUN, "RunInstances", NO_ARGUMENTS, lambda: asked.append(region.count("run_instances")))
    assert asked == [0, 1]


def test_arguments_when_the_turn_has_come(transport: Paced, region: Region) -> None:
    """Asked for once."""
    asked: list[float] = []

    def arguments() -> dict[str, Any]:
        asked.append(transport.clock.now)
        return NO_ARGUMENTS

    for _ in range(4):
        call(transport)
    region.answers["run_instances"] = [error("Throttling"), {}]
    transport.call("ec2", t.RUN, "RunInstances", arguments)
    assert asked == [1000.25]


@pytest.mark.parametrize(
    ("raised", "expected", "maybe_done", "words"),
    [
        (exceptions.EndpointConnectionError(endpoint_url="http://x"), CloudAway, False, "http://x"),
        (exceptions.EndpointConnectionError(endpoint_url="http://x"), CloudAway, False, "; correct region-name or "),
        (ValueError("Invalid endpoint: x"), CloudAway, False, "; correct AWS_ENDPOINT_URL"),
        (exceptions.ConnectTimeoutError(endpoint_url="http://x"), CloudAway, False, "http://x"),
        (exceptions.ReadTimeoutError(endpoint_url="http://x"), CloudAway, True, "http://x"),
        (exceptions.ConnectionClosedError(endpoint_url="http://x"), CloudAway, True, "closed"),
        (exceptions.NoCredentialsError(), CloudAway, False, "check the credentials"),
        (exceptions.PartialCredentialsError(provider="env", cred_var="x"), CloudAway, False, "check the credentials"),
        (exceptions.ProfileNotFound(profile="ci"), CloudAway, False, "(ci)"),
        (exceptions.InvalidRegionError(region_name="no"), CloudAway, False, "correct region-name"),
        (exceptions.ParamValidationError(report="Unknown parameter"), CloudSetup, None, "Unknown parameter"),
        (ResponseParserError("<html>"), CloudAway, True, "<html>"),
        (ConnectionResetError("reset"), CloudAway, True, "reset"),
        (error("VcpuLimitExceeded"), CloudQuota, None, "VcpuLimitExceeded"),
    ],
)
def test_errors(
    transport: Paced,
    region: Region,
    raised: Exception,
    expected: type[Exception],
    maybe_done: bool | None,
    words: str,
) -> None:
    """reference/driver 13: who calls can tell what was done, and reads what to do."""
    region.answers["run_instances"] = raised
    with pytest.raises(expected) as caught:
        call(transport)
    assert str(caught.value).startswith("Provider north: RunInstances failed: ")
    assert words in str(caught.value)
    if maybe_done is not None:
        assert getattr(caught.value, "maybe_done", None) is maybe_done


def test_stopped(region: Region) -> None:
    """No calls begin any more, and those that wait end."""
    transport = t.AwsTransport("north", "eu-north-1", None, 0.001, lambda service: region)
    call(transport)
    transport.close()
    assert region.closed
    for ending in (lambda: call(transport), lambda: transport.sleep(100)):
        with pytest.raises(CloudAway, match="the provider was stopped") as caught:
            ending()
        assert not caught.value.maybe_done


def test_making_it_asks_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """AW-1: a profile that is not there shows with the first call, in words."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    transport = t.AwsTransport("north", "eu-north-1", "ci", 2)
    with pytest.raises(CloudAway, match=r"profile \(ci\) could not be found; check the credentials"):
        call(transport)
    transport.close()


def test_role_that_comes_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """AW-1: a machine gets its role, or its metadata service is ready, after the daemon was started."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    clock = ManualClock()
    transport = t.AwsTransport("north", "eu-north-1", None, 0, clock=clock)
    for _ in range(2):
        with pytest.raises(CloudAway, match="Unable to locate credentials; check the credentials"):
            transport.call("ec2", t.READ, "DescribeInstances", {})
        # As a role does that the metadata service begins to show.
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    clock.now += REFUSED_SECONDS
    with pytest.raises(CloudAway, match="Could not connect"):
        transport.call("ec2", t.READ, "DescribeInstances", {})
    transport.close()


def test_secrets_stay_out_of_the_log() -> None:
    """botocore writes session tokens at DEBUG, also when the operator wants everything."""
    logger = logging.getLogger("botocore")
    level = logger.level
    try:
        logger.setLevel(logging.DEBUG)
        t.AwsTransport("north", "eu-north-1", None, 2).close()
        assert not logging.getLogger("botocore.auth").isEnabledFor(logging.DEBUG)
    finally:
        logger.setLevel(level)
