# SPDX-License-Identifier: Apache-2.0
"""What Google answers, and what the driver makes of it. Each row names where it is from.

``google-cloud-compute`` 1.57 is Google's own model of the API, `compute_v1.types.compute`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.http.plain_http import HttpAnswer
from nodepool.driver.framework.http.rest_calls import RestCalls
from nodepool.driver.framework.uploads import ImageTime
from nodepool.driver.gce import types
from nodepool.driver.gce.client import ComputeEngine
from nodepool.driver.gce.images import GceImages
from nodepool.plan.retries import Backoff
from tests.support.provider_sections import has
from tests.support.tables import driver_table
from tests.unit.driver.gce.support import METADATA, PROVIDER, ZONES, content, recorded

HEAD = "Provider north: creating an instance failed"


def images_at(client: ComputeEngine, endpoint: str) -> GceImages:
    """Of a provider with the bucket ``ci`` in the Cloud Storage of an address."""
    config: Any = SimpleNamespace(name=PROVIDER, bucket_name="ci", storage_endpoint=endpoint)
    return GceImages(config, client)


@pytest.mark.parametrize(("given", "expected", "words"), driver_table("gce", "kinds"))
def test_kinds(given: dict[str, Any], expected: type[Exception], words: str) -> None:
    """CM-5, CM-6, GC-5 (not repeated): what the launcher does next; what Google put off was surely not done.

    ``given`` is an answer, with its status, or an operation.
    """
    if "body" in given:
        answer = HttpAnswer(given["status"], {}, content(given["body"]))
        found: Exception | None = types.GceApi().error(HEAD, answer)
        put_off = expected is CloudAway and answer.status < 500
        assert types.GceApi().throttled(answer) is put_off
        assert expected is not CloudAway or getattr(found, "maybe_done", None) is not put_off
    else:
        found = types.operation_failure(HEAD, given)
    assert type(found) is expected
    assert str(found).startswith(f"{HEAD}: ")
    assert words in str(found)
    assert types.operation_failure(HEAD, {"status": "DONE"}) is None


@pytest.mark.parametrize("data", driver_table("gce", "no_errors_of_google"))
def test_no_errors_of_google(data: Any) -> None:
    """Nothing in them is believed."""
    assert [error.message for error in types.errors_in(data)] in ([], [""])


@pytest.mark.parametrize(("status", "body", "kind", "words"), driver_table("gce", "answers_to_a_deletion"))
def test_answers_to_a_deletion(status: int, body: Any, kind: type[Exception], words: str) -> None:
    """CM-7: a page is no proof that an instance is absent."""
    client, _ = recorded((status, body), (status, body))
    with pytest.raises(kind, match=words):
        client.delete_instance(ZONES[0], "np1")


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.instances(),
        lambda client: client.instance(ZONES[0], "np1"),
        lambda client: client.operation(ZONES[0], "operation-1"),
        lambda client: client.insert(ZONES[0], {}, "r", lambda: None),
        lambda client: client.image_named("fedora"),
        lambda client: client.machine_type(ZONES[0], "n2"),
        lambda client: list(images_at(client, "https://storage.example").objects("np")),
    ],
)
@pytest.mark.parametrize("odd", ["[7]", '{"items": [{}], "kind": "x"}', '{"items": 7}', "<html>hello</html>"])
def test_answers_of_others(ask: Callable[[ComputeEngine], Any], odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CM-8: what has status 200, and is no answer of Google, is an error of the cloud; nothing else is made of it."""
    # A constant of the module: it waits for real.
    monkeypatch.setitem(RestCalls.call.__globals__, "READ_AGAIN", Backoff(0.0, 0.0))
    client, _ = recorded(*[(200, odd)] * 3)
    try:
        assert ask(client) == [{}]
    except CloudAway:
        return


# -- lists and records --

ROOT = "https://www.googleapis.com/compute/v1/projects/p"
INSTANCE: dict[str, Any] = {"name": "np1", "zone": f"{ROOT}/zones/us-central1-a", "status": "RUNNING"}


@pytest.mark.parametrize(("zones", "pages", "names", "silent"), driver_table("gce", "lists"))
def test_lists(zones: int, pages: list[Any], names: list[str], silent: list[str]) -> None:
    """A zone that does not answer has not lost its instances."""
    client, http = recorded(*[(200, page) for page in pages], zone=ZONES[:zones])
    records, unreachable = client.instances()
    assert ([record.name for record in records], sorted(unreachable), http.answers) == (names, silent, [])


def test_records() -> None:
    """int64 is a text in JSON (https://protobuf.dev/programming-guides/json/), and so is an infinite double.

    Instance.labels: left out, or null; they name its node otherwise. Instance.Status: each has its place. REPAIRING has
    none, as one that is not known.
    """
    data = {"name": "i", "diskSizeGb": "10", "archiveSizeBytes": "536870912", "labels": None}
    has(types.GceImage(data, types.LabelReader(PROVIDER, [])), size_gib=10, metadata={})
    project = {"quotas": [{"metric": "CPUS", "limit": "Infinity", "usage": 3}, {"metric": "INSTANCES", "limit": 2}]}
    client, _ = recorded((200, project), (200, {"quotas": [{"metric": "INSTANCES", "limit": 1}]}))
    assert client.quotas() == {"CPUS": float("inf"), "INSTANCES": 1}
    items = [INSTANCE, {**INSTANCE, "labels": None}, {**INSTANCE, "labels": METADATA}]
    client, _ = recorded((200, {"items": items}))
    assert [record.metadata for record in client.instances()[0]] == [{}, {}, METADATA]
    known = {"DEPROVISIONING", "PENDING", "PENDING_STOP", "PROVISIONING", "REPAIRING", "RUNNING", "STAGING", "STOPPED"}
    known |= {"STOPPING", "SUSPENDED", "SUSPENDING", "TERMINATED"}
    assert known - types.ENDING == {"PENDING", "PROVISIONING", "STAGING", "REPAIRING", types.RUNNING}


# -- operations of images --


@pytest.mark.parametrize("deletion", [True, False])
@pytest.mark.parametrize("looks", [1, 9])
def test_operation_that_is_not_there_yet(deletion: bool, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """404 right after 200: neither is the image absent then, nor did its import fail."""
    # It waits for real; a function of the module.
    monkeypatch.setitem(ImageTime.looks.__globals__, "wait_wanted", lambda *_: True)
    missing = {"error": {"code": 404, "message": "not found", "errors": [{"reason": "notFound"}]}}
    begun, done = ({"name": "operation-1", "status": status} for status in ("PENDING", "DONE"))
    client, http = recorded((200, begun), *[(404, missing)] * looks, (200, done))
    calls = images_at(client, "https://storage.googleapis.com")

    def act() -> None:
        calls.delete_image("i") if deletion else calls.create_image("i", "o", {}, "r", lambda: None)

    if looks == 1:
        act()
        assert not http.answers
    else:
        with pytest.raises(CloudAway, match="notFound"):
            act()


@pytest.mark.parametrize(("endpoint", "source"), driver_table("gce", "source_of_an_image"))
def test_source_of_an_image(endpoint: str, source: str) -> None:
    """Compute Engine reads the object where it was uploaded to."""
    client, http = recorded((200, {"name": "operation-1", "status": "DONE"}))
    images_at(client, endpoint).create_image("fedora", "np/fedora 1.tar.gz", {}, "r", lambda: None)
    assert json.loads(http.sent[0][3])["rawDisk"]["source"] == f"{source}/ci/np/fedora%201.tar.gz"
