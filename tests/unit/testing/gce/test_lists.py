# SPDX-License-Identifier: Apache-2.0
"""Lists of the simulated project: filters, order, pages, parts of answers, and what they show late."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.testing.gce.field_mask import masked, read_mask
from nodepool.testing.gce.filters import read_filter
from nodepool.testing.simulator.messages import ApiError
from tests.unit.testing.gce.conftest import BOOT, DELETE, ZONE, Caller

DOCUMENT: dict[str, Any] = {
    "name": "np1",
    "status": "RUNNING",
    "labels": {"a": "b", "owner": "x"},
    "cpus": "16",
    "canIpForward": False,
    "disks": [{"boot": True, "name": "one"}, {"boot": False, "name": "two"}],
    "nested": {"x": {"a": 1, "b": {"c": 2, "d": 3}}},
}
OTHER = "zones/us-central1-b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name=np1",
        'name = "np1"',
        "labels.a=b",
        "labels.a:*",
        "status != TERMINATED",
        "(name=np9) OR (name=np1)",
        "(name=np1) (labels.a=b)",
        "name=np1 AND status=RUNNING",
        "status=RUNNING AND name=np9 OR name=np1",
        "NOT labels.b:*",
        "-labels.b:*",
        "cpus > 8",
        "cpus <= 16",
        "canIpForward = false",
        "disks.name = two",
        "name eq np.*",
        "name ne other.*",
        "name : np*",
    ],
)
def test_what_filters_let_through(text: str) -> None:
    assert read_filter(text)(DOCUMENT)


@pytest.mark.parametrize(
    "text",
    [
        "name=np",
        "labels.b:*",
        "labels.a!=b",
        "NOT name=np1",
        "status=RUNNING name=np9",
        "name=np1 AND (status=STOPPING OR status=STAGING)",
        "cpus > 16",
        "name eq np",
        "name ne np1",
        "disks.name = three",
    ],
)
def test_what_filters_hold_back(text: str) -> None:
    assert not read_filter(text)(DOCUMENT)


@pytest.mark.parametrize("text", ["name", "name=", "(name=np1", "name=np1)", "=np1", "name eq [", "name=np1 OR", '"'])
def test_bad_filters(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_filter(text)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("mask", "kept"),
    [
        ("", DOCUMENT),
        ("name,status", {"name": "np1", "status": "RUNNING"}),
        ("labels/a", {"labels": {"a": "b"}}),
        ("disks(name)", {"disks": [{"name": "one"}, {"name": "two"}]}),
        ("disks/name,disks/boot", {"disks": DOCUMENT["disks"]}),
        ("disks(*),name", {"disks": DOCUMENT["disks"], "name": "np1"}),
        ("labels/*", {"labels": DOCUMENT["labels"]}),
        ("labels(z)", {}),
        ("labels/a,labels/owner,labels/a", {"labels": DOCUMENT["labels"]}),
        ("nested/*/a,nested/*/b/c", {"nested": {"x": {"a": 1, "b": {"c": 2}}}}),
        ("nested/*/b,nested/*/b/c", {"nested": {"x": {"b": {"c": 2, "d": 3}}}}),
        ("absent", {}),
    ],
)
def test_parts_of_answers(mask: str, kept: dict[str, Any]) -> None:
    assert masked(DOCUMENT, read_mask(mask)) == kept


@pytest.mark.parametrize("mask", ["name,", "items(name", "a//b", "items(name))"])
def test_bad_parts(mask: str) -> None:
    with pytest.raises(ApiError):
        read_mask(mask)


def test_order_and_pages(caller: Caller) -> None:
    """By name, or the newest first; each entry once, over all pages."""
    for name in ("np3", "np1", "np2"):
        caller.insert(name)
    caller.clock.pass_seconds(BOOT)
    where = f"zones/{ZONE}/instances"
    assert [one["name"] for one in caller.get(where)["items"]] == ["np1", "np2", "np3"]
    first = caller.get(where, maxResults=2, fields="items(name,status),nextPageToken")
    assert first["items"] == [{"name": "np1", "status": "RUNNING"}, {"name": "np2", "status": "RUNNING"}]
    last = caller.get(where, maxResults=2, pageToken=first["nextPageToken"])
    assert ([one["name"] for one in last["items"]], "nextPageToken" in last) == (["np3"], False)
    newest = caller.get(f"zones/{ZONE}/operations", orderBy="creationTimestamp desc", maxResults=1)
    assert newest["items"][0]["targetLink"].endswith("/np2")
    assert "items" not in caller.get(where, filter="name=other")
    for query in ({"maxResults": 501}, {"pageToken": "x"}, {"orderBy": "status"}, {"filter": "name"}):
        assert caller.call("GET", where, **query)[0] == 400


def test_all_zones(caller: Caller) -> None:
    """Each scope tells its entries, or that it has none; one that is silent is named, or fails the call."""
    caller.insert("np1")
    with caller.simulator.cloud() as cloud:
        cloud.add_instance("np2", zone="us-central1-b")
    items = caller.get("aggregated/instances")["items"]
    assert [one["name"] for one in items[f"zones/{ZONE}"]["instances"]] == ["np1"]
    assert items["zones/us-central1-c"]["warning"]["code"] == "NO_RESULTS_ON_PAGE"
    caller.simulator.change(unreachable=["us-central1-b"])
    assert caller.call("GET", "aggregated/instances")[0] == 503
    part = caller.get("aggregated/instances", returnPartialSuccess="true")
    assert [link.rpartition("/")[2] for link in part["unreachables"]] == ["us-central1-b"]
    assert OTHER not in part["items"]
    assert caller.call("GET", f"{OTHER}/instances")[0] == 503
    caller.simulator.change(unreachable_warnings=True)
    part = caller.get("aggregated/instances", returnPartialSuccess="true")
    assert (part["items"][OTHER]["warning"]["code"], "unreachables" in part) == ("UNREACHABLE", False)


def test_what_lists_show_late(caller: Caller) -> None:
    """A new instance is missing for a while, a deleted one is still there; a look at it by name tells the truth."""
    caller.simulator.change(hidden_rate=1.0, hidden_seconds=20.0, ghost_rate=1.0, ghost_seconds=20.0)
    where = f"zones/{ZONE}/instances"
    caller.insert("np1")
    caller.clock.pass_seconds(BOOT)
    assert "items" not in caller.get(where)
    assert caller.status("np1") == "RUNNING"
    caller.clock.pass_seconds(20.0)
    assert len(caller.get(where)["items"]) == 1
    caller.call("DELETE", f"{where}/np1")
    caller.clock.pass_seconds(DELETE)
    assert [one["status"] for one in caller.get(where)["items"]] == ["STOPPING"]
    assert caller.status("np1") is None
    caller.clock.pass_seconds(20.0)
    assert "items" not in caller.get(where)


def test_operations_are_forgotten(caller: Caller) -> None:
    caller.insert("np1")
    caller.clock.pass_seconds(BOOT)
    assert len(caller.get(f"zones/{ZONE}/operations")["items"]) == 1
    caller.clock.pass_seconds(3600.0)
    assert "items" not in caller.get(f"zones/{ZONE}/operations")


def test_labels(caller: Caller) -> None:
    """They are changed only by who knows the present ones."""
    caller.insert("np1")
    where = f"zones/{ZONE}/disks/np1"
    disk = caller.get(where)
    body = {"labels": {"a": "b"}, "labelFingerprint": disk["labelFingerprint"]}
    assert caller.call("POST", f"{where}/setLabels", body)[0] == 200
    assert caller.call("POST", f"{where}/setLabels", body)[0] == 412
    assert [one["name"] for one in caller.get(f"zones/{ZONE}/disks", filter="labels.a=b")["items"]] == ["np1"]


def test_addresses(caller: Caller) -> None:
    where = "regions/us-central1/addresses"
    assert caller.call("POST", where, {"name": "a1", "labels": {"a": "b"}})[0] == 200
    assert caller.call("POST", where, {"name": "a1"})[0] == 409
    (address,) = caller.get(where, filter="labels.a=b")["items"]
    assert (address["status"], address["region"].rpartition("/")[2]) == ("RESERVED", "us-central1")
    assert caller.call("DELETE", f"{where}/a1")[0] == 200
    assert caller.call("DELETE", f"{where}/a1")[0] == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("zones/us-central1-x/instances", 400),
        ("regions/us-central9", 400),
        ("global/networks/other", 404),
        ("zones/us-central1-f/machineTypes/c2-standard-4", 404),
        ("global/images/family/other", 404),
        ("zones/us-central1-a/nothing", 404),
    ],
)
def test_what_there_is_not(caller: Caller, path: str, status: int) -> None:
    assert caller.call("GET", path)[0] == status
