# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.api` and ``views``: pages, odd answers, absent services."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.openstack.api import Api
from nodepool.driver.openstack.views import (
    FLOATING_IP_FIELDS,
    NETWORK_FIELDS,
    PORT_FIELDS,
    FloatingIp,
    Network,
    Port,
    Server,
)
from tests.unit.driver.openstack.support import StubTransport, server


@pytest.fixture
def transport() -> StubTransport:
    return StubTransport()


@pytest.fixture
def api(transport: StubTransport) -> Api:
    return Api(transport)  # type: ignore[arg-type]


def test_all_pages(api: Api, transport: StubTransport) -> None:
    """Nova says where the next page is; the filter stays."""
    asked: list[dict[str, Any]] = []

    def pages(body: Any, query: dict[str, Any]) -> Any:
        asked.append(query)
        if "marker" not in query:
            link = "http://cloud/servers/detail?limit=2&marker=b"
            return {"servers": [server("a"), server("b")], "servers_links": [{"rel": "next", "href": link}]}
        return {"servers": [server("c")]}

    transport.answers["GET", "/servers/detail"] = pages
    assert [found.id for found in api.servers("2026-01-01T00:00:00Z")] == ["a", "b", "c"]
    assert asked == [
        {"changes-since": "2026-01-01T00:00:00Z"},
        {"changes-since": "2026-01-01T00:00:00Z", "marker": "b"},
    ]


def test_changes_that_were_listed_before(api: Api, transport: StubTransport) -> None:
    """Lists of changes overlap: what is as it was is not looked at again, what changed is."""
    since = "2026-01-01T00:00:00Z"
    transport.answers["GET", "/servers/detail"] = lambda body, query: {
        "servers": [server("a", status="BUILD"), server("b", status="BUILD")]
    }
    first = api.servers(since)
    transport.answers["GET", "/servers/detail"] = lambda body, query: {
        "servers": [server("b", status="BUILD"), server("a", status="ACTIVE")]
    }
    b, a = api.servers(since)
    assert b is first[1]
    assert (a.id, a.status) == ("a", "ACTIVE")
    transport.answers["GET", "/servers/detail"] = {"servers": []}
    assert api.servers(since) == []
    transport.answers["GET", "/servers/detail"] = lambda body, query: {"servers": [server("b", status="BUILD")]}
    assert api.servers(since) == [b]


