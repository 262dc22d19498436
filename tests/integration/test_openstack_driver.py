# SPDX-License-Identifier: Apache-2.0
"""The OpenStack driver in a running launcher: simulated cloud over HTTP, real ZooKeeper, real sshd (O, D, L, K)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.openstack_place import Place
from tests.support.sshd import SshServer
from tests.support.wait import wait_for


@pytest.mark.parametrize("count", [1, 5, 20])
def test_nodes(place: Place, sshd: SshServer, count: int) -> None:
    """L, K, O-8: launched, scanned, used, deleted; few calls a node."""
    place.launch()
    requests = [place.znodes.submit(["small"]) for _ in range(count)]
    nodes = [node for request in requests for node in place.fulfilled(request)]
    assert len({node["external_id"] for node in nodes}) == len(nodes) == count
    for node in nodes:
        assert sorted(node["host_keys"]) == sorted(sshd.host_keys)
        assert (node["username"], node["connection_port"], node["az"]) == ("debian", sshd.port, "nova")
        assert (node["cloud"], node["region"], node["provider"], node["pool"]) == (
            *("simulator", None),
            *("cloud-a", "main"),
        )
        assert node["interface_ip"] == node["public_ipv4"] == node["private_ipv4"]
        assert node["resources"] == {"cores": 1, "instances": 1, "ram": 1024}
    for request in requests:
        place.give_back(request)
    place.wait_empty()
    assert place.calls("compute.create_server") == place.calls("compute.delete_server") == count
    assert place.calls("compute.show_server") == 0


def test_server_has_our_metadata(place: Place) -> None:
    """D-1, O-11."""
    place.label["instance-properties"] = {"a": 1, "nodepool_node_id": "forged"}
    place.label["dynamic-instance-properties"] = {"tenant": "{request.tenant_name}"}
    place.launch()
    request = place.znodes.submit(["small"])
    place.fulfilled(request)
    with place.simulator.cloud() as cloud:
        (server,) = [server for server in cloud.compute.servers if not server.gone]
        metadata = dict(server.metadata)
    (node_id,) = place.znodes.nodes()
    assert metadata == {
        "a": "1",
        "tenant": "tenant",
        "groups": "cloud-a,debian,small",
        "nodepool_node_id": node_id,
        "nodepool_pool_name": "main",
        "nodepool_provider_name": "cloud-a",
    }
    place.give_back(request)
    place.wait_empty()


def test_floating_ip(place: Place) -> None:
    """O-5: made, scanned through, deleted before the server."""
    place.pool["networks"] = ["private"]
    place.launch()
    request = place.znodes.submit(["small"])
    (node,) = place.fulfilled(request)
    assert node["interface_ip"] == node["public_ipv4"] != node["private_ipv4"]
    assert node["host_keys"]
    assert place.contents()["floating_ips"] == 1
    place.give_back(request)
    place.wait_empty()


def test_no_block_storage_no_floating_ips(place: Place) -> None:
    """A cloud without Cinder and without floating IPs works; nothing complains."""
    place.simulator.change(block_storage=False, floating_ips=False)
    place.pool["networks"] = ["private"]
    place.pool["max-volumes"] = 10
    place.launch()
    request = place.znodes.submit(["small"])
    (node,) = place.fulfilled(request)
    assert node["interface_ip"] == node["private_ipv4"]
    place.provider.cleanupLeakedResources()
    place.give_back(request)
    place.wait_empty()


def test_boot_from_volume(place: Place) -> None:
    """O-6: the volume goes with the server; a left over one is found by its metadata (D-2)."""
    place.label["boot-from-volume"] = True
    place.label["volume-size"] = 7
    place.launch()
    request = place.znodes.submit(["small"])
    (node,) = place.fulfilled(request)
    assert (node["resources"]["volumes"], node["resources"]["volume-gb"]) == (1, 7)

    def marked() -> bool:
        with place.simulator.cloud() as cloud:
            (volume,) = list(cloud.volumes.volumes)
            return bool(volume["metadata"].get("nodepool_provider_name") == "cloud-a")

    wait_for("the volume says whose it is", marked)
    place.simulator.change(volume_leak_rate=1.0)
    place.give_back(request)
    wait_for("the node is gone", lambda: not place.znodes.nodes())
    assert place.contents()["volumes"] == 1
    for _ in range(2):
        place.provider.cleanupLeakedResources()
    place.wait_empty()


def test_uploaded_image(place: Place, tmp_path: Path) -> None:
    """U-4, U-5, L-1: uploaded through the adapter, used by a node as its record says, deleted."""
    place.label.clear()
    place.label.update({"name": "small", "diskimage": "built", "min-ram": 512})
    place.launch()
    file = tmp_path / "image.qcow2"
    content = b"QFI\xfb" + bytes(100_000)
    file.write_bytes(content)
    sums = hashlib.md5(content, usedforsecurity=False).hexdigest(), hashlib.sha256(content).hexdigest()
    keys = {"nodepool_provider_name": "cloud-a", "nodepool_build_id": "b1", "nodepool_upload_id": "0000000001"}
    image = place.adapter.config.diskimages["built"]
    # Put off once: the content is sent again from its beginning.
    place.simulator.change(errors=[{"operation": "image.upload_image", "kind": "429", "retry_after": 1, "count": 1}])
    external_id = place.adapter.uploadImage(image, "built-1", str(file), "qcow2", dict(keys), *sums)
    with place.simulator.cloud() as cloud:
        assert cloud.images.images.get(external_id)["size"] == 100_004
    place.znodes.add_upload("cloud-a", external_id)
    request = place.znodes.submit(["small"])
    place.fulfilled(request)
    with place.simulator.cloud() as cloud:
        (server,) = [server for server in cloud.compute.servers if not server.gone]
        assert server.image_id == external_id
    for _ in range(2):
        place.provider.cleanupLeakedResources()
    place.give_back(request)
    place.wait_empty()
    place.adapter.deleteImage(external_id)
    with place.simulator.cloud() as cloud:
        assert external_id not in cloud.images.images
    place.adapter.deleteImage(external_id)


def test_metastatic_on_top(place: Place, sshd: SshServer) -> None:
    """T-1 to T-8: ten nodes on the two servers that the pool may have; the eleventh waits for a slot."""
    place.pool["max-servers"] = 2
    label = {"name": "tiny", "backing-label": "small", "max-parallel-jobs": 5, "grace-time": 0}
    pool = {"name": "main", "host-key-checking": True, "labels": [label]}
    place.others = [{"name": "shared", "driver": "metastatic", "pools": [pool]}]
    place.launch()
    requests = [place.znodes.submit(["tiny"]) for _ in range(10)]
    nodes = [node for request in requests for node in place.fulfilled(request)]
    assert place.calls("compute.create_server") == 2
    assert sorted(node["slot"] for node in nodes) == sorted([*range(5)] * 2)
    assert len({(node["driver_data"]["backing_node"], node["slot"]) for node in nodes}) == 10
    for node in nodes:
        assert sorted(node["host_keys"]) == sorted(sshd.host_keys)
        assert (node["username"], node["connection_port"], node["az"]) == ("debian", sshd.port, "nova")
    last = place.znodes.submit(["tiny"])
    wait_for("a third server is wanted", lambda: place.paused()["cloud-a"])
    place.give_back(requests.pop())
    place.fulfilled(last)
    for request in [*requests, last]:
        place.give_back(request)
    place.wait_empty()
    assert place.calls("compute.create_server") == 2
    wait_for("no request is left", lambda: not place.znodes.children("/nodepool/requests"))
