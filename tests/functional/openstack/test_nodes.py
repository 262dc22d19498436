# SPDX-License-Identifier: Apache-2.0
"""The Zuul client gets nodes from a real control plane, uses them and gives them back (L, K, D, O-8, Q)."""

from __future__ import annotations

import signal

import pytest

from tests.functional.openstack.cloud import RealCloud
from tests.functional.openstack.place import SERVED_SECONDS, OpenStackProvider, Place
from tests.support.wait import wait_for

#: Requests at once.
BURST = 20


@pytest.mark.parametrize("count", [1, 5])
def test_one_request(place: Place, provider: OpenStackProvider, count: int) -> None:
    """L, K, N-8: one request for one node or for several; each is a server of its own, and its keys are known."""
    place.launch(provider)
    request = place.fulfilled(place.zuul.submit(["small"] * count))
    assert len(set(request.nodes)) == count
    servers = place.cloud.servers_of(request.nodes)
    assert len({server.id for server in servers}) == count
    assert {server.status for server in servers} == {"ACTIVE"}
    nodes = place.zuul.accept(request)
    for node in nodes.getNodes():
        place.check_host_keys(node)
    place.zuul.use(nodes)
    place.zuul.give_back(nodes)
    place.wait_empty()


def test_many_requests(place: Place, provider: OpenStackProvider) -> None:
    """L, O-8: 20 requests at once; used and returned, all servers go."""
    place.launch(provider)
    requests = [place.fulfilled(request) for request in [place.zuul.submit(["small"]) for _ in range(BURST)]]
    nodes = {node_id for request in requests for node_id in request.nodes}
    assert len(nodes) == BURST
    assert len({server.id for server in place.cloud.servers_of(nodes)}) == BURST
    used = [node for request in requests for node in place.use(request)]
    assert len({node.interface_ip for node in used}) == BURST
    assert all(node.host_keys for node in used)
    place.wait_empty()


def test_what_a_server_says(place: Place, provider: OpenStackProvider) -> None:
    """D-1, O-11, L-13: Nova has our metadata and the user's; Zuul has what Nova says of the server."""
    provider.label["instance-properties"] = {"project": "nodepool", "nodepool_node_id": "forged"}
    provider.label["dynamic-instance-properties"] = {"tenant": "{request.tenant_name}"}
    place.launch(provider)
    request = place.fulfilled(place.zuul.submit(["small"], tenant="tenant-one"))
    (node_id,) = request.nodes
    server = place.cloud.server_of(node_id)
    stored = place.znodes.node(node_id) or {}
    (node,) = place.use(request)
    assert server.metadata == {
        "groups": "real,ready,small",
        "nodepool_installation_id": place.znodes.installation_id(),
        "nodepool_node_id": node_id,
        "nodepool_pool_name": "main",
        "nodepool_provider_name": "real",
        "project": "nodepool",
        "tenant": "tenant-one",
    }
    addresses = {entry["addr"] for entries in server.addresses.values() for entry in entries}
    assert node.interface_ip in addresses
    assert (node.provider, node.az, node.cloud) == ("real", server.availability_zone, place.cloud.name)
    assert stored["external_id"] == server.id
    assert stored["host_id"] == server.host_id
    assert stored["hostname"] is None
    assert server.name == f"np{node.id}"
    assert stored["resources"] == {"instances": 1, "cores": server.flavor.vcpus, "ram": server.flavor.ram}
    place.wait_empty()


@pytest.mark.parametrize("cloud", ["rig-fip"], indirect=True)
def test_floating_ip(place: Place, provider: OpenStackProvider) -> None:
    """O-5, O-9: made, scanned through, gone after use."""
    provider.pool["networks"] = ["private"]
    place.launch(provider)
    request = place.fulfilled(place.zuul.submit(["small"]))
    made = place.cloud.contents()["floating IPs"] - place.before["floating IPs"]
    assert len(made) == 1
    nodes = place.zuul.accept(request)
    (node,) = nodes.getNodes()
    place.check_host_keys(node)
    assert node.interface_ip == node.public_ipv4 != node.private_ipv4
    place.zuul.use(nodes)
    place.zuul.give_back(nodes)
    place.wait_empty()


def test_impossible_flavor(place: Place, provider: OpenStackProvider, cloud: RealCloud) -> None:
    """O-4, L-4: Nova finds no host: all attempts are made, the request fails, other labels work, nothing is left."""
    cloud.need_flavor("rig-impossible")
    provider.pool["labels"].append({**provider.label, "name": "too-big", "flavor-name": "rig-impossible"})
    provider.section["launch-retries"] = 2
    launcher = place.launch(provider)
    bad, good = place.zuul.submit(["too-big"]), place.zuul.submit(["small"])
    place.use(place.fulfilled(good))
    failed = place.zuul.wait(bad, SERVED_SECONDS)
    assert failed.state == "failed"
    place.zuul.cancel(failed)
    assert "No valid host was found" in launcher.log_text()
    place.wait_empty()


# -- room (Q, L-7, O-3)

#: Servers that the project may have: requests wait for room, whoever has it, and none fails.
ROOM = 2
SMALL = pytest.mark.parametrize("cloud", ["rig-small"], indirect=True)


