# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.errors`."""

from __future__ import annotations

import pytest

from nodepool.driver.aws.errors import instance_ids_in, meaning
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused, one_line
from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchError,
    LaunchNodepoolException,
    NotFound,
    QuotaException,
)
from nodepool.plan import launch


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("VcpuLimitExceeded", 400, QuotaException),
        ("InstanceLimitExceeded", 400, QuotaException),
        ("MaxSpotInstanceCountExceeded", 400, QuotaException),
        ("VolumeLimitExceeded", 400, QuotaException),
        ("HostLimitExceeded", 400, QuotaException),
        ("InsufficientInstanceCapacity", 500, CapacityException),
        ("InsufficientFreeAddressesInSubnet", 400, CapacityException),
        ("Unsupported", 400, CapacityException),
        ("InvalidInstanceID.NotFound", 400, NotFound),
        ("InvalidInstanceID.Malformed", 400, NotFound),
        ("NoSuchKey", 404, NotFound),
        ("InvalidKeyPair.NotFound", 400, LaunchNodepoolException),
        ("UnauthorizedOperation", 403, LaunchNodepoolException),
        ("MissingInput", 400, LaunchNodepoolException),
        ("AuthFailure", 401, CloudUnavailableException),
        ("ExpiredToken", 403, CloudUnavailableException),
        ("RequestLimitExceeded", 503, CloudUnavailableException),
        ("Anything", 429, CloudUnavailableException),
        ("InternalError", 500, CloudUnavailableException),
        ("Anything", 503, CloudUnavailableException),
        ("InvalidParameterValue", 400, CloudRefused),
    ],
)
def test_class_of_each_code(code: str, status: int, expected: type[Exception]) -> None:
    """AW-16: quota, capacity and the rest can be told apart; reference/driver 13: the class says what follows."""
    found = meaning("Provider north: RunInstances failed", code, "it says\nsomething", status)
    assert isinstance(found, expected)
    assert str(found).startswith(f"Provider north: RunInstances failed: {code}: it says something")
    assert found.code == code


@pytest.mark.parametrize(
    ("code", "kind", "retry"),
    [
        ("VcpuLimitExceeded", launch.Failure.QUOTA, False),
        ("InsufficientInstanceCapacity", launch.Failure.CAPACITY, True),
        ("InvalidSubnetID.NotFound", launch.Failure.SETUP, True),
        ("InvalidParameterValue", launch.Failure.INSTANCE, True),
    ],
)
def test_what_follows(code: str, kind: launch.Failure, retry: bool) -> None:
    """AW-16, L-7: a quota is no failed attempt."""
    found = launch.meaning(meaning("head", code, "text", 400))
    assert (found.kind, found.retry) == (kind, retry)


@pytest.mark.parametrize(
    ("code", "key"),
    [
        ("VcpuLimitExceeded", "error.quota"),
        ("InsufficientInstanceCapacity", "error.capacity"),
        ("InvalidParameterValue", "error.unknown"),
        ("InvalidSubnetID.NotFound", "error.nodepool"),
    ],
)
def test_statistics(code: str, key: str) -> None:
    """CM-6: what has no mapping is counted as unknown."""
    found = meaning("head", code, "text", 400)
    assert isinstance(found, LaunchError)
    assert found.statsd_key == key


@pytest.mark.parametrize(
    ("code", "status", "maybe_done"),
    [("RequestLimitExceeded", 503, False), ("AuthFailure", 401, False), ("InternalError", 500, True)],
)
def test_may_it_have_been_done(code: str, status: int, maybe_done: bool) -> None:
    found = meaning("head", code, "text", status)
    assert isinstance(found, CloudAway)
    assert found.maybe_done is maybe_done


def test_remedies() -> None:
    """The text ends with what to do."""
    assert str(meaning("h", "InvalidKeyPair.NotFound", "t", 400)).endswith(
        "; correct key-name of the label, or import the key pair in this region"
    )
    assert "IAM policy" in str(meaning("h", "UnauthorizedOperation", "t", 403))
    assert "Service Quotas" in str(meaning("h", "VcpuLimitExceeded", "t", 400))


def test_long_texts_are_cut() -> None:
    assert len(one_line("x y" * 1000)) == 500


def test_instances_that_an_error_names() -> None:
    text = "InvalidInstanceID.NotFound: The instance IDs 'i-0a1, i-0b2' do not exist"
    assert instance_ids_in(text) == {"i-0a1", "i-0b2"}
