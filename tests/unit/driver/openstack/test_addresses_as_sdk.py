# SPDX-License-Identifier: Apache-2.0
"""`nodepool.driver.openstack.addresses` chooses as openstacksdk does, which is asked about the same servers (O-12)."""

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

from nodepool.driver.openstack.addresses import CloudNetworks, classify
from nodepool.driver.openstack.clouds import settings_of
from nodepool.driver.openstack.views import Network, Server

NETWORKS: list[dict[str, Any]] = [
    {"id": "n1", "name": "inner"},
    {"id": "n2", "name": "ext", "router:external": True},
    {"id": "n3", "name": "flat", "provider:physical_network": "physnet1"},
    {"id": "n4", "name": "public"},
    {"id": "n5", "name": "private"},
]
MARKS = ("routes_externally", "routes_ipv4_externally", "default_interface")


class SdkCloud:
    """What openstacksdk looks at when it chooses; asks nobody."""

    _set_interesting_networks: Any = NetworkCommonCloudMixin._set_interesting_networks

    def __init__(self, region: Any, networks: list[dict[str, Any]], *, ipv6: bool) -> None:
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
        self._found = [SdkNetwork.existing(**entry) for entry in networks]
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
        return self._external_ipv4_networks  # type: ignore[attr-defined]

    def get_internal_ipv4_networks(self) -> Any:
        return self._internal_ipv4_networks  # type: ignore[attr-defined]

    def get_default_network(self) -> Any:
        return self._default_network_network  # type: ignore[attr-defined]


def random_case(dice: random.Random) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], bool]:
    """Settings of the cloud, its networks, a server, and whether the host has IPv6."""
    networks = dice.sample(NETWORKS, dice.randint(1, len(NETWORKS)))
    marked = dice.sample(networks, dice.randint(0, min(2, len(networks))))
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
    }
    for name in ("private", "force_ipv4"):
        if dice.random() < 0.2:
            settings[name] = True
    if dice.random() < 0.1:
        settings["use_external_network"] = False
    numbers = itertools.count(2)
    addresses: dict[str, list[dict[str, Any]]] = {}
    for entry in dice.sample(networks, dice.randint(1, min(3, len(networks)))):
        port = next(numbers)
        mac = {"OS-EXT-IPS-MAC:mac_addr": f"fa:16:3e:00:00:{port:02x}"}
        found = addresses.setdefault(entry["name"], [])
        versions = dice.choice([(4,), (6,), (4, 6), (6, 4)])
        for version in versions:
            ip = f"fd00::{port}" if version == 6 else f"{dice.choice(['10.0.0', '9.9.9'])}.{port}"
            found.append({"addr": ip, "version": version, "OS-EXT-IPS:type": "fixed", **mac})
        if 4 in versions and dice.random() < 0.3:
            found.append({"addr": f"8.8.8.{port}", "version": 4, "OS-EXT-IPS:type": "floating", **mac})
    server = {
        "id": "s1",
        "status": "ACTIVE",
        "addresses": addresses,
        "accessIPv4": "7.7.7.7" if dice.random() < 0.1 else "",
        "accessIPv6": "2001:db8::7" if dice.random() < 0.1 else "",
    }
    return settings, networks, server, dice.random() < 0.5


@pytest.fixture(scope="module")
def loader() -> OpenStackConfig:
    return OpenStackConfig(config_files=[], secure_files=[], vendor_files=[], load_envvars=False)


@pytest.mark.skipif(metadata.version("openstacksdk").startswith("3."), reason="its inside is another one")
@pytest.mark.parametrize("seed", range(5))
def test_same_choice(loader: OpenStackConfig, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """O-12, L-13: public, private and interface address of 50 random servers."""
    # Of several it would try to connect to each for seconds, and take the first if none answers.
    monkeypatch.setattr(meta, "find_best_address", lambda addresses, **_: addresses[0] if addresses else None)
    dice = random.Random(seed)
    for _ in range(50):
        settings, networks, data, ipv6 = random_case(dice)
        region = loader.get_one(validate=False, **settings)
        server: Any = SdkServer.existing(**data)
        sdk: Any = meta.add_server_interfaces(SdkCloud(region, networks, ipv6=ipv6), server)  # type: ignore[arg-type]
        cloud = CloudNetworks.of(settings_of(region), host_has_ipv6=ipv6)
        found = classify(Server.of(data), [Network.of(entry) for entry in networks], cloud)
        case = f"{settings} {networks} {data} {ipv6}"
        assert (found.public_v4 or "", found.public_v6 or "") == (sdk["public_v4"], sdk["public_v6"]), case
        if sdk["private_v4"] or found.public_v4:
            assert (found.private_v4 or "") == sdk["private_v4"], case
        if sdk["interface_ip"]:
            assert found.interface == sdk["interface_ip"], case
