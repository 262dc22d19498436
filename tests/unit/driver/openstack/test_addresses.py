# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.instance` (L-13, O-9)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.openstack.instance import CloudNetworks, OpenStackInstance, ServerAddresses, classify, usage
from nodepool.driver.openstack.views import FloatingIp, Network
from tests.unit.driver.openstack.support import view

NETWORKS = [
    Network("n1", "internal", False, False),
    Network("n2", "outside", True, True),
    Network("n3", "flat", False, True),
]


def entry(ip: str, kind: str = "fixed") -> dict[str, Any]:
    return {"addr": ip, "version": 6 if ":" in ip else 4, "OS-EXT-IPS:type": kind}


def found(cloud: CloudNetworks | None = None, access: str = "", **networks: Any) -> ServerAddresses:
    server = view(addresses=networks, accessIPv4=access)
    return classify(server, NETWORKS, cloud or CloudNetworks())


def test_private_only() -> None:
    assert found(internal=[entry("10.0.0.5")]) == ServerAddresses(None, None, "10.0.0.5", "10.0.0.5")


def test_floating_ip() -> None:
    result = found(internal=[entry("10.0.0.5"), entry("8.8.8.8", "floating")])
    assert result == ServerAddresses("8.8.8.8", None, "10.0.0.5", "8.8.8.8")


@pytest.mark.parametrize("network", ["outside", "flat", "public"])
def test_routed_network(network: str) -> None:
    """External and provider networks, and one named public, are reachable, whatever their addresses look like."""
    networks: dict[str, Any] = {network: [entry("10.0.0.5")]}
    assert found(**networks)[0] == "10.0.0.5"


def test_global_address() -> None:
    """Last resort: an address that is no private one."""
    assert found(internal=[entry("9.9.9.9")])[:3] == ("9.9.9.9", None, "9.9.9.9")


def test_both() -> None:
    result = found(internal=[entry("10.0.0.5")], flat=[entry("10.9.0.5"), entry("fd00::1")])
    assert result == ServerAddresses("10.9.0.5", "fd00::1", "10.0.0.5", "10.9.0.5")


def test_only_ipv6() -> None:
    assert found(internal=[entry("fd00::1")]) == ServerAddresses(None, "fd00::1", None, "fd00::1")


def test_none() -> None:
    assert found() == ServerAddresses(None, None, None, None)


def test_access_address_of_the_server() -> None:
    assert found(access="7.7.7.7", internal=[entry("10.0.0.5")])[0] == "7.7.7.7"


def test_clouds_yaml_decides() -> None:
    """What the user says of networks wins over what they look like."""
    settings = {
        "networks": [
            {"name": "internal", "routes_externally": True, "default_interface": True},
            {"name": "flat", "routes_externally": False},
            {"nonsense": 1},
        ]
    }
    cloud = CloudNetworks.of(settings)
    assert found(cloud, flat=[entry("10.9.0.5")], internal=[entry("10.0.0.5")]) == ServerAddresses(
        "10.0.0.5", None, "10.9.0.5", "10.0.0.5"
    )
    assert cloud.default == "internal"


def test_private_cloud() -> None:
    """``private: true``: connect inside."""
    cloud = CloudNetworks.of({"private": True})
    assert found(cloud, internal=[entry("10.0.0.5"), entry("8.8.8.8", "floating")])[3] == "10.0.0.5"


@pytest.mark.parametrize(
    ("settings", "floating"),
    [
        ({}, True),
        ({"floating_ip_source": "neutron"}, True),
        ({"floating_ip_source": "None"}, False),
        ({"floating_ip_source": None}, False),
        ({"requires_floating_ip": False}, False),
        ({"networks": 7}, True),
    ],
)
def test_floating_ips_can_be_off(settings: dict[str, Any], floating: bool) -> None:
    assert CloudNetworks.of(settings).floating is floating


