# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.adapter` (rules D)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.openstack.adapter import Leaks
from nodepool.driver.statemachine.leaks import LOOK_AGAIN_SECONDS
from tests.unit.driver.openstack.support import METADATA, StubCloud, label_section, server

MakeCloud = Callable[..., StubCloud]


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "nodepool.metrics.reports.report_leaks", lambda provider, kind, count=1: found.append((provider, kind))
    )
    return found


def port(port_id: str, **more: Any) -> dict[str, Any]:
    return {"id": port_id, "status": "DOWN", "device_owner": "compute:nova", "device_id": "gone", **more}


class TestPorts:
    """D-6"""

    @pytest.fixture
    def cloud(self, make_cloud: MakeCloud) -> StubCloud:
        cloud = make_cloud(**{"port-cleanup-interval": 600})
        cloud.stub.answers["GET", "/ports"] = {
            "ports": [
                port("leaked"),
                port("unowned", device_owner="", device_id=""),
                port("router", device_owner="network:router_interface"),
                port("up", status="ACTIVE"),
                port("booting", device_id="s1"),
                port("stubborn"),
            ]
        }
        cloud.stub.answers["GET", "/servers/detail"] = {"servers": [server("s1")]}
        cloud.stub.answers["DELETE", "/ports/leaked"] = {}
        cloud.stub.answers["DELETE", "/ports/unowned"] = {}
        cloud.stub.answers["DELETE", "/ports/stubborn"] = CloudRefused("in use", 409)
        return cloud

    def deleted(self, cloud: StubCloud) -> list[str]:
        return [path for method, path in cloud.stub.calls if method == "DELETE"]

    def test_two_checks_far_enough_apart(
        self, cloud: StubCloud, reported: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
    ) -> None:
        """A port of a server that is being made is DOWN as well, and is left alone. D-5: errors are logged."""
        sweep = Leaks(cloud, cloud.clock)
        list(sweep.resources())
        cloud.clock.now += 599
        list(sweep.resources())
        assert self.deleted(cloud) == []
        cloud.clock.now += 2
        list(sweep.resources())
        assert self.deleted(cloud) == ["/ports/leaked", "/ports/stubborn", "/ports/unowned"]
        assert reported == [("cloud-a", "ports")] * 2
        assert "port stubborn could not be deleted" in caplog.text

    def test_another_look_soon_would_tell(self, make_cloud: MakeCloud, cloud: StubCloud) -> None:
        """No wait for the regular sweep, unless the interval is longer anyway."""
        quick = make_cloud(**{"port-cleanup-interval": 5})
        quick.stub.answers["GET", "/ports"] = {"ports": [port("leaked")]}
        quick.stub.answers["DELETE", "/ports/leaked"] = {}
        sweep = Leaks(quick, quick.clock)
        assert not sweep.suspected()
        list(sweep.resources())
        assert sweep.suspected()
        rare = Leaks(cloud, cloud.clock)
        list(rare.resources())
        assert not rare.suspected()

    def test_seen_once(self, cloud: StubCloud) -> None:
        sweep = Leaks(cloud, cloud.clock)
        list(sweep.resources())
        cloud.stub.answers["GET", "/ports"] = {"ports": [port("other")]}
        cloud.clock.now += 601
        list(sweep.resources())
        assert self.deleted(cloud) == []

    def test_off(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(**{"port-cleanup-interval": 0})
        list(Leaks(cloud, cloud.clock).resources())
        assert cloud.stub.count("GET", "/ports") == 0

    def test_no_network_service(self, cloud: StubCloud) -> None:
        cloud.stub.services = {"compute", "image"}
        assert len(list(Leaks(cloud, cloud.clock).resources())) == 1

    def test_trouble_does_not_hide_the_servers(self, cloud: StubCloud, caplog: pytest.LogCaptureFixture) -> None:
        cloud.stub.answers["GET", "/ports"] = CloudAway("500")
        assert len(list(Leaks(cloud, cloud.clock).resources())) == 1
        assert "resources of kind port cannot be listed" in caplog.text


class TestFloatingIps:
    """D-7"""

    FREE = (
        {"id": "free", "floating_ip_address": "8.8.8.8"},
        {"id": "used", "port_id": "p"},
        {"id": "forwards", "port_id": None, "port_forwardings": [{"internal_port": 22}]},
    )

    def test_only_when_wanted(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud()
        cloud.stub.answers["GET", "/floatingips"] = {"floatingips": list(self.FREE)}
        sweep = Leaks(cloud)
        for _ in range(3):
            list(sweep.resources())
        assert cloud.stub.count("GET", "/floatingips") == 0

    def test_free_in_two_checks(self, make_cloud: MakeCloud, reported: list[tuple[str, str]]) -> None:
        cloud = make_cloud(**{"clean-floating-ips": True})
        cloud.stub.answers["GET", "/floatingips"] = {"floatingips": list(self.FREE)}
        cloud.stub.answers["DELETE", "/floatingips/free"] = {}
        sweep = Leaks(cloud)
        list(sweep.resources())
        assert reported == []
        assert sweep.suspected()
        list(sweep.resources())
        assert reported == [("cloud-a", "floatingips")]
        assert cloud.stub.count("DELETE", "/floatingips/free") == 1


class TestResources:
    """D-2, D-4: everything with its metadata; the framework decides."""

    def test_servers(self, cloud: StubCloud) -> None:
        cloud.stub.answers["GET", "/servers/detail"] = {"servers": [server("s1"), server("s2", metadata={})]}
        sweep = Leaks(cloud)
        first, second = sweep.resources()
        assert (first.type, first.plural_metric_name, first.metadata) == ("instance", "instances", METADATA)
        assert second.metadata == {}
        cloud.stub.answers["DELETE", "/servers/s1"] = {}
        sweep.delete(first)
        assert cloud.stub.count("DELETE", "/servers/s1") == 1

    def test_volumes(self, make_cloud: MakeCloud) -> None:
        """Volumes of servers that are gone."""
        cloud = make_cloud(label_section(**{"boot-from-volume": True}))
        ours = {"id": "v1", "metadata": METADATA, "attachments": []}
        used = {"id": "v2", "metadata": METADATA, "attachments": [{"server_id": "s"}]}
        deleting = {"id": "v4", "metadata": METADATA, "attachments": [], "status": "deleting"}
        cloud.stub.answers["GET", "/volumes/detail"] = {"volumes": [ours, used, {"id": "v3"}, deleting]}
        cloud.stub.answers["DELETE", "/volumes/v1"] = {}
        sweep = Leaks(cloud)
        (found,) = sweep.resources()
        assert (found.type, found.plural_metric_name, found.id) == ("volume", "volumes", "v1")
        sweep.delete(found)
        assert cloud.stub.count("DELETE", "/volumes/v1") == 1

    def test_unfinished_images(self, cloud: StubCloud) -> None:
        """D-3, for uploads that a builder never ended: nobody else would delete them."""
        keys = {"nodepool_provider_name": "cloud-a", "nodepool_build_id": "1", "nodepool_upload_id": "2"}
        images = [{"id": "i1", **keys}, {"id": "i2"}]
        cloud.stub.answers["GET", "/images"] = lambda body, query: {
            "images": images if query == {"status": "saving", "visibility": "private"} else []
        }
        cloud.stub.answers["DELETE", "/images/i1"] = {}
        sweep = Leaks(cloud)
        (found,) = sweep.resources()
        assert (found.type, found.metadata["nodepool_upload_id"], found.usable) == ("image", "2", False)
        sweep.delete(found)
        assert cloud.stub.count("DELETE", "/images/i1") == 1


def test_one_list_of_servers_for_both_lists_of_a_sweep(make_cloud: MakeCloud) -> None:
    """D-2: the next sweep has another one, so that what is seen twice is seen in two."""
    cloud = make_cloud()
    cloud.stub.answers["GET", "/servers/detail"] = {"servers": [server("s1")]}
    leaks = Leaks(cloud, cloud.clock)
    for sweep in (1, 2):
        assert [instance.external_id for instance in cloud.instances()] == ["s1"]
        cloud.clock.now += 1
        assert [resource.id for resource in leaks.resources()] == ["s1"]
        assert cloud.stub.calls.count(("GET", "/servers/detail")) == sweep
        cloud.clock.now += LOOK_AGAIN_SECONDS