def test_narrow_list_does_not_make_forget(api: Api, transport: StubTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a wide list tells again is known; many that are told no more are forgotten."""
    monkeypatch.setattr("nodepool.driver.openstack.api.REMEMBERED_SERVERS", 1)

    def told(*ids: str) -> list[Server]:
        transport.answers["GET", "/servers/detail"] = lambda body, query: {"servers": [server(name) for name in ids]}
        return api.servers("2026-01-01T00:00:00Z")

    first = told("a", "b")
    assert told("a")[0] is first[0]
    assert told("b")[0] is first[1]
    told()
    assert told("a")[0] is not first[0]


class Read(dict[str, Any]):
    """Notes which keys are read."""

    def __init__(self, **data: Any) -> None:
        super().__init__(data)
        self.keys_read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.keys_read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_read.add(key)
        return super().get(key, default)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(Network, NETWORK_FIELDS), (Port, PORT_FIELDS), (FloatingIp, FLOATING_IP_FIELDS)],
)
def test_fields_that_are_asked_for_are_those_that_are_read(kind: Any, fields: tuple[str, ...]) -> None:
    data = Read(id="1")
    kind.of(data)
    assert data.keys_read == set(fields)


def test_no_more_is_asked_for_than_is_read(api: Api, transport: StubTransport) -> None:
    asked: dict[str, dict[str, Any]] = {}

    def noted(key: str) -> Any:
        def answer(body: Any, query: dict[str, Any]) -> Any:
            asked[key] = query
            return {key: []}

        return answer

    for key in ("networks", "ports", "floatingips"):
        transport.answers["GET", f"/{key}"] = noted(key)
    assert (api.networks(), api.ports("s1", "DOWN"), api.floating_ips()) == ([], [], [])
    assert asked == {
        "networks": {"fields": NETWORK_FIELDS},
        "ports": {"fields": PORT_FIELDS, "device_id": "s1", "status": "DOWN"},
        "floatingips": {"fields": FLOATING_IP_FIELDS},
    }


def test_pages_of_images(api: Api, transport: StubTransport) -> None:
    """Glance has another kind of link."""
    transport.answers["GET", "/images"] = lambda body, query: (
        {"images": [{"id": "b"}]} if "marker" in query else {"images": [{"id": "a"}], "next": "/v2/images?marker=a"}
    )
    assert [image.id for image in api.images()] == ["a", "b"]


def test_endless_pages(api: Api, transport: StubTransport) -> None:
    """A cloud that links in a circle does not keep us for ever."""
    transport.answers["GET", "/images"] = {"images": [{"id": "a"}], "next": "/v2/images?marker=a"}
    with pytest.raises(CloudAway, match="no end"):
        api.images()


@pytest.mark.parametrize("answer", [{}, [], "text", None, {"servers": None}, {"servers": {"id": 1}}])
def test_answers_that_are_no_lists(api: Api, transport: StubTransport, answer: Any) -> None:
    """They must not be taken for an empty list: everything would seem to be deleted."""
    transport.answers["GET", "/servers/detail"] = [answer]
    with pytest.raises(CloudAway, match="no list 'servers'"):
        api.servers()


def test_odd_entries(api: Api, transport: StubTransport) -> None:
    """One entry that makes no sense does not hide the others."""
    odd: list[Any] = [
        7,
        None,
        {},
        {"id": "x", "addresses": 3, "flavor": "f", "metadata": [], "fault": "?", "status": None},
    ]
    transport.answers["GET", "/servers/detail"] = {"servers": [*odd, server("a")]}
    assert [found.id for found in api.servers()] == ["x", "a"]


def test_server() -> None:
    """What the driver uses of a server."""
    found = Server.of(
        server(
            "s1",
            "error",
            fault={"message": "No valid host", "code": 500},
            flavor={"vcpus": 4, "ram": 8192},
            addresses={
                "net": [
                    {"addr": "10.0.0.1", "version": 4, "OS-EXT-IPS:type": "fixed"},
                    {"addr": "fd00::1"},
                    {"addr": "1.2.3.4", "version": 4, "OS-EXT-IPS:type": "floating"},
                ]
            },
            **{"os-extended-volumes:volumes_attached": [{"id": "v1"}], "OS-EXT-STS:task_state": "deleting"},
        )
    )
    assert (found.status, found.fault, found.cores, found.ram, found.volumes) == (
        *("ERROR", "No valid host", 4),
        *(8192, ("v1",)),
    )
    assert [(a.ip, a.version, a.floating) for a in found.addresses] == [
        ("10.0.0.1", 4, False),
        ("fd00::1", 6, False),
        ("1.2.3.4", 4, True),
    ]
    assert found.deleting
    assert not found.gone


def test_absent_services_are_features_that_are_off(api: Api, transport: StubTransport) -> None:
    """A cloud without block storage, network service or floating IPs works (tools/README)."""
    transport.services = {"compute", "image"}
    assert (api.volumes(), api.volume_limits(), api.networks(), api.ports(), api.floating_ips()) == (
        [],
        {},
        None,
        [],
        [],
    )
    transport.services.add("network")
    del transport.answers["GET", "/floatingips"]
    assert api.floating_ips() == []


def test_zones(api: Api, transport: StubTransport) -> None:
    """Only zones that take servers; none if the cloud does not tell."""
    zone = {"zoneName": "a", "zoneState": {"available": True}}
    down = {"zoneName": "b", "zoneState": {"available": False}}
    transport.answers["GET", "/os-availability-zone"] = {"availabilityZoneInfo": [zone, down, {}, 3]}
    assert api.zones() == ["a"]
    transport.answers["GET", "/os-availability-zone"] = CloudRefused("policy", 403)
    assert api.zones() == []


def test_console(api: Api, transport: StubTransport) -> None:
    transport.answers["POST", "/servers/s1/action"] = {"output": "boot\n"}
    assert api.console("s1") == "boot\n"
    transport.answers["POST", "/servers/s1/action"] = CloudRefused("not supported", 501)
    assert api.console("s1") is None


def test_ids_cannot_leave_their_place(api: Api, transport: StubTransport) -> None:
    """An id from a znode is data, not a path."""
    transport.answers["DELETE", "/servers/a%2F..%2Fb"] = {}
    api.delete_server("a/../b")
    assert transport.calls == [("DELETE", "/servers/a%2F..%2Fb")]
