# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.floating` in a launch; deletions are in test_delete."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.driver.openstack import floating
from nodepool.driver.openstack.errors import CloudQuota
from nodepool.driver.openstack.views import Server
from nodepool.exceptions import QuotaException
from tests.unit.driver.openstack.support import METADATA, StubCloud, machine, server

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
        monkeypatch.setattr(floating, "MAX_MADE", 2)
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

    def test_quota(self, cloud: StubCloud) -> None:
        cloud.stub.answers["POST", "/floatingips"] = CloudQuota("Quota exceeded for floatingip", 409)
        launch = machine(cloud)
        launch.advance()
        cloud.show(server(status="ACTIVE"))
        launch.advance()
        with pytest.raises(QuotaException):
            launch.advance()
        assert launch.external_id == "s1"
