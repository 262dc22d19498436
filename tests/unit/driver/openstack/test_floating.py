# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.cloud` in a launch; deletions are in test_delete."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudQuota
from nodepool.driver.openstack import cloud as cloud_module
from nodepool.driver.openstack import cloud as openstack_cloud
from nodepool.driver.openstack.views import FloatingIp, Server
from nodepool.exceptions import LaunchNetworkException, QuotaException
from tests.unit.driver.openstack.support import METADATA, StubCloud, machine, server, view

MakeCloud = Callable[..., StubCloud]


class TestFloatingIp:
    """O-5"""

    @pytest.fixture
    def cloud(self, make_cloud: MakeCloud) -> StubCloud:
        return self.with_external_network(make_cloud())

    @staticmethod
    def with_external_network(cloud: StubCloud) -> StubCloud:
        networks = [{"id": "n1", "name": "internal"}, {"id": "x1", "name": "ext", "router:external": True}]
        cloud.stub.answers["GET", "/networks"] = {"networks": networks}
        port = {"id": "p1", "network_id": "n1", "fixed_ips": [{"ip_address": "10.0.0.5"}], "device_id": "s1"}
        cloud.stub.answers["GET", "/ports"] = {"ports": [port]}
        made = {"id": "fip1", "floating_ip_address": "8.8.8.8", "port_id": "p1"}
        cloud.stub.answers["POST", "/floatingips"] = {"floatingip": made}
        return cloud

    def test_made_and_attached(self, cloud: StubCloud) -> None:
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE"))
        assert launch.advance() is None
        instance = launch.advance()
        assert instance is not None
        assert (instance.interface_ip, instance.public_ipv4, instance.private_ipv4) == (
            *("8.8.8.8", "8.8.8.8"),
            "10.0.0.5",
        )
        (sent,) = [b["floatingip"] for b in cloud.stub.bodies if b and "floatingip" in b]
        assert (sent["floating_network_id"], sent["port_id"], sent["fixed_ip_address"]) == ("x1", "p1", "10.0.0.5")
        assert METADATA["nodepool_node_id"] in sent["description"]

    def test_deleted_by_others(self, cloud: StubCloud, monkeypatch: pytest.MonkeyPatch) -> None:
        """X-8, memory: another launcher deletes the servers; of them only some are remembered."""
        monkeypatch.setattr(openstack_cloud, "MAX_MADE", 2)
        cloud.facts.networks.get()
        for number in range(4):
            cloud.floating.attach(Server.of(server(f"s{number}")), "note")
        assert list(cloud.floating._made) == ["s2", "s3"]

    def test_not_when_switched_off(self, make_cloud: MakeCloud) -> None:
        cloud = self.with_external_network(make_cloud(pool={"auto-floating-ip": False}))
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE"))
        instance = launch.advance()
        assert instance is not None
        assert instance.interface_ip == "10.0.0.5"

    def test_not_when_reachable(self, cloud: StubCloud) -> None:
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE", accessIPv4="9.9.9.9"))
        instance = launch.advance()
        assert instance is not None
        assert instance.public_ipv4 == "9.9.9.9"
        assert cloud.stub.count("POST", "/floatingips") == 0

    def test_networks_are_asked_for_again(self, cloud: StubCloud) -> None:
        """O-2, O-12: what is known of networks counts until the next answer, also after a refusal."""
        launch = machine(cloud)
        launch.advance()
        cloud.facts.clear()
        cloud.show(server(status="ACTIVE"))
        instance = launch.advance() or launch.advance()
        assert instance is not None
        assert instance.interface_ip == "8.8.8.8"

    def test_no_route(self, cloud: StubCloud) -> None:
        """A network without a router to the outside needs none; that is asked once."""
        del cloud.stub.answers["POST", "/floatingips"]
        for _ in range(2):
            launch = machine(cloud)
            launch.advance()
            cloud.show(server(status="ACTIVE"))
            instance = launch.advance() or launch.advance()
            assert instance is not None
            assert instance.interface_ip == "10.0.0.5"
            cloud.show()
        assert cloud.stub.count("POST", "/floatingips") == 1

    def test_port_that_went(self, cloud: StubCloud) -> None:
        """neutron_lib.exceptions.PortNotFound is a 404, too: the next server on the network gets its floating IP."""
        text = "404 Port p1 could not be found."
        cloud.stub.answers["POST", "/floatingips"] = CloudNotFound(text, 404, text)
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE"))
        launch.advance()
        with pytest.raises(CloudNotFound):
            launch.advance()
        cloud.show()
        self.with_external_network(cloud)
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE"))
        instance = launch.advance() or launch.advance()
        assert instance is not None
        assert instance.interface_ip == "8.8.8.8"

    def test_quota(self, cloud: StubCloud) -> None:
        cloud.stub.answers["POST", "/floatingips"] = CloudQuota("Quota exceeded for floatingip", 409)
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE"))
        launch.advance()
        with pytest.raises(QuotaException):
            launch.advance()
        assert launch.external_id == "s1"


