# SPDX-License-Identifier: Apache-2.0
"""What services of OpenStack, and what stands before them, really answer: a row for each form, with its source.

Which address of a server is which is compared with openstacksdk, which is asked about the same servers.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openstack.block_storage.v3.volume import Volume as SdkVolume
from openstack.cloud import meta
from openstack.cloud._network_common import NetworkCommonCloudMixin
from openstack.compute.v2.server import Server as SdkServer
from openstack.config.loader import OpenStackConfig
from openstack.network.v2.floating_ip import FloatingIP as SdkFloatingIP
from openstack.network.v2.network import Network as SdkNetwork
from openstack.network.v2.port import Port as SdkPort

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.openstack.api import Api, Network, Port, Server, limit
from nodepool.driver.openstack.cloud import CloudNetworks, classify
from nodepool.driver.openstack.clouds import settings_of
from nodepool.driver.openstack.transport import ServiceAbsent
from nodepool.exceptions import LaunchError
from tests.support.tables import driver_table
from tests.unit.driver.openstack.support import FastTransport, Response, StubTransport

NGINX = b"<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n<h1>404 Not Found</h1>\r\n</body></html>\r\n"


@pytest.mark.parametrize(("status", "body", "headers", "kind", "text"), driver_table("openstack", "errors"))
def test_errors(status: int, body: Any, headers: dict[str, str], kind: type[Exception], text: str) -> None:
    """reference/driver 13, O-3: each kind of trouble has its class; the text says whose it is and what was done."""
    transport = FastTransport(Response(status, body.encode("latin-1") if isinstance(body, str) else body, **headers))
    with pytest.raises(kind) as caught:
        transport.get()
    assert type(caught.value) is kind
    assert str(caught.value).startswith("Provider cloud-a: listing servers failed: ")
    assert text in str(caught.value)
    assert len(transport.asked) == 1
    assert not {"\n", "<"} & set(str(caught.value))


# -- lists --


@pytest.mark.parametrize(("pages", "ids", "markers"), driver_table("openstack", "pages"))
def test_pages(pages: list[dict[str, Any]], ids: str, markers: str) -> None:
    """Nova says where the next page is; the filter stays."""
    transport = FastTransport(*(Response(200, page) for page in pages))
    assert [found.id for found in Api(transport).servers("2026-01-01T00:00:00Z")] == list(ids)
    asked = [arguments["params"] for _, _, arguments in transport.asked]
    assert {params.pop("changes-since") for params in asked} == {"2026-01-01T00:00:00Z"}
    assert [params.get("marker") for params in asked] == [None, *markers]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"servers": null, "limits": null}', b"[]", b"null", b'"x"', NGINX])
@pytest.mark.parametrize("ask", [Api.servers, Api.compute_limits, Api.volume_limits])
def test_what_is_no_list(ask: Callable[[Api], Any], body: bytes) -> None:
    """A proxy that answers 200 says nothing of servers, which must not count as deleted, nor of limits."""
    with pytest.raises(CloudAway):
        ask(Api(FastTransport(Response(200, body))))


@pytest.mark.parametrize(("what", "arguments", "missing", "nothing"), driver_table("openstack", "absent"))
@pytest.mark.parametrize("in_catalog", [True, False])
def test_what_a_cloud_does_not_have(
    what: str, arguments: list[str], missing: str, nothing: Any, in_catalog: bool
) -> None:
    """What is absent is a feature that is off: a service, in the catalog too, or what a service answers 404 to."""
    answer = Response(404, {"itemNotFound": {"message": "x"}}) if missing == "object" else ServiceAbsent("no endpoint")
    transport = FastTransport(answer)
    if missing == "service":
        transport.has = lambda service: in_catalog  # type: ignore[method-assign]
    found = getattr(Api(transport), what)(*arguments)
    assert (list(found) if isinstance(found, frozenset) else found) == nothing


# -- things --


@pytest.mark.parametrize("data", driver_table("openstack", "servers"))
def test_servers(data: dict[str, Any]) -> None:
    """The same as openstacksdk reads, with what is absent or null made empty."""
    found, sdk = Server(data), SdkServer.existing(**data)
    assert (found.status, found.az, found.host_id) == (sdk.status, sdk.availability_zone or None, sdk.host_id or None)
    assert dict(found.metadata) == (sdk.metadata or {})
    assert found.volumes == tuple(volume["id"] for volume in sdk.attached_volumes or ())
    flavor = sdk.flavor
    assert (found.cores, found.ram) == (((flavor.vcpus or 0), (flavor.ram or 0)) if flavor else (0, 0))


@pytest.mark.parametrize(("written", "read"), driver_table("openstack", "times"))
def test_times(written: str | None, read: str) -> None:
    """They are compared as texts: those with and without fractions would be in the wrong order."""
    assert Server({"id": "s", "updated": written}).updated == read


PORT = Port({"id": "a", "network_id": "n", "fixed_ips": [{"ip_address": "10.0.0.3"}]})


@pytest.mark.parametrize(("data", "parts"), driver_table("openstack", "floating_ips"))
def test_floating_ips(data: dict[str, Any], parts: list[Any]) -> None:
    data = {"id": "a", **data}
    sdk = SdkFloatingIP.existing(**data)
    api = Api(FastTransport(Response(200, {"floatingips": [data], "floatingip": data})))
    (wanted,) = api.floating_ips()
    assert wanted == api.create_floating_ip("n", PORT, "10.0.0.3", "")
    assert [*vars(wanted).values()] == parts
    read = (sdk.floating_ip_address or "", sdk.port_id or "", sdk.fixed_ip_address or "")
    assert (wanted.address, wanted.port, wanted.fixed_address) == read


@pytest.mark.parametrize(("data", "parts"), driver_table("openstack", "ports"))
def test_ports(data: dict[str, Any], parts: list[Any]) -> None:
    data = {"id": "a", **data}
    sdk = SdkPort.existing(**data)
    (wanted,) = Api(FastTransport(Response(200, {"ports": [data]}))).ports("s")
    assert [*vars(wanted).values()] == [*parts[:5], tuple(parts[5])]
    read = [value or "" for value in (sdk.network_id, sdk.status, sdk.device_owner, sdk.device_id)]
    assert [wanted.network, wanted.status, wanted.owner, wanted.device] == read


@pytest.mark.parametrize("data", driver_table("openstack", "volumes"))
def test_volumes(data: dict[str, Any]) -> None:
    data = {"id": "v", **data}
    sdk = SdkVolume.existing(**data)
    (found,) = Api(FastTransport(Response(200, {"volumes": [data]}))).volumes()
    assert (found.size, found.attached, dict(found.metadata)) == (
        *(int(sdk.size or 0), bool(sdk.attachments)),
        sdk.metadata or {},
    )
    assert found.deleting is (data["status"] == "deleting")


@pytest.mark.parametrize(("value", "most"), driver_table("openstack", "limits"))
def test_limits(value: Any, most: float) -> None:
    """Cinder's have the same form: cinder, api-ref/source/v3/samples/limits/limits-show-response.json."""
    assert limit(value) == most
    answer = Response(200, {"limits": {"rate": [], "absolute": {"a": 1}}})
    for ask in (Api.compute_limits, Api.volume_limits):
        assert ask(Api(FastTransport(answer))) == {"a": 1}


