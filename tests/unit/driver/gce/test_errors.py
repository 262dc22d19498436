# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.errors`."""

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
from nodepool.driver.gce.errors import GceApi, errors_in, operation_failure

HEAD = "Provider north: creating an instance failed"


def answer(status: int, reason: str = "", message: str = "it says", **more: Any) -> HttpAnswer:
    """As Google answers."""
    errors = [{"domain": "global", "reason": reason, "message": message}] if reason else []
    body = {"error": {"code": status, "message": message, "errors": errors, **more}}
    return HttpAnswer(status, {}, json.dumps(body).encode())


def operation(code: str, message: str = "it says", status: int = 400, **more: Any) -> dict[str, Any]:
    """As Google shows one that is over."""
    error = {"code": code, "message": message, **more}
    return {"name": "operation-1", "status": "DONE", "httpErrorStatusCode": status, "error": {"errors": [error]}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (answer(403, "quotaExceeded"), CloudQuota),
        (answer(503, "insufficientCapacity"), CloudNoCapacity),
        (answer(403, "rateLimitExceeded"), CloudAway),
        (answer(429, "whatever"), CloudAway),
        (answer(403, "quotaExceeded", "Quota exceeded for 'Queries per minute' of service"), CloudAway),
        (answer(401, "authError"), LoginRefused),
        (answer(403, "forbidden"), CloudSetup),
        (answer(403, "accessNotConfigured"), CloudSetup),
        (answer(412, "conditionNotMet"), CloudSetup),
        (answer(400, "invalid"), CloudSetup),
        (answer(404, "notFound"), CloudNotFound),
        (answer(404, "notFound", "The resource 'projects/p/zones/z/machineTypes/m' was not found"), CloudNotFound),
        # Neither is a label broken then, nor an instance deleted.
        (answer(404, "notFound", "The resource 'projects/p' was not found"), CloudSetup),
        (answer(409, "alreadyExists"), CloudRefused),
        (answer(400, "resourceNotReady"), CloudRefused),
        (answer(500, "backendError"), CloudAway),
        (answer(503), CloudAway),
        (HttpAnswer(502, {}, b"<html>"), CloudAway),
    ],
)
def test_answers(given: HttpAnswer, expected: type[Exception]) -> None:
    """CM-6: what the launcher does next."""
    found = GceApi().error(HEAD, given)
    assert type(found) is expected
    assert str(found).startswith(f"{HEAD}: ")


@pytest.mark.parametrize(
    ("message", "remedy"), [("Unknown zone.", "correct zone of the provider"), ("Bad size.", "check instance-type, ")]
)
def test_remedy_of_what_is_invalid(message: str, remedy: str) -> None:
    """CM-6: Google has one code for a zone that does not exist and for a label whose parts do not fit together."""
    assert f"; {remedy}" in str(GceApi().error(HEAD, answer(400, "invalid", message)))


def test_remedy_without_the_project() -> None:
    """CM-6: whatever is asked for, Google says that the project is not there."""
    found = GceApi().error(HEAD, answer(404, "notFound", "The resource 'projects/other' was not found"))
    assert str(found).endswith("'projects/other' was not found; correct project")


def test_what_was_surely_not_done() -> None:
    """What Google put off was not carried out; after an error of the server nobody knows."""
    found = [GceApi().error(HEAD, given) for given in (answer(403, "rateLimitExceeded"), answer(500, "backendError"))]
    assert [error.maybe_done for error in found if isinstance(error, CloudAway)] == [False, True]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (operation("QUOTA_EXCEEDED", status=403), CloudQuota),
        (operation("IP_SPACE_EXHAUSTED"), CloudQuota),
        (operation("ZONE_RESOURCE_POOL_EXHAUSTED", status=503), CloudNoCapacity),
        (operation("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", status=503), CloudNoCapacity),
        (operation("CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", status=403), CloudAway),
        (operation("PERMISSIONS_ERROR", status=403), CloudSetup),
        (operation("INTERNAL_ERROR", status=500), CloudAway),
        (operation("RESOURCE_NOT_FOUND", status=404), CloudNotFound),
        (operation("UNSUPPORTED_OPERATION"), CloudRefused),
        ({"httpErrorStatusCode": 500}, CloudAway),
    ],
)
def test_operations(given: dict[str, Any], expected: type[Exception]) -> None:
    """GC-5 (not repeated): an operation is read to its end, and told apart."""
    assert type(operation_failure(HEAD, given)) is expected


