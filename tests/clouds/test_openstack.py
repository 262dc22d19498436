# SPDX-License-Identifier: Apache-2.0
"""What only OpenStack has: floating IPs, ports, volumes to boot from, ERROR servers, clouds without some services."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.clouds.site import Site
from tests.support.sshd import SshServer

pytestmark = pytest.mark.parametrize("site", ["openstack"], indirect=True)


def server(site: Site) -> Any:
    """The only one."""
    with site.cloud.simulator.cloud() as cloud:
        (found,) = [one for one in cloud.compute.servers if not one.gone]
    return found


def test_record_and_metadata(site: Site) -> None:
    """D-1, O-8, O-11: what the record says of the server, and the server of the node."""
    site.label["instance-properties"] = {"a": 1, "nodepool_node_id": "forged"}
    site.label["dynamic-instance-properties"] = {"tenant": "{request.tenant_name}"}
    with site.served() as ((name, node),):
        assert (node["cloud"], node["region"], node["az"], node["username"]) == ("simulator", None, "nova", "debian")
        assert node["interface_ip"] == node["public_ipv4"] == node["private_ipv4"]
        assert node["resources"] == {"cores": 1, "instances": 1, "ram": 1024}
        assert server(site).metadata == {
            "a": "1",
            "tenant": "tenant",
            "groups": "cloud-a,debian,small",
            "nodepool_installation_id": site.znodes.installation_id(),
            "nodepool_node_id": name,
            "nodepool_pool_name": "main",
            "nodepool_provider_name": "cloud-a",
        }
    assert site.cloud.state()["calls"].get("compute.show_server", 0) == 0


def test_floating_ip(site: Site) -> None:
    """O-5: made, and deleted with the server."""
    site.pool["networks"] = ["private"]
    with site.served() as ((_, node),):
        assert node["interface_ip"] == node["public_ipv4"] != node["private_ipv4"]
        assert site.cloud.state()["contents"]["floating_ips"] == 1


def test_no_block_storage_no_floating_ips(site: Site) -> None:
    """A cloud without Cinder and without floating IPs works."""
    site.cloud.change(block_storage=False, floating_ips=False)
    site.pool.update({"networks": ["private"], "max-volumes": 10})
    with site.served() as ((_, node),):
        assert node["interface_ip"] == node["private_ipv4"]
        site.clock.pass_seconds(120.0)


def test_boot_from_volume(site: Site) -> None:
    """O-6, D-2: the volume says whose it is; one that stays when its server goes is swept."""
    site.label.update({"boot-from-volume": True, "volume-size": 7})
    with site.served(end_hurry=1.0) as ((_, node),):
        assert (node["resources"]["volumes"], node["resources"]["volume-gb"]) == (1, 7)

        def marked() -> bool:
            with site.cloud.simulator.cloud() as cloud:
                (volume,) = list(cloud.volumes.volumes)
                return bool(volume["metadata"].get("nodepool_provider_name") == "cloud-a")

        site.wait("the volume says whose it is", marked)
        site.cloud.change(volume_leak_rate=1.0)


def test_leaked_port_and_floating_ip(site: Site) -> None:
    """D-5, D-6, D-7."""
    site.section |= {"port-cleanup-interval": 1, "clean-floating-ips": True}
    site.launch()
    with site.cloud.simulator.cloud() as cloud:
        cloud.add_port(device_owner="compute:nova")
        cloud.add_floating_ip()
    site.wait_empty(hurry=1.0)


def test_deletions_that_go_wrong(site: Site) -> None:
    """A server that goes to ERROR when it is deleted is deleted again."""
    site.cloud.change(deletes=[{"kind": "error", "count": 2}])
    site.run(3, end_hurry=0.5)
    assert site.cloud.calls("delete") >= 5


@pytest.mark.parametrize(
    ("kind", "text"),
    [("no-valid-host", "the cloud has no host with room"), ("no-address", "has no address; check the networks")],
)
def test_servers_of_no_use(site: Site, caplog: pytest.LogCaptureFixture, kind: str, text: str) -> None:
    """O-4, L-4: an ERROR server, and one that never gets an address, is deleted; the last attempt fails the request,
    and the log has the cause.
    """
    site.section["launch-retries"] = 2
    site.cloud.fail_boots(kind)
    site.launch()
    site.failed(site.submit(), hurry=0.5)
    site.wait_empty(hurry=0.5)
    assert site.cloud.made == 2
    assert text in caplog.text


def test_metastatic_on_top(site: Site, sshd: SshServer) -> None:
    """T-1 to T-8: ten nodes on the two servers that the pool may have; the eleventh waits for a slot."""
    site.pool.update({"max-servers": 2, "host-key-checking": True})
    label = {"name": "tiny", "backing-label": "small", "max-parallel-jobs": 5, "grace-time": 0}
    pool = {"name": "main", "host-key-checking": True, "labels": [label]}
    site.others = [{"name": "shared", "driver": "metastatic", "pools": [pool]}]
    site.launch()
    requests = [site.submit(label="tiny") for _ in range(10)]
    nodes = list(site.fulfilled(*requests).values())
    assert site.cloud.made == 2
    assert sorted(node["slot"] for node in nodes) == sorted([*range(5)] * 2)
    assert len({(node["driver_data"]["backing_node"], node["slot"]) for node in nodes}) == 10
    for node in nodes:
        assert sorted(node["host_keys"]) == sorted(sshd.host_keys)
        assert (node["username"], node["connection_port"], node["az"]) == ("debian", sshd.port, "nova")
    last = site.submit(label="tiny")
    paused = {"cloud-a": True}
    site.wait("a third server is wanted", lambda: paused.items() <= site.paused().items())
    site.give_back(requests.pop())
    site.fulfilled(last)
    site.give_back(*requests, last)
    site.wait_empty()
    assert site.cloud.made == 2
    site.wait("no request is left", lambda: not site.znodes.children("/nodepool/requests"))


def test_uploaded_image(site: Site, tmp_path: Path) -> None:
    """U-4, U-5, L-1: a node of an image that was uploaded, as the record of the upload says."""
    site.section["diskimages"] = [{"name": "built"}]
    site.diskimages = [{"name": "built"}]
    site.label.clear()
    site.label.update({"name": "small", "diskimage": "built", "min-ram": 512})
    launcher = site.launch()
    content = b"QFI\xfb" + bytes(100_000)
    (tmp_path / "image.qcow2").write_bytes(content)
    sums = hashlib.md5(content, usedforsecurity=False).hexdigest(), hashlib.sha256(content).hexdigest()
    keys = {"nodepool_provider_name": "cloud-a", "nodepool_build_id": "b1", "nodepool_upload_id": "0000000001"}
    adapter = launcher.nodepool.providers.running["cloud-a"].adapter  # type: ignore[attr-defined]
    # Put off once: the content is sent again from its beginning.
    site.cloud.change(errors=[{"operation": "image.upload_image", "kind": "429", "retry_after": 1, "count": 1}])
    image = adapter.config.diskimages["built"]
    external_id = adapter.uploadImage(image, "built-1", str(tmp_path / "image.qcow2"), "qcow2", dict(keys), *sums)
    site.znodes.add_build("built", "b1")
    site.znodes.add_upload("built", "b1", "cloud-a", external_id=external_id)
    request = site.submit()
    site.fulfilled(request)
    assert server(site).image_id == external_id
    site.clock.pass_seconds(120.0)
    site.give_back(request)
    site.wait_empty()
    adapter.deleteImage(external_id)
    with site.cloud.simulator.cloud() as cloud:
        assert external_id not in cloud.images.images
