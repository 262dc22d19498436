# SPDX-License-Identifier: Apache-2.0
"""What IBM answers besides what its simulator usually does. Each row names where it is from.

``ibm-vpc`` 0.36, ``ibm-platform-services`` 0.77 and ``ibm-cloud-sdk-core`` 3.28 are the SDKs of IBM.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused, LoginRefused, NotFoundByProxy
from nodepool.driver.framework.http.plain_http import HttpAnswer
from nodepool.driver.ibmvpc.client import IbmVpc
from nodepool.driver.ibmvpc.errors import CAPACITY, PREEMPTED
from nodepool.driver.ibmvpc.login import IbmLogin
from nodepool.driver.ibmvpc.types import (
    DELETING,
    FAILED,
    PENDING,
    STOPPED,
    USABLE_IMAGES,
    IbmImage,
    IbmProfile,
    IbmVolume,
)
from tests.unit.driver.ibmvpc.support import GROUP, PROVIDER, Http, load, section
from tests.unit.driver.simulated_adapter import HOST

GROUP_OF = {"id": "g", "href": "https://x/g", "name": GROUP}
#: What ibm-vpc takes for an instance has all of this; `Instance.__init__` says what may be left out.
INSTANCE: dict[str, Any] = {
    "id": "0717_1",
    "name": HOST,
    "status": "pending",
    "status_reasons": [],
    "resource_group": GROUP_OF,
    "profile": {"name": "bx2-2x8"},
    "vcpu": {"architecture": "amd64", "count": 2, "manufacturer": "intel", "percentage": 100},
    "memory": 8,
    "zone": {"name": "us-south-1"},
    # ReservedIPReference.address: "If the address has not yet been selected, the value will be 0.0.0.0".
    "primary_network_interface": {"id": "nic", "name": "eth0", "primary_ip": {"address": "0.0.0.0", "id": "ip"}},
}
FLOATING: dict[str, Any] = {"id": "f", "name": HOST, "address": "192.0.2.1", "status": "pending"}
ODD: list[Any] = [[], {}, {"instances": {}}, {"instances": [7]}, {"errors": []}]
PAGE = b"<HTML><HEAD>\n<TITLE>Access Denied</TITLE>\n</HEAD><BODY>Reference #18.1</BODY></HTML>"


@pytest.fixture
def http() -> Http:
    return Http()


@pytest.fixture
def client(tmp_path: Path, http: Http) -> IbmVpc:
    file = tmp_path / "ibm.env"
    file.write_text("VPC_AUTH_TYPE=noAuth\n", encoding="utf-8")
    return IbmVpc(load(section()), http, IbmLogin(PROVIDER, str(file), http))  # type: ignore[arg-type]


def _instances(client: IbmVpc) -> Any:
    return [(one.id, one.private_ipv4, one.spot) for one in client.instances()]


def _created(client: IbmVpc) -> Any:
    return client.floating_ip("f").created


@pytest.mark.parametrize(
    ("answers", "ask", "told"),
    [
        # ibm-vpc, InstancesPager: a page may be empty and name a next one; `next` is left out on the last.
        (
            [{"instances": [], "next": {"href": "https://x/v1/instances?start=b&limit=1"}}, {"instances": [INSTANCE]}],
            _instances,
            [(HOST, None, False)],
        ),
        # ibm-platform-services, ResourceInstancesPager: the address of the next page has no host, and ends as null.
        (
            [
                {"rows_count": 0, "next_url": "/v2/resource_instances?limit=1&start=b", "resources": []},
                {"rows_count": 1, "next_url": None, "resources": [{"id": "i", "crn": "crn:1", "name": "storage"}]},
            ],
            lambda client: client.storage_instance("storage"),
            "crn:1",
        ),
        # ibm-platform-services, ResourceGroupList: no pages at all; a group may be without a state.
        ([{"resources": [{"id": "g", "name": "a"}]}], IbmVpc.groups, {"a": "g"}),
        # Services that are written in Go have null for a list without entries (encoding/json, Marshal).
        ([{"volumes": None, "limit": 100}], IbmVpc.volumes, []),
        # ibm-vpc, FloatingIP: `target` is left out where there is none.
        ([FLOATING], lambda client: client.floating_ip("f").target, ""),
        # ibm_cloud_sdk_core.utils, string_to_datetime reads any fraction of a second. The texts are compared.
        *(
            ([{**FLOATING, "created_at": f"2026-01-01T00:00:00{end}"}], _created, "2026-01-01T00:00:00Z")
            for end in ("Z", ".000Z", ".123456Z")
        ),
        # ibm-vpc, Image: `file` may have neither checksums nor size.
        ([{"id": "r", "name": "n", "status": "pending", "file": {}}], lambda client: client.image("r").sha256, None),
        # Answers of others that have status 200.
        *(([odd], _instances, CloudAway) for odd in ODD),
        ([{"instances": [{**INSTANCE, "name": None, "id": None}]}], _instances, CloudAway),
        ([{"instances": [{key: INSTANCE[key] for key in ("id", "status")}]}], _instances, CloudAway),
        ([{"id": "f"}], lambda client: client.floating_ip("f"), CloudAway),
    ],
)
def test_answers(client: IbmVpc, http: Http, answers: list[Any], ask: Callable[[IbmVpc], Any], told: Any) -> None:
    for answer in answers:
        http.answer(answer)
    if told is CloudAway:
        # What only reads is asked again.
        http.answers *= 3
        with pytest.raises(CloudAway):
            ask(client)
        return
    assert ask(client) == told
    assert not http.answers


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        # https://cloud.ibm.com/apidocs/vpc, Error handling: an array, with more about each error.
        (
            409,
            {
                "errors": [
                    {"code": "floating_ip_in_use", "message": "one", "more_info": "https://x", "target": {"name": "a"}},
                    {"code": "conflict", "message": "two"},
                ],
                "trace": "9c1e",
            },
            CloudRefused,
            "floating_ip_in_use: one / conflict: two",
        ),
        # ibm_cloud_sdk_core.api_exception, _get_error_message: a message without a code, under one of three names.
        (400, {"error": "Bad request"}, CloudRefused, "Bad request"),
        (401, {"message": "Token is invalid", "status_code": 401}, LoginRefused, "Token is invalid"),
        (400, {"errorCode": "BXNIM0109E", "errorMessage": "Wrong"}, CloudRefused, "BXNIM0109E: Wrong"),
        # The same: no JSON at all, in IBM's case from the content delivery network before its API.
        (403, PAGE, CloudAway, "is it a proxy"),
        (404, PAGE, NotFoundByProxy, "is it a proxy"),
        (404, b"", CloudNotFound, "status 404"),
    ],
)
def test_errors(client: IbmVpc, http: Http, status: int, body: Any, kind: type[Exception], words: str) -> None:
    """A page is no proof that something is gone, and no reason to correct anything."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    http.answers += [HttpAnswer(status, {}, content)] * 2
    with pytest.raises(kind) as caught:
        client.delete_instance("0717_1")
    assert type(caught.value) is kind
    assert words in str(caught.value)