@SMALL
@pytest.mark.parametrize("told", [True, False])
def test_more_requests_than_room(place: Place, provider: OpenStackProvider, told: bool) -> None:
    """All are served in turn.

    :param told: does the launcher heed what Nova says of the limits? If not, it runs into them, again and again.
    """
    provider.pool["ignore-provider-quota"] = not told
    launcher = place.launch(provider)
    # Nova itself lets too many in when they come at once, and lets them fail afterwards.
    place.serve(provider, 6, lambda: not told or len(place.cloud.servers()) <= ROOM)
    place.wait_empty()
    assert ("Quota exceeded" in launcher.log_text()) is not told


@SMALL
def test_room_is_shared(place: Place, provider: OpenStackProvider) -> None:
    """Q-4: a server that is not ours takes its part; the other part serves all in turn."""
    other = place.cloud.create_server("other")
    launcher = place.launch(provider)
    place.serve(provider, 3, lambda: len(place.cloud.servers()) <= ROOM)
    assert "Quota exceeded" not in launcher.log_text()
    place.cloud.delete_server(other)
    place.wait_empty()


# -- a launcher that ends while it launches: the next one goes on, and nothing is made twice or left behind

#: How long the locks of a killed launcher live on.
KILLED_SESSION_SECONDS = 4.0
#: Requests under way.
COUNT = 4


@pytest.mark.parametrize("moment", ["a node is building", "a server is there", "a node is ready"])
def test_killed_in_mid_launch(place: Place, provider: OpenStackProvider, moment: str) -> None:
    """C-4: SIGKILL at different moments; every request is fulfilled, each node has one server."""
    moments = {
        "a node is building": lambda: place.znodes.nodes("building"),
        "a server is there": place.cloud.servers,
        "a node is ready": lambda: place.znodes.nodes("ready"),
    }
    first = place.launch(provider, session_seconds=KILLED_SESSION_SECONDS)
    requests = [place.zuul.submit(["small"]) for _ in range(COUNT)]
    wait_for(moment, moments[moment], SERVED_SECONDS)
    first.kill()
    assert first.returncode == -signal.SIGKILL
    # The registration of the killed one may still be there: it says nothing about the new one.
    place.launch(provider, wait=False)
    for request in requests:
        place.fulfilled(request)
    for request in requests:
        (node_id,) = (place.znodes.request(request.id) or {})["nodes"]
        assert place.cloud.server_of(node_id).status == "ACTIVE"
    for request in requests:
        place.use(place.fulfilled(request))
    place.wait_empty()


def test_stopped_in_mid_launch(place: Place, provider: OpenStackProvider) -> None:
    """SIGTERM while it launches: it ends soon, and what it began is finished or undone by the next one."""
    first = place.launch(provider)
    requests = [place.zuul.submit(["small"]) for _ in range(COUNT)]
    wait_for("a server is there", place.cloud.servers, SERVED_SECONDS)
    assert first.stop(signal.SIGTERM, 60) == 0
    place.launch(provider, wait=False)
    for request in requests:
        place.use(place.fulfilled(request))
    place.wait_empty()


# -- leaks

#: Two sweeps that are a minute apart, and deletions.
SWEEPS_SECONDS = 300.0
OURS = {"nodepool_provider_name": "real", "nodepool_pool_name": "main", "nodepool_node_id": "9999999999"}


@pytest.mark.parametrize("cloud", ["rig-fip"], indirect=True)
def test_leaks(place: Place, provider: OpenStackProvider) -> None:
    """D-2, D-5, D-6, D-7: server with a floating IP, port, floating IP and volume; what is not ours stays."""
    cloud = place.cloud
    network, connection = "private", cloud.connection
    provider.pool["networks"] = [network]
    provider.section |= {"port-cleanup-interval": 1, "clean-floating-ips": True}
    leaked = cloud.create_server("leaked", network, **OURS)
    foreign = cloud.create_server("foreign", network, **{**OURS, "nodepool_provider_name": "other"})
    private, public = connection.network.find_network(network), connection.network.find_network("public")
    port = connection.network.create_port(network_id=private.id, device_owner="compute:nova")
    bound = connection.network.create_port(network_id=private.id, device_owner="somebody:else")
    (server_port,) = connection.network.ports(device_id=leaked)
    ips = [
        connection.network.create_ip(floating_network_id=public.id),
        connection.network.create_ip(floating_network_id=public.id, port_id=server_port.id),
    ]
    gone = {leaked, port.id, *(ip.id for ip in ips)}
    stay = {foreign, bound.id}
    if cloud.has_volumes:
        provider.pool["max-volumes"] = 100
        volume = connection.block_storage.create_volume(size=1, metadata=OURS)
        other = connection.block_storage.create_volume(size=1, metadata={"owner": "somebody else"})
        gone.add(volume.id)
        stay.add(other.id)
    launcher = place.launch(provider)

    def only_what_stays() -> bool:
        there = {key for ids in cloud.contents().values() for key in ids}
        assert stay <= there, f"deleted, but not leaked: {stay - there}"
        assert not gone & there, f"still there: {gone & there}"
        return True

    wait_for("what was leaked is gone", only_what_stays, SWEEPS_SECONDS)
    assert "ERROR" not in launcher.log_text()
    cloud.delete_server(foreign)
    connection.network.delete_port(bound)
    if cloud.has_volumes:
        connection.block_storage.delete_volume(other)
    place.wait_empty()
