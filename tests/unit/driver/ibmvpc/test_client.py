# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.client`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudQuota
from nodepool.driver.ibmvpc.client import BURST, CREATE, DELETE, READ, VERSION, IbmVpc, class_sizes
from nodepool.driver.ibmvpc.login import IbmLogin
from tests.unit.driver.ibmvpc.support import GROUP, Http, load, section
from tests.unit.driver.simulated_adapter import HOST

BASE = "https://us-south.iaas.cloud.ibm.com/v1"
COMMON = {"version": VERSION, "generation": "2"}


class Here:
    def __init__(self, directory: Path, *lines: str) -> None:
        file = directory / "ibm.env"
        file.write_text("\n".join(["VPC_AUTH_TYPE=noAuth", *lines]), encoding="utf-8")
        self.http = Http()
        config = load(section())
        self.client = IbmVpc(config, self.http, IbmLogin("south", str(file), self.http))  # type: ignore[arg-type]


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def page(entries: list[dict[str, Any]], start: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"keys": entries, "limit": 100}
    # Another host, as if somebody had changed the answer.
    return {**found, "next": {"href": f"https://evil.example.org/v1/keys?start={start}&limit=100"}} if start else found


def test_pages(here: Here) -> None:
    """Pages of 100; the next one is asked for at the same place, wherever the answer leads."""
    here.http.answer(page([{"name": "a", "id": "1"}], "two"))
    here.http.answer(page([{"name": "b", "id": "2"}]))
    assert here.client.keys() == {"a": "1", "b": "2"}
    asked = [(method, url, query) for method, url, _, _, query in here.http.sent]
    assert asked == [
        ("GET", f"{BASE}/keys", {**COMMON, "limit": "100"}),
        ("GET", f"{BASE}/keys", {**COMMON, "limit": "100", "start": "two"}),
    ]


@pytest.mark.parametrize("data", [{"errors": []}, [], {"keys": "odd"}])
def test_answer_that_is_no_list(here: Here, data: Any) -> None:
    here.http.answer(data)
    with pytest.raises(CloudAway, match="listing keys failed: the answer is no list"):
        here.client.keys()