def test_states() -> None:
    """The enumerations of ibm-vpc: each value has its place, and so has one that is not known yet."""
    usable = {"available", "deprecated", "partially_available"}
    for status in ("available", "deleting", "deprecated", "failed", "obsolete", "partially_available", "pending", "?"):
        image = IbmImage.of({"id": "r", "name": "n", "status": status})
        assert (image.status in USABLE_IMAGES, image.status == PENDING) == (status in usable, status == "pending")
    for status in ("available", "failed", "pending", "pending_deletion", "unusable", "updating", "?"):
        volume = IbmVolume.of({"id": "v", "name": "n", "status": status, "volume_attachments": []})
        assert volume.used is (status == "pending_deletion")
    states = {"failed", "pending", "restarting", "running", "starting", "stopped", "stopping"}
    assert states & {FAILED, DELETING, *STOPPED} == {"failed", "stopped", "stopping"}
    lacking = {"capacity", "compute", "ip_address", "placement_group", "reservation_capacity", "reservation_expired"}
    others = ("", "_network", "_storage")
    assert {f"cannot_start_{what}" for what in lacking} <= CAPACITY
    assert not CAPACITY & {f"cannot_start{what}" for what in others}
    assert PREEMPTED == "stopped_by_preemption"


@pytest.mark.parametrize(
    ("form", "number"),
    [
        # ibm-vpc: InstanceProfileMemoryFixed, ...Range, ...Enum, ...Dependent.
        ({"type": "fixed", "value": 8}, 8),
        ({"type": "range", "default": 16, "min": 8, "max": 64, "step": 8}, 16),
        ({"type": "enum", "default": 4, "values": [2, 4]}, 4),
        ({"type": "dependent"}, 0),
    ],
)
def test_numbers_of_profiles(form: dict[str, Any], number: int) -> None:
    assert IbmProfile.of({"name": "p", "vcpu_count": form, "memory": form}) == IbmProfile("p", number, number)