def test_instance() -> None:
    """reference/driver 7; O-9: private_ipv4 falls back to the public address."""
    server = view(addresses={"flat": [entry("10.9.0.5")]})
    made = OpenStackInstance(server, usage(2, 4096), NETWORKS, CloudNetworks(), cloud_name="c", region="r")
    assert (made.ready, made.deleted, made.external_id, made.az, made.host_id) == (True, False, "s1", "nova", "h1")
    assert (made.public_ipv4, made.private_ipv4, made.interface_ip) == ("10.9.0.5", "10.9.0.5", "10.9.0.5")
    assert (made.cloud, made.region) == ("c", "r")
    assert made.metadata["nodepool_node_id"] == "0000000042"
    assert made.getQuotaInformation().get_resources() == {"cores": 2, "instances": 1, "ram": 4096}
    assert usage(1, 1, 1, 50).get_resources()["volume-gb"] == 50


def test_floating_ip_that_the_server_does_not_show_yet() -> None:
    server = view(addresses={"internal": [entry("10.0.0.5")]})
    quota = usage(1, 1)
    floating = FloatingIp("fip1", "8.8.8.8", "p1", "10.0.0.5")
    for _ in range(2):
        made = OpenStackInstance(
            server, quota, NETWORKS, CloudNetworks(), cloud_name="c", region=None, floating_ip=floating
        )
        assert (made.public_ipv4, made.private_ipv4, made.interface_ip) == ("8.8.8.8", "10.0.0.5", "8.8.8.8")
        # Now it does.
        server = view(addresses={"internal": [entry("10.0.0.5"), entry("8.8.8.8", "floating")]})


@pytest.mark.parametrize(
    ("settings", "host_has_ipv6", "interface"),
    [
        ({}, True, "fd00::1"),
        ({}, False, "9.9.9.9"),
        ({"force_ipv4": True}, True, "9.9.9.9"),
        ({"private": True}, True, "10.0.0.5"),
        ({"networks": [{"name": "internal", "default_interface": True}]}, True, "fd00::5"),
        ({"networks": [{"name": "internal", "default_interface": True}]}, False, "10.0.0.5"),
        ({"use_external_network": False, "force_ipv4": True}, True, "10.0.0.5"),
    ],
)
def test_dual_stack(settings: dict[str, Any], host_has_ipv6: bool, interface: str) -> None:
    """O-12, L-13: public IPv6 before public IPv4 where the launcher has IPv6, as openstacksdk chooses."""
    cloud = CloudNetworks.of(settings, host_has_ipv6=host_has_ipv6)
    made = found(cloud, flat=[entry("9.9.9.9"), entry("fd00::1")], internal=[entry("10.0.0.5"), entry("fd00::5")])
    assert made.interface == interface
    assert (made.public_v6 is None) == ("force_ipv4" in settings)


@pytest.mark.parametrize(("private", "interface"), [(False, "2001:db8::5"), (True, "172.20.1.5")])
def test_dual_stack_without_floating_ips(private: bool, interface: str) -> None:
    """O-12: ``floating_ip_source: None`` makes no cloud private (a case of a public file)."""
    cloud = CloudNetworks.of({"floating_ip_source": "None", "private": private}, host_has_ipv6=True)
    made = found(cloud, internal=[entry("172.20.1.5"), entry("2001:db8::5")])
    assert (made.interface, made.public_v4, made.private_v4) == (interface, None, "172.20.1.5")


def test_address_that_the_floating_ip_leads_to() -> None:
    """Of several private addresses, as openstacksdk chooses."""
    networks: dict[str, Any] = {
        "internal": [{**entry("10.0.0.5"), "OS-EXT-IPS-MAC:mac_addr": "fa:01"}],
        "private": [
            {**entry(ip, kind), "OS-EXT-IPS-MAC:mac_addr": "fa:02"}
            for ip, kind in (("10.1.0.5", "fixed"), ("8.8.8.8", "floating"))
        ],
    }
    assert found(**networks)[:3] == ("8.8.8.8", None, "10.1.0.5")


def test_address_of_network_unknown_to_us() -> None:
    """A server without any public address is better reached by its own than not at all."""
    assert found(elsewhere=[entry("10.0.0.5")]).interface == "10.0.0.5"
