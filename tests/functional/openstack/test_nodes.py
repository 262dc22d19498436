# SPDX-License-Identifier: Apache-2.0
"""The Zuul client gets nodes from a real control plane, uses them and gives them back (L, K, D, O-8)."""

from __future__ import annotations

import pytest

from tests.functional.openstack.cloud import RealCloud
from tests.functional.openstack.place import SERVED_SECONDS, Place
from tests.functional.openstack.provider import OpenStackProvider

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
