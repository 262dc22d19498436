# SPDX-License-Identifier: Apache-2.0
"""What Google answers besides what its simulator usually does. Each row names where it is from.

``google-cloud-compute`` 1.57 is Google's own model of the API, `compute_v1.types.compute`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    LoginRefused,
    NotFoundByProxy,
)
from nodepool.driver.framework.http.plain_http import HttpAnswer
from nodepool.driver.gce.client import ComputeEngine
from nodepool.driver.gce.errors import operation_failure
from nodepool.driver.gce.images import GceImageCalls
from nodepool.driver.gce.instances import ended_well
from nodepool.driver.gce.types import (
    COMING,
    DONE,
    ENDING,
    RUNNING,
    UNREACHABLE,
    GceImage,
    GceQuota,
    LabelReader,
    Operation,
)
from nodepool.driver.statemachine.instance import for_node
from tests.unit.driver.gce.sections import PROVIDER, load, section

LABELS = LabelReader(PROVIDER, ["main"])
ROOT = "https://www.googleapis.com/compute/v1/projects/p"
INSTANCE: dict[str, Any] = {"name": "np1", "zone": f"{ROOT}/zones/us-central1-a", "status": "RUNNING"}
PAGE = b"<!DOCTYPE html>\n<html lang=en>\n  <meta charset=utf-8>\n  <title>Error 404 (Not Found)!!1</title>"


class Http:
    """Answers with what the test wrote, in its order."""

    def __init__(self) -> None:
        self.answers: list[HttpAnswer] = []

    def send(self, *_: Any, **__: Any) -> HttpAnswer:
        return self.answers.pop(0)

    def close(self) -> None:
        """Nothing is open."""


class Login:
    """Asks nobody."""

    def headers(self) -> dict[str, str]:
        return {}

    def refused(self, headers: Any) -> None:
        """It is what it was."""


@pytest.fixture
def http() -> Http:
    return Http()


@pytest.fixture
def one_zone(http: Http) -> ComputeEngine:
    return ComputeEngine(load(section(zone="us-central1-a")), http, Login(), LABELS)  # type: ignore[arg-type]


@pytest.fixture
def zones(http: Http) -> ComputeEngine:
    both = ["us-central1-a", "us-central1-b"]
    return ComputeEngine(load(section(zone=both)), http, Login(), LABELS)  # type: ignore[arg-type]


def answer(http: Http, data: Any, status: int = 200) -> None:
    content = data if isinstance(data, bytes) else json.dumps(data).encode()
    http.answers.append(HttpAnswer(status, {}, content))


@pytest.mark.parametrize(
    ("one", "pages", "names", "silent"),
    [
        # InstanceList.next_page_token: an empty page may have one; `items` is left out where there is none.
        (True, [{"nextPageToken": "b"}, {"items": [INSTANCE]}], ["np1"], set()),
        # InstanceList.warning: Warning.Code UNREACHABLE is no list without instances.
        (True, [{"warning": {"code": UNREACHABLE}}], [], {"us-central1-a"}),
        (True, [{"warning": {"code": "NO_RESULTS_ON_PAGE"}}], [], set()),
        # InstanceAggregatedList.unreachables: names of scopes, or their links; items: a warning in place of instances.
        (
            False,
            [
                {"items": {"zones/us-central1-a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}, "nextPageToken": "b"},
                {"items": {"zones/us-central1-a": {"instances": [INSTANCE]}}, "unreachables": ["zones/us-central1-b"]},
            ],
            ["np1"],
            {"us-central1-b"},
        ),
        (False, [{"unreachables": [f"{ROOT}/zones/us-central1-b"]}], [], {"us-central1-b"}),
        (
            False,
            [{"items": {"zones/us-central1-a": {"warning": {"code": UNREACHABLE}}, "zones/us-central1-b": None}}],
            [],
            {"us-central1-a"},
        ),
        # A zone of another region, and a scope that is none of a zone.
        (False, [{"items": {"regions/us-central1": {}, "zones/europe-west1-b": {"instances": [{}]}}}], [], set()),
    ],
)
def test_lists(
    zones: ComputeEngine, one_zone: ComputeEngine, http: Http, one: bool, pages: Any, names: Any, silent: set[str]
) -> None:
    """A zone that does not answer has not lost its instances."""
    for page in pages:
        answer(http, page)
    records, unreachable = (one_zone if one else zones).instances()
    assert ([record.name for record in records], unreachable) == (names, silent)
    assert not http.answers


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.instances(),
        lambda client: client.instance("us-central1-a", "np1"),
        lambda client: client.operation("us-central1-a", "operation-1"),
        lambda client: client.insert("us-central1-a", {}, "r", lambda: None),
        lambda client: client.image_named("fedora"),
        lambda client: client.machine_type("us-central1-a", "n2"),
        lambda client: list(GceImageCalls(client, "ci", "https://storage.example").objects("np")),
    ],
)
@pytest.mark.parametrize("odd", [b"[7]", b'{"items": [{}], "kind": "x"}', b'{"items": 7}', b"<html>hello</html>"])
def test_answers_of_others(
    one_zone: ComputeEngine, http: Http, ask: Callable[[ComputeEngine], Any], odd: bytes
) -> None:
    """Whatever has status 200 is either understood, or an error of the cloud."""
    for _ in range(3):
        http.answers.append(HttpAnswer(200, {"Content-Type": "text/html" if odd[:1] == b"<" else "json"}, odd))
    try:
        assert ask(one_zone) == [{}]
    except CloudAway:
        return


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        # https://cloud.google.com/apis/design/errors
        (
            403,
            {"error": {"code": 403, "message": "no", "status": "PERMISSION_DENIED", "details": []}},
            CloudRefused,
            "PERMISSION_DENIED: no",
        ),
        # googleapiclient.errors.HttpError, _get_reason: an array of answers, and an error that is a text (OAuth).
        (
            409,
            [{"error": {"code": 409, "message": "it exists", "status": "ALREADY_EXISTS"}}],
            CloudRefused,
            "it exists",
        ),
        (
            401,
            {"error": "invalid_token", "error_description": "Invalid Value"},
            LoginRefused,
            "invalid_token: Invalid Value",
        ),
        # https://cloud.google.com/storage/docs/retry-strategy: what is sent again.
        (408, {"error": {"code": 408, "message": "Request Timeout"}}, CloudAway, "Request Timeout"),
        # The page of Google's front end for a path that it does not serve; and 404 without a body.
        (404, PAGE, NotFoundByProxy, "is it a proxy"),
        (404, b"", CloudNotFound, "status 404"),
    ],
)
def test_errors(one_zone: ComputeEngine, http: Http, status: int, body: Any, kind: type[Exception], words: str) -> None:
    """A page is no proof that an instance is gone."""
    for _ in range(2):
        answer(http, body, status)
    with pytest.raises(kind, match=words):
        one_zone.delete_instance("us-central1-a", "np1")


def test_quota_of_an_operation() -> None:
    """QuotaExceededInfo: ``limit`` is a double, which JSON of protocol buffers may have as a text."""
    info = {"metricName": "compute.googleapis.com/cpus", "limit": "24", "dimensions": {"region": "us-central1"}}
    error = {"code": "QUOTA_EXCEEDED", "message": "m", "errorDetails": [{"quotaInfo": info}]}
    failure = operation_failure("x", {"error": {"errors": [error]}, "httpErrorStatusCode": 403})
    assert isinstance(failure, CloudQuota)
    assert "compute.googleapis.com/cpus is 24 in region us-central1" in str(failure)


def test_numbers() -> None:
    """int64 is a text in JSON (https://protobuf.dev/programming-guides/json/), and so is an infinite double."""
    image = GceImage.of({"name": "i", "diskSizeGb": "10", "archiveSizeBytes": "536870912", "labels": None}, LABELS)
    assert (image.size_gib, image.archive_bytes, image.metadata) == (10, 512 * 1024**2, {})
    assert GceQuota.of({"metric": "CPUS", "limit": "Infinity", "usage": 3}).limit == float("inf")


def test_states() -> None:
    """Instance.Status, Operation.Status: each has its place. REPAIRING is neither, as one that is not known."""
    known = {"DEPROVISIONING", "PENDING", "PENDING_STOP", "PROVISIONING", "REPAIRING", "RUNNING", "STAGING", "STOPPED"}
    known |= {"STOPPING", "SUSPENDED", "SUSPENDING", "TERMINATED"}
    assert known - COMING - ENDING - {RUNNING} == {"REPAIRING"}
    assert not COMING & ENDING
    assert [state for state in ("DONE", "PENDING", "RUNNING", "UNDEFINED_STATUS") if state == DONE] == ["DONE"]


def test_deletion_that_failed() -> None:
    """Operation.http_error_status_code: "If the operation fails, this field contains the HTTP error status code"."""
    base = {"name": "o", "zone": f"{ROOT}/zones/z", "targetLink": f"{ROOT}/zones/z/instances/np1", "status": "DONE"}
    assert ended_well(["z/np1"], [Operation.of(base)]) == {"z/np1"}
    assert ended_well(["z/np1"], [Operation.of({**base, "httpErrorStatusCode": 503})]) == set()


@pytest.mark.parametrize("deletion", [True, False])
@pytest.mark.parametrize("looks", [1, 9])
def test_operation_that_is_not_there_yet(
    one_zone: ComputeEngine, http: Http, deletion: bool, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """404 right after 200: neither is the image gone then, nor did its import fail."""
    monkeypatch.setattr("nodepool.driver.framework.images.wait_wanted", lambda *_: True)
    calls = GceImageCalls(one_zone, "ci", "https://storage.googleapis.com")
    answer(http, {"name": "operation-1", "status": "PENDING"})
    for _ in range(looks):
        answer(http, {"error": {"code": 404, "message": "not found", "errors": [{"reason": "notFound"}]}}, 404)
    answer(http, {"name": "operation-1", "status": "DONE"})

    def act() -> None:
        calls.delete_image("i") if deletion else calls.create_image("i", "o", {}, "r", lambda: None)

    if looks == 1:
        act()
        assert not http.answers
    else:
        with pytest.raises(CloudAway, match="notFound"):
            act()


def test_owner_of_an_instance_without_labels(one_zone: ComputeEngine, http: Http) -> None:
    """Instance.labels: left out, or null; they name its node otherwise."""
    owner = for_node("0000000001", "main", PROVIDER)
    answer(http, {"items": [INSTANCE, {**INSTANCE, "labels": None}, {**INSTANCE, "labels": owner}]})
    assert [record.metadata for record in one_zone.instances()[0]] == [{}, {}, owner]
