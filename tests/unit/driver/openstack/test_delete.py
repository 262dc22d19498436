# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.adapter`, step by step (X-4, O-5)."""

from __future__ import annotations

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.openstack.adapter import ServerDeletion
from tests.unit.driver.openstack.support import LOG, StubCloud, server


def machine(cloud: StubCloud, server_id: str | None = "s1") -> ServerDeletion:
    # So that there is no question for floating IPs in tests of something else.
    cloud.facts.networks.get()
    return ServerDeletion(cloud, server_id, LOG, cloud.clock)


def sent(cloud: StubCloud) -> int:
    return cloud.stub.count("DELETE", "/servers/s1")


def show_other_servers(cloud: StubCloud, deletion: ServerDeletion, times: int) -> None:
    """Lists, complete ones and changes, that do not show the server."""
    for _ in range(times):
        for complete in (True, False):
            deletion.advance()
            cloud.show(server("other"), complete=complete)
    deletion.advance()


def test_one_server(cloud: StubCloud) -> None:
    """One call, and the shared list says when it is over."""
    cloud.show(server(status="ACTIVE"))
    deletion = machine(cloud)
    deletion.advance()
    assert (deletion.state, sent(cloud)) == ("waiting", 1)
    cloud.show(server(status="ACTIVE", **{"OS-EXT-STS:task_state": "deleting"}))
    deletion.advance()
    assert deletion.state == "waiting"
    cloud.show(server(status="DELETED"), complete=False)
    deletion.advance()
    assert deletion.state == "complete"
    assert (sent(cloud), cloud.stub.count("GET", "/servers/s1")) == (1, 0)
    assert cloud.inventory._pause() == float("inf"), "nobody waits any more"


@pytest.mark.parametrize("server_id", [None, "", "s9"])
def test_nothing_to_delete(cloud: StubCloud, server_id: str | None) -> None:
    """reference/driver 9, X-4: an id that does not exist, or none at all."""
    deletion = machine(cloud, server_id)
    deletion.advance()
    assert deletion.complete


def test_under_way(cloud: StubCloud) -> None:
    """One that the cloud works on is left in peace for a minute; in ERROR it is sent again soon."""
    deletion = machine(cloud)
    working = {"OS-EXT-STS:task_state": "deleting"}
    for _ in range(50):
        deletion.advance()
        cloud.show(server(status="ACTIVE", **working))
    assert sent(cloud) == 1
    cloud.show(server(status="ERROR"))
    deletion.advance()
    assert sent(cloud) == 2


def test_hidden(cloud: StubCloud) -> None:
    """A server that lists do not show is asked for itself: only its own 404 proves that it is gone."""
    cloud.stub.answers["GET", "/servers/s1"] = {"server": server(status="ACTIVE")}
    cloud.show(server("other"))
    deletion = machine(cloud)
    show_other_servers(cloud, deletion, 6)
    assert not deletion.complete
    assert sent(cloud) >= 2
    del cloud.stub.answers["GET", "/servers/s1"]
    show_other_servers(cloud, deletion, 2)
    assert deletion.complete


def test_errors_are_tried_again(cloud: StubCloud) -> None:
    """The cloud is away, or busy with another operation on the server."""
    cloud.stub.answers["DELETE", "/servers/s1"] = [CloudAway("500"), CloudRefused("busy", 409), CloudAway("500"), {}]
    deletion = machine(cloud)
    pauses = []
    while deletion.state != "waiting":
        deletion.advance()
        pauses.append(deletion.next_advance_seconds)
        cloud.clock.now += pauses[-1] or 0
    assert pauses[:3] == [pytest.approx(wanted) for wanted in (0.5, 1, 2)]
    assert sent(cloud) == 4


def test_refusal_is_an_error(cloud: StubCloud) -> None:
    """What will never work is told to the framework."""
    cloud.stub.answers["DELETE", "/servers/s1"] = CloudRefused("not yours", 403)
    with pytest.raises(CloudRefused):
        machine(cloud).advance()
    assert cloud.inventory._pause() == float("inf")