# -- anything --

LISTS = (Api.servers, Api.flavors, Api.zones, Api.networks, Api.ports, Api.floating_ips, Api.volumes, Api.images)
#: All that read an answer.
CALLS: list[Callable[[Api], Any]] = [
    *(*LISTS, Api.compute_limits, Api.security_groups, Api.networks_with_gateway),
    *(lambda api, name=name: getattr(api, name)("s1") for name in ("server", "console", "flavor", "image")),
    lambda api: api.create_server({}),
    lambda api: api.create_image({}),
    lambda api: api.create_floating_ip("n1", PORT, "10.0.0.1", "note"),
]
#: Of answers: where things are; and keys of things, so that odd values get where they hurt.
TOPS, KEYS = (st.sampled_from(names) for names in driver_table("openstack", "odd"))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ODD = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


class OddTransport(StubTransport):
    """Answers everything with the same thing."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def call(self, *_: object, **__: object) -> Any:
        return self.answer


@settings(max_examples=100, deadline=None)
@given(key=TOPS, value=ODD, where=st.sampled_from(["alone", "inside", "listed"]))
def test_any_answer(key: str, value: Any, where: str) -> None:
    """No KeyError, no TypeError, no endless loop."""
    transport: Any = OddTransport({"alone": value, "inside": {key: value}, "listed": {key: [value]}}[where])
    for call in CALLS:
        with contextlib.suppress(LaunchError):
            call(Api(transport))


HOSTILE = ODD | st.sampled_from(
    ["10.0.0.1\nh ssh-rsa AAAA", "10.0.0.1 x", "host.example.org", "::1", "10.0.0.9", "\ud800", ""]
)
ENTRIES = st.lists(st.fixed_dictionaries({"addr": HOSTILE, "version": ODD}), max_size=2)


@given(HOSTILE, HOSTILE, ODD, ODD, st.dictionaries(st.text(max_size=3), ENTRIES))
def test_what_goes_into_a_node(access4: Any, access6: Any, host: Any, zone: Any, addresses: Any) -> None:
    """L-13, reference/zookeeper 5: texts where a record must have them, and addresses: Zuul writes files with them."""
    data = {"accessIPv4": access4, "accessIPv6": access6, "hostId": host, "OS-EXT-AZ:availability_zone": zone}
    found = Server({"id": "s1", "addresses": addresses, **data})
    for address in (found.access_ipv4, found.access_ipv6, *(address.ip for address in found.addresses)):
        assert set(address) <= set("0123456789abcdefABCDEF:.")
    assert isinstance(found.az, str | None)
    assert isinstance(found.host_id, str | None)


NETWORKS: list[dict[str, Any]] = driver_table("openstack", "networks")
#: Each with how often it is set.
SETTINGS: list[tuple[str, Any, float]] = driver_table("openstack", "odds")
MARKS = ("routes_externally", "routes_ipv4_externally")


class SdkCloud:
    """What openstacksdk looks at when it chooses; asks no cloud, as its class for that would."""

    # The look of openstacksdk has no public name.
    _set_interesting_networks: Any = NetworkCommonCloudMixin._set_interesting_networks  # noqa: SLF001
    _external_ipv4_networks: Any = ()
    _internal_ipv4_networks: Any = ()
    _default_network_network: Any = None

    def __init__(self, region: Any, networks: list[dict[str, Any]] | None, ipv6: bool) -> None:
        self.private = region.config.get("private", False)
        self.force_ipv4 = region.force_ipv4
        self._local_ipv6 = ipv6 and not region.force_ipv4
        for kind in ("external", "internal"):
            setattr(self, f"use_{kind}_network", partial(region.config.get, f"use_{kind}_network", True))
            setattr(self, f"get_{kind}_ipv4_networks", partial(getattr, self, f"_{kind}_ipv4_networks"))
            for version in (4, 6):
                names = getattr(region, f"get_{kind}_ipv{version}_networks")()
                setattr(self, f"_{kind}_ipv{version}_names", names)
        self.get_default_network = partial(getattr, self, "_default_network_network")
        self._nat_destination = self._nat_source = None
        self._default_network = region.get_default_network()
        self.network = self
        self.networks: Any = partial(list, [SdkNetwork.existing(**entry) for entry in networks or []])
        self.subnets: Any = list
        self.has_service: Any = lambda _: True
        if networks is not None:
            self._set_interesting_networks()
        self.has_service = lambda _: False


def random_settings(dice: random.Random, networks: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the cloud."""
    marked = dice.sample(networks, dice.randint(0, min(2, len(networks))))
    default = dice.choice([None, *(entry["name"] for entry in marked)])
    marks = [
        {"name": entry["name"], "default_interface": entry["name"] == default}
        | {mark: dice.random() < 0.5 for mark in dice.sample(MARKS, dice.randint(0, 2))}
        for entry in marked
    ]
    return {"networks": marks} | {name: value for name, value, odds in SETTINGS if dice.random() < odds}