STOCKOUT = "The zone 'projects/p/zones/us-central1-b' does not have enough resources available to fulfill the request."
#: What Google said to others, who reported it: where, what, what the launcher does next, and what it tells.
REPORTED = [
    pytest.param(
        operation(
            "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
            f"{STOCKOUT}  '(resource type:compute)'.",
            503,
            errorDetails=[
                {"help": {"links": [{"url": "https://cloud.google.com/compute/docs/resource-error"}]}},
                {"localizedMessage": {"locale": "en-US", "message": "A n1-standard-4 VM instance is unavailable"}},
                {
                    "errorInfo": {
                        "domain": "compute.googleapis.com",
                        "reason": "resource_availability",
                        "metadatas": {"vmType": "n1-standard-4", "zone": "us-central1-b", "attachment": ""},
                    }
                },
            ],
        ),
        CloudNoCapacity,
        "does not have enough resources available",
        id="kubernetes/k8s.io#9834",
    ),
    pytest.param(
        operation("ZONE_RESOURCE_POOL_EXHAUSTED", f"{STOCKOUT}  Try a different zone, or try again later.", 503),
        CloudNoCapacity,
        "Try a different zone",
        id="CCExtractor/sample-platform#901",
    ),
    pytest.param(
        operation("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", f"{STOCKOUT} '(resource type:pd-standard)'.", 503),
        CloudNoCapacity,
        "resource type:pd-standard",
        id="cirruslabs/cirrus-ci-docs#131",
    ),
    pytest.param(
        answer(403, "quotaExceeded", "Quota 'IN_USE_ADDRESSES' exceeded.  Limit: 4.0 in region us-central1."),
        CloudQuota,
        "IN_USE_ADDRESSES",
        id="kelseyhightower/kubernetes-the-hard-way#47",
    ),
    pytest.param(
        operation("QUOTA_EXCEEDED", "Quota 'CPUS_ALL_REGIONS' exceeded.  Limit: 12.0 globally.", 403),
        CloudQuota,
        "CPUS_ALL_REGIONS",
        id="GoogleCloudPlatform/ai-on-gke#849",
    ),
    pytest.param(
        answer(
            403,
            "rateLimitExceeded",
            "Quota exceeded for quota group 'ReadGroup' and limit 'Read requests per 100 seconds' of service "
            "'compute.googleapis.com' for consumer 'project_number:123456'.",
        ),
        CloudAway,
        "ReadGroup",
        id="hashicorp/terraform-provider-google#8360",
    ),
    pytest.param(
        answer(
            403,
            "rateLimitExceeded",
            "Rate Limit Exceeded",
            details=[
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "domain": "compute.googleapis.com",
                    "metadatas": {"containerId": "76352966089", "containerType": "PROJECT", "location": "global"},
                    "reason": "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED",
                }
            ],
        ),
        CloudAway,
        "(CONCURRENT_OPERATIONS_QUOTA_EXCEEDED in global)",
        id="terraform-google-modules/terraform-example-foundation, troubleshooting",
    ),
]


@pytest.mark.parametrize(("given", "expected", "told"), REPORTED)
def test_what_others_were_told(given: HttpAnswer | dict[str, Any], expected: type[Exception], told: str) -> None:
    """CM-6, GC-5 (not repeated): each is told apart, in Google's own words."""
    found = GceApi().error(HEAD, given) if isinstance(given, HttpAnswer) else operation_failure(HEAD, given)
    assert type(found) is expected
    assert told in str(found)
    if isinstance(given, HttpAnswer):
        assert GceApi().throttled(given) == (expected is CloudAway)


@pytest.mark.parametrize("details", [None, {}, "text", [None, {"reason": 5}], [{"reason": "X", "metadatas": "y"}]])
def test_details_of_any_shape(details: Any) -> None:
    """They tell more, and break nothing."""
    assert type(GceApi().error(HEAD, answer(403, "rateLimitExceeded", details=details))) is CloudAway


def test_operation_that_succeeded() -> None:
    assert operation_failure(HEAD, {"status": "DONE"}) is None


def test_metric() -> None:
    """Which quota, how much, and where; and what to do about it."""
    quota = {"metricName": "compute.googleapis.com/n2_cpus", "limit": 24, "dimensions": {"region": "us-central1"}}
    given = operation("QUOTA_EXCEEDED", "Quota 'N2_CPUS' exceeded.", 403, errorDetails=[{"quotaInfo": quota}])
    assert str(operation_failure(HEAD, given)) == (
        f"{HEAD}: QUOTA_EXCEEDED: Quota 'N2_CPUS' exceeded. (compute.googleapis.com/n2_cpus is 24 in region "
        "us-central1); ask for more under Quotas in the Google Cloud console, or lower max-servers"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (answer(429, "x"), True),
        (answer(403, "rateLimitExceeded"), True),
        (answer(403, "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED"), True),
        (answer(403, "quotaExceeded", "Quota 'CPUS' exceeded"), False),
        (answer(403, "forbidden"), False),
        (HttpAnswer(403, {}, b"not JSON"), False),
    ],
)
def test_throttled(given: HttpAnswer, expected: bool) -> None:
    """CM-5 (not repeated)."""
    assert GceApi().throttled(given) is expected


@pytest.mark.parametrize(
    "data", [None, [], {}, {"error": "x"}, {"error": {"errors": ["x", {}]}}, {"error": {"errors": 7}}]
)
def test_odd_answers(data: Any) -> None:
    """Nothing in them is believed."""
    assert [error.message for error in errors_in(data)] in ([], [""])