def test_endless_list(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodepool.driver.ibmvpc.client.MOST_PAGES", 3)
    for _ in range(3):
        here.http.answer(page([], "again"))
    with pytest.raises(CloudAway, match="does not end"):
        here.client.keys()


def test_endpoint_of_the_credentials(tmp_path: Path) -> None:
    """IV-1: where the API is may be told with the credentials."""
    here = Here(tmp_path, "VPC_URL=http://127.0.0.1:9/v1/")
    here.http.answer({"vpcs": []})
    assert here.client.vpcs() == {}
    assert here.http.sent[0][1] == "http://127.0.0.1:9/v1/vpcs"


def test_instance_of_a_name(here: Here) -> None:
    """CM-8: names are unique in the region."""
    here.http.answer({"instances": []})
    assert here.client.instance_named(HOST) is None
    assert here.http.sent[0][4] == {**COMMON, "limit": "100", "name": HOST}


def test_one_call_makes_a_floating_ip_and_binds_it(here: Here) -> None:
    """IV-4 (today)."""
    here.http.answer({"id": "f", "name": HOST, "address": "192.0.2.1"}, 201)
    here.client.create_floating_ip(HOST, "g", "nic", lambda: None)
    method, url, _, body, query = here.http.sent[0]
    assert (method, url, query) == ("POST", f"{BASE}/floating_ips", COMMON)
    assert json.loads(body) == {"name": HOST, "resource_group": {"id": "g"}, "target": {"id": "nic"}}
    here.http.answer({"id": "f", "name": HOST, "address": "192.0.2.1"})
    here.client.bind_floating_ip("f/1", HOST, "nic", lambda: None)
    method, url, _, body, _ = here.http.sent[1]
    assert (method, url) == ("PATCH", f"{BASE}/floating_ips/f%2F1")
    assert json.loads(body) == {"name": HOST, "target": {"id": "nic"}}


def test_deletion_has_no_content(here: Here) -> None:
    here.http.answer(None, 204)
    here.client.delete_instance("0717_1")
    assert here.http.sent[0][:2] == ("DELETE", f"{BASE}/instances/0717_1")


def test_deletion_of_a_floating_ip_is_permitted_late(here: Here) -> None:
    """IV-13: when its turn has come, somebody looks at it once more."""

    def permit() -> None:
        here.client.floating_ip("f")
        raise LookupError("somebody uses it")

    here.http.answer({"id": "f", "name": HOST, "address": "192.0.2.1"})
    with pytest.raises(LookupError):
        here.client.delete_floating_ip("f", permit)
    assert [method for method, *_ in here.http.sent] == ["GET"]


def test_odd_answer_of_a_creation(here: Here) -> None:
    """L-4: nobody knows what was done."""
    here.http.answer({})
    with pytest.raises(CloudAway, match="creating an instance failed: the answer is none of IBM's") as caught:
        here.client.create_instance({}, lambda: None)
    assert caught.value.maybe_done


def test_errors(here: Here) -> None:
    here.http.answer({"errors": [{"code": "over_quota", "message": "20 of 20"}]}, 400)
    with pytest.raises(CloudQuota, match="creating an instance failed: over_quota: 20 of 20"):
        here.client.create_instance({}, lambda: None)


def test_groups(tmp_path: Path) -> None:
    """IV-2: those of the account; deleted ones do not count."""
    here = Here(tmp_path, "RESOURCE_MANAGER_URL=http://groups")
    here.http.answer(
        {"resources": [{"name": "a", "id": "1", "state": "ACTIVE"}, {"name": "b", "id": "2", "state": "X"}]}
    )
    assert here.client.groups() == {"a": "1"}
    assert here.http.sent[0][1] == "http://groups/v2/resource_groups"
    here.http.answer({"id": "3", "crn": "crn:3"}, 201)
    assert here.client.create_group("np_south_main") == "3"
    assert json.loads(here.http.sent[1][3])["name"] == "np_south_main"


def test_group_without_a_name(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """IV-3: lists of images leave the name out (found with Nodepool 11.0.0 at IBM, against IBM's documentation).

    The id says which group it is, whatever was listed or answered. A name that is there costs no call.
    """
    monkeypatch.setattr("nodepool.driver.ibmvpc.client.MISSING_SECONDS", 0.0)
    ours, other = {"id": "g1", "href": "https://x/g1"}, {"id": "g2"}
    here.http.answer({"instances": [{"id": "i0", "name": HOST, "resource_group": {**ours, "name": GROUP}}]})
    assert [one.metadata["nodepool_pool_name"] for one in here.client.instances()] == ["main"]
    here.http.answer({"images": [{"id": "r1", "name": "a", "resource_group": ours}]})
    here.http.answer({"resources": [{"id": "g1", "name": GROUP, "state": "ACTIVE"}]})
    assert [one.group for one in here.client.images()] == [GROUP]
    here.http.answer({"id": "r1", "name": "a", "resource_group": ours})
    assert here.client.image("r1").group == GROUP
    here.http.answer({"instances": [{"id": "i1", "name": HOST, "resource_group": ours}]})
    assert [one.metadata["nodepool_pool_name"] for one in here.client.instances()] == ["main"]
    here.http.answer({"floating_ips": [{"id": "f1", "name": HOST, "resource_group": ours}]})
    assert [one.group for one in here.client.floating_ips()] == [GROUP]
    # The account does not list it: nobody's here.
    here.http.answer({"volumes": [{"id": "v1", "name": HOST, "resource_group": other}]})
    here.http.answer({"resources": [{"id": "g1", "name": GROUP, "state": "ACTIVE"}]})
    assert [one.group for one in here.client.volumes()] == [""]
    # Made here a moment ago.
    here.http.answer({"id": "g2", "name": "np_south_new"}, 201)
    here.client.create_group("np_south_new")
    here.http.answer({"volumes": [{"id": "v1", "name": HOST, "resource_group": other}]})
    assert [one.group for one in here.client.volumes()] == ["np_south_new"]
    assert not here.http.answers


def test_object_storage(tmp_path: Path) -> None:
    here = Here(tmp_path, "RESOURCE_CONTROLLER_URL=http://resources")
    here.http.answer({"resources": [{"id": "crn:cos", "crn": "crn:cos", "name": "cos"}], "next_url": None})
    assert here.client.storage_instance("cos") == "crn:cos"
    assert here.http.sent[0][1] == "http://resources/v2/resource_instances"
    here.http.answer({"resources": []})
    with pytest.raises(CloudNotFound, match=r"correct object-storage\.instance-name"):
        here.client.storage_instance("cos")


def test_rates() -> None:
    """IV-12 (today): each class has its own; ``rate`` is that of creations."""
    found = class_sizes(2.0)
    assert (found[CREATE].rate, found[DELETE].rate, found[READ].rate) == (2.0, 2.0, 10.0)
    assert found[CREATE].burst == BURST
    assert class_sizes(0)[READ].rate == 0