class TestFloatingIp:
    """O-5: it is deleted before the server."""

    @pytest.fixture
    def cloud(self, cloud: StubCloud) -> StubCloud:
        floating = {"id": "fip1", "floating_ip_address": "8.8.8.8", "port_id": "p1", "fixed_ip_address": "10.0.0.5"}
        other = {"id": "fip2", "floating_ip_address": "8.8.4.4", "port_id": "p2", "fixed_ip_address": "10.0.0.9"}
        cloud.stub.answers["GET", "/floatingips"] = {"floatingips": [floating, other]}
        cloud.stub.answers["GET", "/ports"] = {"ports": [{"id": "p1", "device_id": "s1"}]}
        networks = [{"id": "n1", "name": "internal"}, {"id": "x1", "name": "ext", "router:external": True}]
        cloud.stub.answers["GET", "/networks"] = {"networks": networks}
        cloud.stub.answers["DELETE", "/floatingips/fip1"] = {}
        return cloud

    def order(self, cloud: StubCloud) -> list[str]:
        return [path for method, path in cloud.stub.calls if method == "DELETE"]

    def test_first(self, cloud: StubCloud) -> None:
        cloud.show(server(status="ACTIVE"))
        ServerDeletion(cloud, "s1", LOG, cloud.clock).advance()
        assert self.order(cloud) == ["/floatingips/fip1", "/servers/s1"]

    def test_after_a_restart(self, cloud: StubCloud) -> None:
        """Nothing is known of the server yet."""
        ServerDeletion(cloud, "s1", LOG, cloud.clock).advance()
        assert self.order(cloud) == ["/floatingips/fip1", "/servers/s1"]

    @pytest.mark.parametrize("seen", [False, True])
    def test_made_by_another_launcher(self, cloud: StubCloud, seen: bool) -> None:
        """A list from a moment ago, which has none, says nothing of a server that we do not know or that needs one."""
        answer = cloud.stub.answers["GET", "/floatingips"]
        cloud.facts.networks.get()
        cloud.stub.answers["GET", "/floatingips"] = {"floatingips": []}
        ServerDeletion(cloud, "s9", LOG, cloud.clock).advance()
        cloud.stub.answers["GET", "/floatingips"] = answer
        if seen:
            cloud.show(server(status="ACTIVE"))
        ServerDeletion(cloud, "s1", LOG, cloud.clock).advance()
        assert self.order(cloud) == ["/servers/s9", "/floatingips/fip1", "/servers/s1"]

    def test_same_address_in_another_network(self, cloud: StubCloud) -> None:
        """Addresses of different networks may be equal: the port decides."""
        cloud.stub.answers["GET", "/ports"] = {"ports": [{"id": "p7", "device_id": "s1"}]}
        cloud.show(server(status="ACTIVE"))
        ServerDeletion(cloud, "s1", LOG, cloud.clock).advance()
        assert self.order(cloud) == ["/servers/s1"]

    def test_trouble(self, cloud: StubCloud) -> None:
        """While the cloud is away it is tried again; a refusal does not keep the server."""
        cloud.stub.answers["DELETE", "/floatingips/fip1"] = [CloudAway("500"), CloudRefused("no", 403)]
        deletion = ServerDeletion(cloud, "s1", LOG, cloud.clock)
        deletion.advance()
        assert deletion.next_advance_seconds == pytest.approx(0.5)
        assert sent(cloud) == 0
        cloud.clock.now += 1
        deletion.advance()
        assert sent(cloud) == 1


def test_clouds_without_floating_ips_are_not_asked(cloud: StubCloud) -> None:
    """Where no network is external there is none, and that is asked once in a while, not for each node."""
    for _ in range(5):
        ServerDeletion(cloud, "s1", LOG, cloud.clock).advance()
    assert cloud.stub.count("GET", "/networks") == 1
    assert cloud.stub.count("GET", "/floatingips") == 0
    assert cloud.stub.count("GET", "/ports") == 0
