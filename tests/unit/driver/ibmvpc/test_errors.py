# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.errors` (CM-6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
from nodepool.driver.ibmvpc.errors import IbmError, VpcApi, busy, errors_in, exists, meaning, reasons_of, told


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("over_quota", 400, CloudQuota),
        ("cannot_start_capacity", 0, CloudNoCapacity),
        ("cannot_start_ip_address", 0, CloudNoCapacity),
        ("insufficient_ip_addresses", 409, CloudNoCapacity),
        ("validation_unique_failed", 400, CloudRefused),
        ("too_many_requests", 429, CloudAway),
        ("anything", 429, CloudAway),
        ("not_authenticated", 401, LoginRefused),
        ("not_authorized", 403, CloudSetup),
        ("image_not_found", 404, CloudNotFound),
        ("profile_not_found", 400, CloudSetup),
        ("internal_error", 500, CloudAway),
        ("anything", 502, CloudAway),
        ("resource_in_use", 409, CloudRefused),
        ("bad_field", 400, CloudRefused),
    ],
)
def test_meaning(code: str, status: int, kind: type[Exception]) -> None:
    """CM-6: each error is what the launcher does next; the words of IBM are in it."""
    found = meaning("Provider south: creating an instance failed", [IbmError(code, "it says so")], status)
    assert type(found) is kind
    assert f"{code}: it says so" in str(found)
    assert found.code == code or status == 429


def test_throttling_did_nothing() -> None:
    """CM-5: the call is made again."""
    found = meaning("here", [], 429)
    assert isinstance(found, CloudAway)
    assert not found.maybe_done


def test_trouble_may_have_done_it() -> None:
    found = meaning("here", [], 503)
    assert isinstance(found, CloudAway)
    assert found.maybe_done
    assert str(found) == "here: status 503"


def test_name_that_is_taken() -> None:
    """IV-3: names are keys: it may be our own order."""
    found = meaning("here", [IbmError("validation_unique_failed", "Name np1 is used")], 400)
    assert isinstance(found, CloudRefused)
    assert exists(found)
    assert not isinstance(found, CloudSetup)


@pytest.mark.parametrize(
    ("code", "status", "passes"),
    [
        ("conflict", 409, True),
        ("anything", 409, True),
        ("resource_in_use", 400, True),
        ("over_quota", 409, False),
        ("insufficient_ip_addresses", 409, False),
        ("bad_field", 400, False),
    ],
)
def test_what_passes(code: str, status: int, passes: bool) -> None:
    """CM-6: 409 is not always for now only."""
    assert busy(meaning("here", [IbmError(code, "")], status)) is passes


def test_remedy() -> None:
    assert "give the credentials the access policies" in str(meaning("here", [IbmError("forbidden", "")], 403))
    assert "lower max-servers" in str(meaning("here", [IbmError("over_quota", "20 of 20 instances")], 400))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (
            {"errors": [{"code": "over_quota", "message": "m", "target": {"name": "n"}}, {"message": "no code"}]},
            [("over_quota", "m"), ("", "no code")],
        ),
        ({"error_code": "RC-1", "message": "m", "status_code": 409}, [("RC-1", "m")]),
        ({"errors": "odd"}, []),
        ([], []),
        (None, []),
    ],
)
def test_errors_in(data: Any, found: list[tuple[str, str]]) -> None:
    assert errors_in(data) == [IbmError(*one) for one in found]


def test_answers() -> None:
    """An answer that is not JSON is told by its status."""
    api = VpcApi()
    body = json.dumps({"errors": [{"code": "over_quota", "message": "m"}], "trace": "t"}).encode()
    assert isinstance(api.error("here", HttpAnswer(400, {}, body)), CloudQuota)
    assert str(api.error("here", HttpAnswer(400, {}, b"<html>"))) == "here: status 400"


def test_reasons() -> None:
    """Reasons of a status are told like errors."""
    data = {"status_reasons": [{"code": "cannot_start_capacity", "message": "none here", "more_info": "url"}, 7]}
    assert told(reasons_of(data)) == "cannot_start_capacity: none here"
    assert reasons_of({}) == reasons_of(None) == ()
