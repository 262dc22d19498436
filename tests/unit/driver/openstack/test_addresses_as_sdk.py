# SPDX-License-Identifier: Apache-2.0
"""`nodepool.driver.openstack.instance` chooses as openstacksdk does, which is asked about the same servers (O-12)."""

from __future__ import annotations

import itertools
import random
from importlib import metadata
from typing import Any

import pytest
from openstack.cloud import meta
from openstack.cloud._network_common import NetworkCommonCloudMixin
from openstack.compute.v2.server import Server as SdkServer
from openstack.config.loader import OpenStackConfig
from openstack.network.v2.network import Network as SdkNetwork

from nodepool.driver.openstack.clouds import settings_of
from nodepool.driver.openstack.instance import CloudNetworks, classify
from nodepool.driver.openstack.views import Network, Server

NETWORKS: list[dict[str, Any]] = [
    {"id": "n1", "name": "inner"},
    {"id": "n2", "name": "ext", "router:external": True},
    {"id": "n3", "name": "flat", "provider:physical_network": "physnet1"},
    {"id": "n4", "name": "public"},
    {"id": "n5", "name": "private"},
]
#: Each with how often it is set.
SETTINGS: list[tuple[str, Any, float]] = [
    ("private", True, 0.2),
    ("force_ipv4", True, 0.2),
    ("prefer_ipv6", False, 0.1),
    ("use_external_network", False, 0.1),
    ("use_internal_network", False, 0.1),
    ("floating_ip_source", "None", 0.3),
    ("floating_ip_source", None, 0.1),
]
MARKS = ("routes_externally", "routes_ipv4_externally", "default_interface")


class SdkCloud:
    """What openstacksdk looks at when it chooses; asks nobody."""

    _set_interesting_networks: Any = NetworkCommonCloudMixin._set_interesting_networks

    _external_ipv4_networks: Any = ()
    _internal_ipv4_networks: Any = ()
    _default_network_network: Any = None

    def __init__(self, region: Any, networks: list[dict[str, Any]] | None, *, ipv6: bool) -> None:
        self.private = region.config.get("private", False)
        self.force_ipv4 = region.force_ipv4
        self._local_ipv6 = ipv6 and not region.force_ipv4
        self._external_ipv4_names = region.get_external_ipv4_networks()
        self._internal_ipv4_names = region.get_internal_ipv4_networks()
        self._external_ipv6_names = region.get_external_ipv6_networks()
        self._internal_ipv6_names = region.get_internal_ipv6_networks()
        self._nat_destination = self._nat_source = None
        self._default_network = region.get_default_network()
        self.network = self
        self._found = [SdkNetwork.existing(**entry) for entry in networks or []]
        if networks is not None:
            self._service = True
            self._set_interesting_networks()
        self._service = False
        self.use_external_network = lambda: region.config.get("use_external_network", True)
        self.use_internal_network = lambda: region.config.get("use_internal_network", True)

    def has_service(self, _: str) -> bool:
        return self._service

    def networks(self) -> list[Any]:
        return self._found

    def subnets(self) -> list[Any]:
        return []

    def get_external_ipv4_networks(self) -> Any:
        return self._external_ipv4_networks

    def get_internal_ipv4_networks(self) -> Any:
        return self._internal_ipv4_networks

    def get_default_network(self) -> Any:
        return self._default_network_network