@pytest.mark.parametrize("only_v4", [True, False])
def test_floating_ip_of_a_server_with_ipv6(
    make_cloud: MakeCloud, monkeypatch: pytest.MonkeyPatch, only_v4: bool
) -> None:
    """O-5, O-12: it is made, but IPv6 is the way in unless ``force_ipv4`` is set."""
    monkeypatch.setattr(cloud_module, "host_has_ipv6", lambda: True)
    cloud = TestFloatingIp.with_external_network(make_cloud(settings={"force_ipv4": only_v4}))
    addresses = {
        "internal": [
            {"addr": address, "version": 6 if ":" in address else 4, "OS-EXT-IPS:type": "fixed"}
            for address in ("10.0.0.5", "fd00::5")
        ]
    }
    launch = machine(cloud)
    launch.advance()
    cloud.show(server(status="ACTIVE", addresses=addresses))
    assert launch.advance() is None
    instance = launch.advance()
    assert instance is not None
    assert (instance.public_ipv4, instance.private_ipv4) == ("8.8.8.8", "10.0.0.5")
    assert (instance.interface_ip, instance.public_ipv6) == (("8.8.8.8", None) if only_v4 else ("fd00::5", "fd00::5"))


class TestSeveralPorts:
    """O-13: the floating IP goes to the port on the marked network; without a mark nothing is guessed."""

    @pytest.fixture
    def attached(self, make_cloud: MakeCloud) -> Callable[..., tuple[FloatingIp | None, StubCloud]]:
        """Makes a floating IP for a server with two ports: what came of it."""

        def attach(
            mark: str | None = None, gateways: tuple[str, ...] = (), ports: tuple[str, ...] = ("n1", "n2")
        ) -> tuple[FloatingIp | None, StubCloud]:
            settings = {"networks": [{"name": mark, "nat_destination": True}]} if mark else {}
            cloud = TestFloatingIp.with_external_network(make_cloud(settings=settings))
            cloud.stub.answers["GET", "/networks"]["networks"].append({"id": "n2", "name": "storage"})
            cloud.stub.answers["GET", "/ports"] = {
                "ports": [
                    {"id": f"p{number}", "network_id": network, "fixed_ips": [{"ip_address": f"10.0.{number}.5"}]}
                    for number, network in enumerate(ports)
                ]
            }
            cloud.stub.answers["GET", "/subnets"] = {
                "subnets": [
                    {"id": network, "network_id": network, "gateway_ip": "10.0.0.1" if network in gateways else None}
                    for network in ("n1", "n2", "x1")
                ]
            }
            cloud.facts.networks.get()
            return cloud.floating.attach(view(), "note"), cloud

        return attach

    @staticmethod
    def sent(cloud: StubCloud) -> list[tuple[str, str]]:
        return [
            (body["floatingip"]["port_id"], body["floatingip"]["fixed_ip_address"])
            for body in cloud.stub.bodies
            if body and "floatingip" in body
        ]

    @pytest.mark.parametrize(("mark", "port"), [("internal", "p0"), ("n1", "p0"), ("storage", "p1"), ("n2", "p1")])
    def test_marked(self, attached: Callable[..., tuple[FloatingIp, StubCloud]], mark: str, port: str) -> None:
        """By name or id, whatever has a gateway."""
        made, cloud = attached(mark, gateways=("n1", "n2"))
        assert self.sent(cloud) == [(port, f"10.0.{port[1]}.5")]
        assert (made.address, made.fixed_address) == ("8.8.8.8", f"10.0.{port[1]}.5")
        assert cloud.stub.count("GET", "/subnets") == 0

    @pytest.mark.parametrize(("gateway", "port"), [("n1", "p0"), ("n2", "p1")])
    def test_single_candidate(
        self, attached: Callable[..., tuple[FloatingIp, StubCloud]], gateway: str, port: str
    ) -> None:
        """Only one of them is on a network with a gateway."""
        _, cloud = attached(gateways=(gateway, "x1"))
        assert self.sent(cloud) == [(port, f"10.0.{port[1]}.5")]

    @pytest.mark.parametrize(
        ("mark", "gateways", "text"),
        [
            (None, (), "not exactly one of them is on a network with a gateway"),
            (None, ("n1", "n2"), "not exactly one of them is on a network with a gateway"),
            ("elsewhere", ("n1",), "none of them is on network elsewhere"),
        ],
    )
    def test_no_guess(
        self,
        attached: Callable[..., tuple[FloatingIp, StubCloud]],
        mark: str | None,
        gateways: tuple[str, ...],
        text: str,
    ) -> None:
        """The launch fails; the text says what to do about it."""
        with pytest.raises(LaunchNetworkException, match=f"{text}; mark the network .* nat_destination: true"):
            attached(mark, gateways)

    def test_one_network(self, attached: Callable[..., tuple[FloatingIp, StubCloud]]) -> None:
        """Both ports are as good, and nothing is asked."""
        _, cloud = attached(ports=("n2", "n2"))
        assert self.sent(cloud) == [("p0", "10.0.0.5")]
        assert cloud.stub.count("GET", "/subnets") == 0