def random_server(dice: random.Random, networks: list[dict[str, Any]]) -> dict[str, Any]:
    """As Nova shows it: one port, or two, on each of some networks; old clouds leave things out."""
    extended = dice.random() < 0.9
    found: dict[str, list[dict[str, Any]]] = {}
    for port in range(2, 2 + dice.randint(1, 5)):
        entries = found.setdefault(dice.choice(networks)["name"], [])
        ips = [f"{dice.choice(['10.0.0', '172.20.1', '9.9.9'])}.{port}" for _ in dice.choice([(), (4,), (4,)])]
        ips += [f"{dice.choice(['fd00', '2001:db8', '2620:52'])}::{port}" for _ in dice.choice([(), (6,), (6, 6)])]
        dice.shuffle(ips)
        ips += [f"8.8.8.{port}" for ip in ips if "." in ip and dice.random() < 0.3 and extended]
        for ip in ips:
            kind = {
                "OS-EXT-IPS:type": "floating" if "8.8.8." in ip else "fixed",
                "OS-EXT-IPS-MAC:mac_addr": f"fa::{port}",
            }
            entry = {"addr": ip, "version": 6 if ":" in ip else 4, **(kind if extended else {})}
            entries.append(entry)
    access = {"accessIPv4": "7.7.7.7" * (dice.random() < 0.1), "accessIPv6": "2001:db8::7" * (dice.random() < 0.1)}
    return {"id": "s1", "status": "ACTIVE", "addresses": found, **access}


