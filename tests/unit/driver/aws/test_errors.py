# SPDX-License-Identifier: Apache-2.0
"""What errors mean, and one call with its pace, login and end (AW-15, AW-16, CM-5, CM-6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore import exceptions

from nodepool.driver.aws.client import READ, RUN, AwsTransport
from nodepool.driver.aws.instances import ended
from nodepool.driver.aws.types import AwsRecord, instance_of_fleet, meaning
from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudRefused,
)
from nodepool.driver.framework.http.rest_calls import REFUSED_SECONDS
from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchNodepoolException,
    NotFound,
    QuotaException,
)
from nodepool.plan.launch import meaning as meaning_for_a_launch
from tests.support.manual_clock import ManualClock
from tests.unit.driver.aws.support import Paced, Region, instance, rows

#: Class of each kind, whether it may have been done, what follows for a launch, whether it may be tried again.
KINDS: dict[str, tuple[type[Exception], bool | None, str, bool]] = {
    "QUOTA": (QuotaException, None, "quota", False),
    "CAPACITY": (CapacityException, None, "capacity", True),
    "ABSENT": (NotFound, None, "nodepool", True),
    "SETUP": (LaunchNodepoolException, None, "nodepool", True),
    "REFUSED": (CloudRefused, None, "unknown", True),
    "LOGIN": (CloudUnavailableException, False, "", True),
    "PUT_OFF": (CloudUnavailableException, False, "", True),
    "AWAY": (CloudUnavailableException, True, "", True),
}


@pytest.mark.parametrize("row", rows("codes"))
def test_class_of_each_code(row: str) -> None:
    """AW-16, L-7, CM-6: quota, capacity and the others differ; reference/driver 13: the class says what
    follows, and the text what to do. A quota is no failed attempt; what has no mapping is counted as unknown.
    """
    head, _, remedy = row.partition("; ")
    kind, status, *codes = head.split()
    expected, done, key, retry = KINDS[kind]
    for code in codes:
        found = meaning("Provider north: RunInstances failed", code, "it says\nsomething", int(status))
        assert isinstance(found, expected)
        assert isinstance(found, CloudAway) is (done is not None)
        assert getattr(found, "maybe_done", None) is done
        assert str(found).startswith(f"Provider north: RunInstances failed: {code}: it says something")
        assert (remedy in str(found), ";" in str(found)) == (True, bool(remedy))
        assert found.code == code
        assert meaning_for_a_launch(found).retry is retry
        assert not key or getattr(found, "statsd_key", "") == f"error.{key}"


@pytest.mark.parametrize(("expected", "code"), rows("ends"))
def test_why_an_instance_ended(expected: type[Exception], code: str) -> None:
    """AW-16, AW-2: quota and lack of room that show only later; in the words of AWS."""
    found = ended("here", AwsRecord(instance(state="terminated", StateReason={"Code": code, "Message": "m"})))
    assert type(found) is expected
    assert f"i-1 is terminated: {f'{code}: m' if code else 'AWS gives no reason'}" in str(found)


@pytest.mark.parametrize(("codes", "expected", "words"), rows("answers_of_fleets"))
def test_answer_of_a_fleet(codes: list[str], expected: type[Exception], words: str) -> None:
    """AW-16: one without an instance has the errors of all types, which mean what they mean elsewhere. Its status is
    200.
    """
    errors = [{"ErrorCode": code, "ErrorMessage": "m"} for code in codes]
    with pytest.raises(expected) as raised:
        instance_of_fleet("CreateFleet failed", {"FleetId": "f", "Instances": [], "Errors": errors})
    assert words in str(raised.value)


# -- a call --


def rig(rate: float = 2) -> tuple[Paced, Region]:
    region = Region(checked=False)
    return Paced(region, rate), region


def call(transport: AwsTransport, kind: str = RUN, **more: Any) -> dict[str, Any]:
    return transport.call("ec2", kind, "RunInstances", more.pop("arguments", {"MinCount": 1}), **more)


@pytest.mark.parametrize(("kind", "given", "expected", "done", "words"), rows("errors_of_botocore"))
def test_errors_of_botocore(
    kind: Any, given: dict[str, Any], expected: type[Exception], done: bool | None, words: str
) -> None:
    """reference/driver 13: who calls can tell what was done, and reads what to do; long texts are cut."""
    transport, region = rig()
    made = getattr(exceptions, kind)(**given) if isinstance(kind, str) else kind(*given.values())
    region.answers["run_instances"] = made
    with pytest.raises(expected) as caught:
        call(transport)
    text = str(caught.value)
    assert text.startswith("Provider north: RunInstances failed: ")
    assert words in text.replace("URL: ", "")
    assert done is None or getattr(caught.value, "maybe_done", None) is done
    if words == "closed":
        assert getattr(caught.value, "code", "") == "ConnectionClosedError"


def test_role_that_comes_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: ManualClock) -> None:
    """AW-1: making a provider asks nothing. A profile that is not there shows with the first call, in words; a machine
    gets its role, or its metadata service is ready, after the daemon was started.
    """
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    transport = AwsTransport("north", "eu-north-1", "ci", 2)
    with pytest.raises(CloudAway, match=r"profile \(ci\) could not be found; check the credentials"):
        call(transport)
    transport.close()
    transport = AwsTransport("north", "eu-north-1", None, 0)
    for _ in range(2):
        with pytest.raises(CloudAway, match="Unable to locate credentials; check the credentials"):
            transport.call("ec2", READ, "DescribeInstances", {})
        # As a role does that the metadata service begins to show.
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    clock.now += REFUSED_SECONDS
    with pytest.raises(CloudAway, match="Could not connect"):
        transport.call("ec2", READ, "DescribeInstances", {})
    transport.close()