def random_case(
    dice: random.Random,
) -> tuple[dict[str, Any], list[dict[str, Any]] | None, dict[str, Any], bool]:
    """Settings of the cloud, its networks (None: no network service), a server, and whether the host has IPv6."""
    networks = dice.sample(NETWORKS, dice.randint(1, len(NETWORKS)))
    neutron = dice.random() < 0.9
    # Without a network service openstacksdk does not look at what clouds.yaml says of networks, and we do.
    marked = dice.sample(networks, dice.randint(0, min(2, len(networks)))) if neutron else []
    default = dice.choice([None, *(entry["name"] for entry in marked)])
    settings: dict[str, Any] = {
        "auth_type": "none",
        "endpoint": "http://127.0.0.1",
        "networks": [
            {
                "name": entry["name"],
                **{mark: dice.random() < 0.5 for mark in dice.sample(MARKS[:2], dice.randint(0, 2))},
                "default_interface": entry["name"] == default,
            }
            for entry in marked
        ],
        **{name: value for name, value, odds in SETTINGS if dice.random() < odds},
    }
    server = {
        "id": "s1",
        "status": "ACTIVE",
        "addresses": random_addresses(dice, dice.sample(networks, dice.randint(1, min(3, len(networks))))),
        "accessIPv4": "7.7.7.7" if dice.random() < 0.1 else "",
        "accessIPv6": "2001:db8::7" if dice.random() < 0.1 else "",
    }
    return settings, networks if neutron else None, server, dice.random() < 0.5


def random_addresses(dice: random.Random, networks: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Of a server, as Nova shows them: one port, or two, on each network; old clouds leave things out."""
    extended = dice.random() < 0.9
    found: dict[str, list[dict[str, Any]]] = {}
    numbers = itertools.count(2)
    for entry in networks:
        for _ in range(dice.choice([1, 1, 1, 2])):
            port = next(numbers)
            mac = f"fa:16:3e:00:00:{port:02x}"
            versions = dice.choice([(4,), (6,), (4, 6), (6, 4), (4, 6, 6)])
            ips = [(random_ip(dice, version, port), version, "fixed") for version in versions]
            if 4 in versions and dice.random() < 0.3 and extended:
                ips.append((f"8.8.8.{port}", 4, "floating"))
            for ip, version, kind in ips:
                more = {"OS-EXT-IPS:type": kind, "OS-EXT-IPS-MAC:mac_addr": mac} if extended else {}
                found.setdefault(entry["name"], []).append({"addr": ip, "version": version, **more})
    return found


def random_ip(dice: random.Random, version: int, port: int) -> str:
    if version == 6:
        return f"{dice.choice(['fd00', '2001:db8', '2620:52'])}::{dice.randint(1, 9)}:{port}"
    return f"{dice.choice(['10.0.0', '172.20.1', '9.9.9'])}.{port}"


@pytest.fixture(scope="module")
def loader() -> OpenStackConfig:
    return OpenStackConfig(config_files=[], secure_files=[], vendor_files=[], load_envvars=False)


@pytest.mark.skipif(metadata.version("openstacksdk").startswith("3."), reason="its inside is another one")
@pytest.mark.parametrize("seed", range(5))
def test_same_choice(loader: OpenStackConfig, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """O-12, L-13: public, private and interface address of 200 random servers."""
    # Of several it would try to connect to each for seconds, and take the first if none answers.
    monkeypatch.setattr(meta, "find_best_address", lambda addresses, **_: addresses[0] if addresses else None)
    dice = random.Random(seed)
    for _ in range(60):
        settings, networks, data, ipv6 = random_case(dice)
        region = loader.get_one(validate=False, **settings)
        server: Any = SdkServer.existing(**data)
        sdk: Any = meta.add_server_interfaces(SdkCloud(region, networks, ipv6=ipv6), server)  # type: ignore[arg-type]
        cloud = CloudNetworks.of(settings_of(region), host_has_ipv6=ipv6)
        found = classify(Server.of(data), [Network.of(entry) for entry in networks or []], cloud)
        case = f"{settings} {networks} {data} {ipv6}"
        assert (found.public_v4 or "", found.public_v6 or "") == (sdk["public_v4"], sdk["public_v6"]), case
        if sdk["private_v4"] or found.public_v4:
            assert (found.private_v4 or "") == sdk["private_v4"], case
        if sdk["interface_ip"]:
            assert found.interface == sdk["interface_ip"], case
