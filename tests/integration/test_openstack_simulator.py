# SPDX-License-Identifier: Apache-2.0
"""openstacksdk uses the simulator as a cloud: what a healthy one does."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from openstack.exceptions import ConflictException, NotFoundException

from simulators.openstack import Knobs, OpenStackSimulator
from tests.support.manual_clock import ManualClock
from tests.support.openstack_cloud import SimulatedCloud, connected
from tests.support.sshd import SshServer


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[SimulatedCloud]:
    with OpenStackSimulator() as simulator, connected(simulator, tmp_path) as connection:
        yield SimulatedCloud(simulator, connection)
        assert simulator.state()["bugs"] == []


def test_lists_what_is_there_to_begin_with(cloud: SimulatedCloud) -> None:
    connection = cloud.connection
    assert [flavor.name for flavor in connection.list_flavors()] == ["small", "medium", "large", "xlarge", "impossible"]
    names = {"provider", "dual", "private", "public", "tiny"}
    assert {network.name for network in connection.list_networks()} == names
    assert [image.name for image in connection.list_images()] == ["cloud-image"]
    assert connection.list_availability_zone_names() == ["nova"]
    assert [pair.name for pair in connection.list_keypairs()] == ["key"]
    assert [group.name for group in connection.list_security_groups()] == ["default"]


def test_a_server_lives_and_leaves_nothing_behind(cloud: SimulatedCloud) -> None:
    before = cloud.contents()
    server = cloud.active(meta={"nodepool_node_id": "1"}, key_name="key", userdata="hello", config_drive=True)
    assert server.metadata == {"nodepool_node_id": "1"}
    assert server.addresses["provider"][0]["addr"].startswith("127.")
    assert server.flavor["original_name"] == "small"
    assert "login:" in cloud.connection.get_server_console(server)
    assert [port.status for port in cloud.connection.network.ports(device_id=server.id)] == ["ACTIVE"]
    cloud.delete(server.id)
    assert cloud.contents() == before
    with pytest.raises(NotFoundException):
        cloud.connection.compute.delete_server(server.id, ignore_missing=False)


def test_a_real_sshd_answers_at_all_addresses_of_a_server(cloud: SimulatedCloud, sshd: SshServer) -> None:
    server = cloud.active(network="dual")
    addresses = [entry["addr"] for entry in server.addresses["dual"]]
    assert len(addresses) == 2
    for address in addresses:
        with socket.create_connection((address, sshd.port), timeout=10) as client:
            assert client.recv(4) == b"SSH-"


def test_a_floating_ip_is_attached_and_removed(cloud: SimulatedCloud) -> None:
    connection = cloud.connection
    server = cloud.active(network="private")
    network = connection.network.find_network("public")
    floating = connection.create_floating_ip(network=network.id, server=connection.get_server(server.id))
    assert floating.fixed_ip_address == server.addresses["private"][0]["addr"]
    kinds = {entry["OS-EXT-IPS:type"] for entry in cloud.server(server.id).addresses["private"]}
    assert kinds == {"fixed", "floating"}
    cloud.delete(server.id)
    assert [entry.port_id for entry in connection.list_floating_ips()] == [None]
    connection.delete_floating_ip(floating.id)
    assert cloud.contents()["floating_ips"] == 0


def test_the_sdk_finds_a_floating_ip_for_a_server_that_needs_one(cloud: SimulatedCloud) -> None:
    server = cloud.active(network="private")
    cloud.connection.add_auto_ip(cloud.connection.get_server(server.id), wait=False)
    port = next(cloud.connection.network.ports(device_id=server.id))
    assert [floating.port_id for floating in cloud.connection.list_floating_ips()] == [port.id]


def test_a_server_boots_from_a_volume_that_goes_with_it(cloud: SimulatedCloud) -> None:
    server = cloud.active(boot_from_volume=True, volume_size=7, terminate_volume=True)
    assert [(volume.size, volume.status) for volume in cloud.connection.list_volumes()] == [(7, "in-use")]
    assert cloud.connection.get_volume_limits().absolute["totalGigabytesUsed"] == 7
    cloud.delete(server.id)
    assert cloud.connection.list_volumes() == []


def test_an_image_is_uploaded_booted_and_deleted(cloud: SimulatedCloud, tmp_path: Path) -> None:
    file = tmp_path / "image.raw"
    file.write_bytes(b"simulated" * 100_000)
    arguments = {"disk_format": "raw", "container_format": "bare", "meta": {"nodepool_build_id": "7"}}
    # The SDK does not close a file that it opens itself.
    with file.open("rb") as data:
        created = cloud.connection.create_image("new", data=data, **arguments)
    image = cloud.connection.get_image(created.id)
    assert (image.status, image.size) == ("active", 900_000)
    assert image.checksum == hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
    assert image.properties["nodepool_build_id"] == "7"
    cloud.active(image="new")
    assert cloud.connection.delete_image(image.id)
    with pytest.raises(NotFoundException):
        cloud.connection.image.get_image(image.id)


def test_limits_count_what_is_used(cloud: SimulatedCloud) -> None:
    cloud.simulator.change(quota={"instances": 5, "cores": 6, "ram": 70000})
    cloud.create(flavor="large")
    limits = cloud.connection.get_compute_limits()
    assert (limits.instances, limits.total_cores, limits.total_ram) == (5, 6, 70000)
    assert (limits.instances_used, limits.total_cores_used, limits.total_ram_used) == (1, 4, 8192)


def test_long_lists_come_in_pages(cloud: SimulatedCloud) -> None:
    cloud.simulator.change(page_limit=2, image_page_limit=2)
    ids = [cloud.create(f"np{number}").id for number in range(5)]
    for number in range(4):
        cloud.connection.image.create_image(f"more-{number}", disk_format="raw", container_format="bare")
    assert [server.id for server in cloud.connection.compute.servers()] == ids[::-1]
    assert cloud.calls()["compute.list_servers"] == 3
    assert len(list(cloud.connection.network.ports())) == 5
    assert len(list(cloud.connection.image.images())) == 5
    assert len(list(cloud.connection.compute.flavors())) == 5


def test_changes_since_shows_deleted_servers_too(cloud: SimulatedCloud) -> None:
    start = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    gone, stays = cloud.active("gone").id, cloud.active("stays").id
    cloud.delete(gone)
    found = {server.id: server.status for server in cloud.connection.compute.servers(changes_since=start)}
    assert found == {gone: "DELETED", stays: "ACTIVE"}
    assert list(cloud.connection.compute.servers(changes_since="2999-01-01T00:00:00Z")) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"flavorRef": "no-such"}, "Flavor no-such could not be found"),
        ({"imageRef": "no-such"}, "Can not find requested image"),
        ({"networks": [{"uuid": "no-such"}]}, "Network no-such could not be found"),
        ({"availability_zone": "no-such"}, "availability zone is not available"),
        ({"key_name": "no-such"}, "Invalid key_name"),
        ({"security_groups": [{"name": "no-such"}]}, "Security group no-such not found"),
        ({"metadata": {"key": "x" * 256}}, "too long"),
        ({"metadata": {"key": 1}}, "not of type 'string'"),
    ],
)
def test_a_bad_creation_is_refused_as_nova_does(cloud: SimulatedCloud, arguments: dict[str, object], text: str) -> None:
    with cloud.simulator.cloud() as inside:
        image = next(iter(inside.images.images))["id"]
        network = inside.network.networks.named("provider")["id"]
    body = {"name": "np1", "flavorRef": "1", "imageRef": image, "networks": [{"uuid": network}]} | arguments
    answer = cloud.connection.compute.post("/servers", json={"server": body}, microversion="2.79")
    assert answer.status_code == 400
    assert text in answer.json()["badRequest"]["message"]
    assert cloud.contents()["servers"] == 0


def test_networks_must_be_named_when_there_are_several(cloud: SimulatedCloud) -> None:
    with pytest.raises(ConflictException, match="Multiple possible networks"):
        cloud.connection.compute.create_server(
            name="np1", flavor_id="1", image_id=next(cloud.connection.image.images()).id, networks="auto"
        )


def test_a_cloud_without_block_storage_and_floating_ips(tmp_path: Path) -> None:
    knobs = Knobs(block_storage=False, floating_ips=False)
    with OpenStackSimulator(knobs) as simulator, connected(simulator, tmp_path) as connection:
        cloud = SimulatedCloud(simulator, connection)
        assert not connection.has_service("block-storage")
        assert "public" not in {network.name for network in connection.list_networks()}
        with pytest.raises(NotFoundException):
            list(connection.network.ips())
        cloud.delete(cloud.active().id)


def test_a_cloud_that_was_away_comes_back_with_what_it_had(cloud: SimulatedCloud) -> None:
    server = cloud.active()
    cloud.simulator.stop()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(cloud.simulator.url.rpartition(":")[2])), timeout=5).close()
    cloud.simulator.start()
    assert cloud.server(server.id).status == "ACTIVE"


def test_a_boot_takes_its_time(tmp_path: Path) -> None:
    # Its client compares the tokens' times with its own.
    clock = ManualClock(time.time())
    knobs = Knobs(boot_seconds=(10, 10))
    with OpenStackSimulator(knobs, clock=clock) as simulator, connected(simulator, tmp_path) as connection:
        cloud = SimulatedCloud(simulator, connection)
        server = cloud.create()
        clock.pass_seconds(9.9)
        assert cloud.server(server.id).status == "BUILD"
        clock.pass_seconds(0.2)
        assert cloud.server(server.id).status == "ACTIVE"
