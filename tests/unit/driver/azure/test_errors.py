# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.errors` (AZ-10, CM-6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodepool.driver.azure.errors import ArmApi, AzureError, CloudBusy, errors_in, meaning, pause_before_throttling
from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    LoginRefused,
)
from nodepool.driver.framework.http.plain_http import HttpAnswer

EXCEEDED = (
    "Operation could not be completed as it results in exceeding approved Total Regional vCPUs quota. Additional "
    "details - Location: northeurope, Current Limit: 10, Current Usage: 9, Additional Required: 2"
)


def told(code: str, message: str = "it says", status: int = 409) -> Exception:
    return meaning("here", [AzureError(code, message)], status)


@pytest.mark.parametrize(
    ("code", "message", "status", "kind"),
    [
        ("OperationNotAllowed", EXCEEDED, 409, CloudQuota),
        ("QuotaExceeded", "of cores", 409, CloudQuota),
        ("PublicIPCountLimitReached", "no more", 400, CloudQuota),
        ("SubnetIsFull", "no more", 400, CloudQuota),
        ("AllocationFailed", "none here", 409, CloudNoCapacity),
        ("ZonalAllocationFailed", "none here", 0, CloudNoCapacity),
        ("SkuNotAvailable", "not in the zone", 409, CloudNoCapacity),
        ("ExpiredAuthenticationToken", "old", 401, LoginRefused),
        ("AuthorizationFailed", "no", 403, CloudSetup),
        ("RequestDisallowedByPolicy", "no", 403, CloudSetup),
        ("ResourceNotFound", "no", 404, CloudNotFound),
        ("NicReservedForAnotherVm", "wait", 400, CloudBusy),
        ("InternalServerError", "sorry", 500, CloudAway),
        ("Whatever", "sorry", 503, CloudAway),
        ("TooManyRequests", "slow down", 429, CloudAway),
        ("SubscriptionRequestsThrottled", "slow down", 0, CloudAway),
        ("InvalidParameter", "size", 400, CloudSetup),
    ],
)
def test_kinds(code: str, message: str, status: int, kind: type[Exception]) -> None:
    """AZ-10 (not repeated): quota, capacity, refusal and throttling are told apart, with the words of Azure."""
    error = told(code, message, status)
    assert type(error) is kind
    assert message in str(error)


def test_operation_not_allowed_without_quota() -> None:
    """AZ-10: the same code means other things, too."""
    assert type(told("OperationNotAllowed", "The VM is being deleted.")) is CloudBusy
    assert type(told("OperationNotAllowed", "The disk is attached to VM x.")) is CloudRefused


def test_no_mapping() -> None:
    """CM-6: what has no mapping is counted as unknown."""
    error = told("SomethingNew")
    assert type(error) is CloudRefused
    assert error.statsd_key == "error.unknown"


def test_details_say_more() -> None:
    """AZ-10: the code that says something may be in the details, or in a message that is JSON."""
    inner = {"error": {"code": "ZonalAllocationFailed", "message": "none in zone 1"}}
    data: dict[str, Any] = {
        "error": {
            "code": "DeploymentFailed",
            "message": "At least one operation failed",
            "details": [{"code": "Conflict", "message": json.dumps(inner)}],
        }
    }
    found = errors_in(data)
    assert [error.code for error in found] == ["DeploymentFailed", "Conflict", "ZonalAllocationFailed"]
    error = meaning("here", found, 409)
    assert isinstance(error, CloudNoCapacity)
    assert str(error).endswith(
        "DeploymentFailed: At least one operation failed / Conflict / ZonalAllocationFailed: none in zone 1"
    )


def test_endless_details_end() -> None:
    data: dict[str, Any] = {"code": "A", "message": "m"}
    data["details"] = [data]
    assert len(errors_in(data)) == 5


@pytest.mark.parametrize("data", [None, [], "text", {"error": "text"}, {"error": {"code": 7, "details": 7}}])
def test_odd_answers(data: Any) -> None:
    """What is no error of Azure's, such as the page of a proxy, is told by its status."""
    assert errors_in(data) == []
    answer = HttpAnswer(502, {}, b"<html>" if data is None else json.dumps(data).encode())
    error = ArmApi().error("here", answer)
    assert isinstance(error, CloudAway)
    assert error.maybe_done
    assert "502" in str(error)


def test_throttled_was_not_done() -> None:
    """CM-5."""
    error = told("TooManyRequests", status=429)
    assert isinstance(error, CloudAway)
    assert not error.maybe_done


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"x-ms-ratelimit-remaining-subscription-writes": "199"}, None),
        ({"x-ms-ratelimit-remaining-subscription-writes": "2"}, 1.0),
        ({"x-ms-ratelimit-remaining-subscription-reads": "many"}, None),
        ({"x-ms-ratelimit-remaining-resource": "Microsoft.Compute/PutVM3Min;239,Microsoft.Compute/PutVM30Min;1"}, 5.0),
        ({"x-ms-ratelimit-remaining-resource": "Microsoft.Compute/PutVM3Min;239"}, None),
        (
            {
                "x-ms-ratelimit-remaining-resource": "Microsoft.Compute/LowCostGetSubscriptionMaximum;23996,"
                "Microsoft.Compute/LowCostGetResource;1"
            },
            None,
        ),
        ({"x-ms-ratelimit-remaining-resource": "Microsoft.Compute/LowCostGetSubscriptionMaximum;2"}, 5.0),
    ],
)
def test_pause_before_throttling(headers: dict[str, str], seconds: float | None) -> None:
    """CM-5: the class slows down before Azure refuses calls."""
    assert pause_before_throttling(headers) == seconds
    assert ArmApi().seconds_left_alone("write", HttpAnswer(200, headers, b"")) == seconds
