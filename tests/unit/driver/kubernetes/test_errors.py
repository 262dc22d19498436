# SPDX-License-Identifier: Apache-2.0
"""What answers of the API mean."""

from __future__ import annotations

import json

import pytest

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    LoginRefused,
)
from nodepool.driver.kubernetes.errors import InvalidObject, NoTokenYet, NotYet, error_of, exists
from nodepool.plan.launch import Failure, classify


def answer(status: int, reason: str, message: str) -> Exception:
    body = {"kind": "Status", "reason": reason, "message": message, "code": status}
    return error_of("Provider p: POST /x", status, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind"),
    [
        (403, "Forbidden", 'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1', CloudQuota),
        (403, "Forbidden", 'pods "a" is forbidden: failed quota: q: must specify cpu', CloudQuota),
        (403, "Forbidden", "maximum cpu usage per Container is 1, but limit is 2", CloudQuota),
        (403, "Forbidden", "user x cannot create more than 3 project(s).", CloudQuota),
        (403, "Forbidden", 'User "x" cannot create resource "pods"', CloudSetup),
        (403, "Forbidden", 'pods "a" is forbidden: error looking up service account a/default', NotYet),
        (500, "ServerTimeout", 'No API token found for service account "default", retry', NoTokenYet),
        (404, "NotFound", 'namespaces "a" not found', CloudNotFound),
        (401, "Unauthorized", "Unauthorized", LoginRefused),
        (409, "AlreadyExists", "there is one", CloudRefused),
        (410, "Expired", "too old resource version", CloudRefused),
        (422, "Invalid", "spec.containers[0].image: Required value", InvalidObject),
        (429, "TooManyRequests", "slow down", CloudAway),
        (503, "ServiceUnavailable", "no", CloudAway),
    ],
)
def test_meaning(status: int, reason: str, message: str, kind: type[Exception]) -> None:
    """KU-10: quotas and limits wait; rights are told with a remedy; what never works ends the label."""
    error = answer(status, reason, message)
    assert type(error) is kind
    assert message in str(error)


def test_what_follows() -> None:
    """KU-10: a used up quota is no failed attempt; a wrong object takes the label out of service."""
    assert classify(answer(403, "Forbidden", "exceeded quota: q")) is Failure.QUOTA
    assert classify(answer(422, "Invalid", "no")) is Failure.CONFIGURATION
    assert classify(answer(403, "Forbidden", "no")) is Failure.SETUP


def test_refused_for_now_was_not_done() -> None:
    """KU-10: what was surely not done is not looked for."""
    throttled, broken = answer(429, "TooManyRequests", ""), answer(500, "InternalError", "")
    assert isinstance(throttled, CloudAway)
    assert not throttled.maybe_done
    assert isinstance(broken, CloudAway)
    assert broken.maybe_done


def test_answer_that_is_no_json() -> None:
    """KU-10: a proxy's page is told in one line."""
    assert "Bad Gateway here" in str(error_of("head", 502, b"<html>Bad\nGateway here"))


def test_exists() -> None:
    """KU-2: names are keys; other conflicts are none of a name."""
    found, conflict = answer(409, "AlreadyExists", ""), answer(409, "Conflict", "")
    assert isinstance(found, CloudRefused)
    assert isinstance(conflict, CloudRefused)
    assert exists(found)
    assert not exists(conflict)
