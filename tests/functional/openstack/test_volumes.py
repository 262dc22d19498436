# SPDX-License-Identifier: Apache-2.0
"""With block storage and without it (O-6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.functional.openstack.cloud import RealCloud
from tests.functional.openstack.place import OpenStackProvider, Place


@pytest.fixture
def no_block_storage(clouds: Callable[[str], RealCloud], cloud: RealCloud) -> Iterator[None]:
    """Takes block storage out of the catalog: to its users the cloud is one that never had any."""
    # Other tests use this login, too: it is made now, with the catalog as it is.
    cloud.contents()
    admin = clouds("rig-admin").connection
    services = [service for service in admin.identity.services() if service.type.startswith(("volume", "block"))]
    for service in services:
        admin.identity.update_service(service, is_enabled=False)
    fresh = RealCloud(cloud.name)
    assert not fresh.has_volumes
    fresh.close()
    yield
    for service in services:
        admin.identity.update_service(service, is_enabled=True)


def test_boot_from_volume(place: Place, provider: OpenStackProvider) -> None:
    """O-6: the server's disk is a volume of the size asked for, which says whose it is and goes with the server."""
    if not place.cloud.has_volumes:
        pytest.skip(f"cloud {place.cloud.name} has no block storage")
    provider.label.update({"boot-from-volume": True, "volume-size": 3})
    place.launch(provider)
    request = place.fulfilled(place.zuul.submit(["small"]))
    (node_id,) = request.nodes
    (attached,) = place.cloud.server_of(node_id).attached_volumes
    volume = place.cloud.connection.block_storage.get_volume(attached["id"])
    assert (volume.size, volume.status) == (3, "in-use")
    assert volume.metadata["nodepool_node_id"] == node_id
    resources = (place.znodes.node(node_id) or {})["resources"]
    assert (resources["volumes"], resources["volume-gb"]) == (1, 3)
    place.use(request)
    place.wait_empty()


@pytest.mark.usefixtures("no_block_storage")
def test_no_block_storage(place: Place, provider: OpenStackProvider) -> None:
    """A cloud without Cinder serves, whatever the configuration says of volumes."""
    provider.pool["max-volumes"] = 10
    launcher = place.launch(provider)
    place.use(place.fulfilled(place.zuul.submit(["small"])))
    place.wait_empty()
    assert "ERROR" not in launcher.log_text()


@pytest.mark.usefixtures("no_block_storage")
def test_no_block_storage_no_floating_ips(place: Place, provider: OpenStackProvider) -> None:
    """The same where a label's network has no way to a floating IP, and nobody asks for one."""
    provider.pool["networks"] = ["dual"]
    launcher = place.launch(provider)
    request = place.fulfilled(place.zuul.submit(["small"]))
    assert place.cloud.contents()["floating IPs"] == place.before["floating IPs"]
    place.use(request)
    place.wait_empty()
    assert "ERROR" not in launcher.log_text()