@pytest.mark.skipif(metadata.version("openstacksdk").startswith("3."), reason="its inside is another one")
@pytest.mark.parametrize("seed", range(5))
def test_same_choice(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """O-12, L-13: public, private and interface address of 300 random servers."""
    # Of several it would try to connect to each for seconds, and take the first if none answers.
    monkeypatch.setattr(meta, "find_best_address", lambda addresses, **_: addresses[0] if addresses else None)
    loader = OpenStackConfig(config_files=[], secure_files=[], vendor_files=[], load_envvars=False)
    dice = random.Random(seed)
    for _ in range(60):
        networks = dice.sample(NETWORKS, dice.randint(1, len(NETWORKS)))
        # Without a network service openstacksdk does not look at what clouds.yaml says of networks, and we do.
        neutron, ipv6 = dice.random() < 0.9, dice.random() < 0.5
        settings, data = random_settings(dice, networks if neutron else []), random_server(dice, networks)
        region = loader.get_one(validate=False, auth_type="none", endpoint="http://127.0.0.1", **settings)
        shown: Any = SdkServer.existing(**data)
        asked: Any = SdkCloud(region, networks if neutron else None, ipv6)
        sdk: Any = meta.add_server_interfaces(asked, shown)
        cloud = CloudNetworks(settings_of(region), host_has_ipv6=ipv6)
        found = classify(Server(data), [Network(entry) for entry in networks if neutron], cloud)
        case = f"{settings} {networks} {data} {ipv6}"
        assert (found.public_v4 or "", found.public_v6 or "") == (sdk["public_v4"], sdk["public_v6"]), case
        if sdk["private_v4"] or found.public_v4:
            assert (found.private_v4 or "") == sdk["private_v4"], case
        if sdk["interface_ip"]:
            assert found.interface == sdk["interface_ip"], case
