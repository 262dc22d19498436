# SPDX-License-Identifier: Apache-2.0
"""What nobody knows of any more is found by the sweeps of a running launcher, and goes (D)."""

from __future__ import annotations

import pytest

from tests.functional.openstack.place import Place
from tests.functional.openstack.provider import OpenStackProvider
from tests.support.wait import wait_for

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
