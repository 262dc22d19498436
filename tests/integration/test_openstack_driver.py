# SPDX-License-Identifier: Apache-2.0
"""The OpenStack driver in a running launcher: simulated cloud over HTTP, real ZooKeeper, real sshd (O, D, L, K)."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.openstack import create
from nodepool.driver.openstack.adapter import OpenStackAdapter
from nodepool.driver.statemachine import StateMachineProvider
from nodepool.testing.openstack import OpenStackSimulator
from tests.support.local_launcher import LocalLauncher
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


class Place:
    """A launcher with one OpenStack provider, and its cloud."""

    def __init__(self, simulator: OpenStackSimulator, znodes: PoolZnodes, section: dict[str, Any]) -> None:
        self.simulator = simulator
        self.znodes = znodes
        self.section = section
        self.start: Callable[[], LocalLauncher]
        self.launcher: LocalLauncher | None = None

    @property
    def pool(self) -> dict[str, Any]:
        found: dict[str, Any] = self.section["pools"][0]
        return found

    @property
    def label(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pool["labels"][0]
        return found

    @property
    def provider(self) -> StateMachineProvider:
        assert self.launcher is not None
        provider = self.launcher.nodepool.providers()["cloud-a"]
        assert isinstance(provider, StateMachineProvider)
        return provider

    @property
    def adapter(self) -> OpenStackAdapter:
        adapter = self.provider.adapter
        assert isinstance(adapter, OpenStackAdapter)
        return adapter

    def launch(self) -> None:
        self.launcher = self.start()

    def contents(self) -> dict[str, int]:
        found: dict[str, int] = self.simulator.state()["contents"]
        return found

    def calls(self, operation: str) -> int:
        return int(self.simulator.state()["calls"].get(operation, 0))

    def fulfilled(self, request: str) -> list[dict[str, Any]]:
        """Waits for a request; returns its nodes."""

        def over() -> bool:
            assert self.znodes.request_state(request) == "fulfilled", f"it is {self.znodes.request_state(request)}"
            return True

        wait_for(f"{request} is fulfilled", over)
        found = self.znodes.request(request) or {}
        return [node for node_id in found["nodes"] if (node := self.znodes.node(node_id))]

    def failed(self, request: str) -> None:
        wait_for(f"{request} fails", lambda: self.znodes.request_state(request) == "failed")

    def give_back(self, request: str) -> None:
        """What a client does when its job is over."""
        for node_id in (self.znodes.request(request) or {})["nodes"]:
            self.znodes.change_node(node_id, state="used")
        self.znodes.delete_request(request)

    def wait_empty(self) -> None:
        """Nothing of ours is left anywhere."""

        def empty() -> bool:
            contents = {kind: self.contents()[kind] for kind in ("servers", "ports", "floating_ips", "volumes")}
            assert not any(contents.values()), f"left in the cloud: {contents}"
            assert not self.znodes.nodes(), f"left in ZooKeeper: {self.znodes.nodes()}"
            return True

        wait_for("nothing is left", empty)


@pytest.fixture
def simulator() -> Iterator[OpenStackSimulator]:
    """A cloud for each test; in the end no node may ever have had two servers."""
    with OpenStackSimulator() as cloud:
        yield cloud
        assert cloud.state()["double_nodes"] == []
        assert cloud.state()["bugs"] == []


@pytest.fixture
def place(
    simulator: OpenStackSimulator,
    tmp_path: Path,
    zookeeper: ZooKeeperServer,
    chroot: str,
    znodes: PoolZnodes,
    sshd: SshServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    """Change ``section`` and call `Place.launch`."""
    file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    image = {"name": "debian", "image-name": "cloud-image", "username": "debian", "connection-port": sshd.port}
    section = {
        "name": "cloud-a",
        "driver": "openstack",
        "cloud": "simulator",
        "rate": 0,
        "diskimages": [{"name": "built", "connection-port": sshd.port}],
        "cloud-images": [image],
        "pools": [
            {
                "name": "main",
                "networks": ["provider"],
                "labels": [{"name": "small", "cloud-image": "debian", "min-ram": 512}],
            }
        ],
    }
    made = Place(simulator, znodes, section)

    def start() -> LocalLauncher:
        labels = [{"name": label["name"]} for label in made.pool["labels"]]
        settings = {"labels": labels, "diskimages": [{"name": "built"}], "providers": [made.section]}
        launcher = LocalLauncher(tmp_path / "nodepool.yaml", zookeeper, chroot, copy.deepcopy(settings))
        launcher.start()
        return launcher

    made.start = start
    yield made
    if made.launcher is not None:
        made.launcher.stop()


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
            *("simulator", "RegionOne"),
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


def test_quota(place: Place) -> None:
    """Q, L-7, O-3: requests over the quota of the cloud wait, and all are served."""
    place.simulator.change(quota={"instances": 3})
    place.launch()
    waiting = [place.znodes.submit(["small"]) for _ in range(8)]

    def serve() -> bool:
        for request in list(waiting):
            state = place.znodes.request_state(request)
            assert state != "failed"
            if state == "fulfilled":
                place.give_back(request)
                waiting.remove(request)
        return not waiting

    wait_for("all are served", serve)
    place.wait_empty()
    assert place.simulator.state()["peak_servers"] <= 3


@pytest.mark.parametrize("kind", ["500", "drop", "html"])
def test_lost_answers(place: Place, kind: str) -> None:
    """DESIGN 5: every third creation works, but its answer is lost; no node gets two servers, none is left."""
    place.simulator.change(
        errors=[{"operation": "compute.create_server", "kind": kind, "after": True, "count": 4}],
        hidden_rate=0.5,
        hidden_seconds=[0.3, 0.6],
    )
    place.launch()
    requests = [place.znodes.submit(["small"]) for _ in range(8)]
    for request in requests:
        place.fulfilled(request)
    assert place.contents()["servers"] == 8
    for request in requests:
        place.give_back(request)
    place.wait_empty()
    assert place.calls("compute.create_server") == 8, "what was made was found"


def test_swallowed_deletions(place: Place) -> None:
    """DESIGN 5: a deletion that was accepted and forgotten, or that went wrong, is sent again."""
    rules = [{"kind": "swallowed", "count": 2}, {"kind": "error", "count": 1}]
    place.simulator.change(deletes=rules)
    place.launch()
    requests = [place.znodes.submit(["small"]) for _ in range(4)]
    for request in requests:
        place.fulfilled(request)
    for request in requests:
        place.give_back(request)
    place.wait_empty()
    assert place.calls("compute.delete_server") >= 7


def test_error_servers(place: Place) -> None:
    """O-4, L-4: an ERROR server is deleted, and the launch tried again; the last attempt fails the request."""
    place.simulator.change(boots=[{"kind": "error", "count": 2}])
    place.launch()
    first = place.znodes.submit(["small"])
    place.fulfilled(first)
    place.give_back(first)
    place.simulator.change(boots=[{"kind": "no-valid-host"}])
    second = place.znodes.submit(["small"])
    place.failed(second)
    place.wait_empty()
    assert place.calls("compute.create_server") == 3 + 3


def test_instance_without_address(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input: it is a failed attempt, it is said why, and nothing is left."""
    monkeypatch.setattr(create, "NO_ADDRESS_SECONDS", 0.5)
    place.section["launch-retries"] = 1
    place.simulator.change(boots=[{"kind": "no-address"}])
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    place.wait_empty()
    assert "provider cloud-a, label small: server" in caplog.text
    assert "has no address; check the networks" in caplog.text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"flavor-name": "nope"}, "label small: the cloud has no flavor named 'nope'"),
        ({"networks": ["nope"]}, "label small: the cloud has no network 'nope'"),
        ({"key-name": "nope"}, "Invalid key_name provided"),
        ({"cloud-image": "gone"}, "label small: the cloud has no usable image 'gone'"),
    ],
)
def test_bad_label(place: Place, caplog: pytest.LogCaptureFixture, change: dict[str, Any], text: str) -> None:
    """Bad input: provider, label and remedy are named; other labels work; nothing is left."""
    place.section["launch-retries"] = 1
    place.section["cloud-images"].append({"name": "gone"})
    good = {**place.label, "name": "good"}
    place.label.update(change)
    if "flavor-name" in change:
        del place.label["min-ram"]
    place.pool["labels"].append(good)
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    request = place.znodes.submit(["good"])
    place.fulfilled(request)
    place.give_back(request)
    place.wait_empty()
    assert text in caplog.text
    assert "provider cloud-a" in caplog.text


def test_expired_password(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Bad input: the request waits while the cloud refuses the login, and is served when it does not any more."""
    place.simulator.change(password="changed")
    place.launch()
    request = place.znodes.submit(["small"])
    wait_for("it is said", lambda: "check the user name, the password (is it expired?)" in caplog.text)
    place.simulator.change(password="secret")
    place.fulfilled(request)
    place.give_back(request)
    place.wait_empty()


def test_leaks(place: Place) -> None:
    """D-2, D-5, D-6, D-7: server, port and floating IP that nobody knows go; what is not ours stays."""
    place.section["port-cleanup-interval"] = 0.001
    place.section["clean-floating-ips"] = True
    place.launch()
    ours = {"nodepool_provider_name": "cloud-a", "nodepool_node_id": "9999999999", "nodepool_pool_name": "main"}
    with place.simulator.cloud() as cloud:
        leaked = cloud.add_server(metadata=ours)
        foreign = cloud.add_server(metadata={**ours, "nodepool_provider_name": "other"})
        cloud.add_port(device_owner="compute:nova")
        cloud.add_floating_ip()
    place.provider.cleanupLeakedResources()
    assert place.contents()["servers"] == 2, "seen once"
    place.provider.cleanupLeakedResources()

    def gone() -> bool:
        with place.simulator.cloud() as cloud:
            servers = {server.id for server in cloud.compute.servers if not server.gone}
            ports = [port for port in cloud.network.ports if port["status"] == "DOWN"]
        return servers == {foreign.id} and not ports and place.contents()["floating_ips"] == 0

    wait_for("what was leaked is gone", gone)
    assert leaked.id != foreign.id


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
    """U-3 to U-5, L-1: uploaded through the adapter, used by a node as its record says, deleted."""
    place.label.clear()
    place.label.update({"name": "small", "diskimage": "built", "min-ram": 512})
    place.launch()
    file = tmp_path / "image.qcow2"
    file.write_bytes(b"QFI\xfb" + bytes(100_000))
    keys = {"nodepool_provider_name": "cloud-a", "nodepool_build_id": "b1", "nodepool_upload_id": "0000000001"}
    image = place.adapter.config.diskimages["built"]
    external_id = place.adapter.uploadImage(image, "built-1", str(file), "qcow2", dict(keys), "0" * 32, "1" * 64)
    root = "/nodepool/images/built/builds/b1"
    now = time.time()
    build = {"state": "ready", "state_time": now, "builder": "host", "builder_id": "id", "formats": "qcow2"}
    upload = {
        "state": "ready",
        "state_time": now,
        "external_id": external_id,
        "external_name": "built-1",
        "format": "qcow2",
        "username": "zuul",
        "python_path": "auto",
    }
    place.znodes.kazoo.create(root, json.dumps(build).encode(), makepath=True)
    place.znodes.kazoo.create(f"{root}/providers/cloud-a/images/0000000001", json.dumps(upload).encode(), makepath=True)
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


def test_busy_cloud(place: Place) -> None:
    """429 with Retry-After: the calls are made later, and nothing fails."""
    rule = {"operation": "compute.*", "kind": "429", "retry_after": 1, "count": 3}
    place.simulator.change(errors=[rule])
    place.launch()
    request = place.znodes.submit(["small"])
    place.fulfilled(request)
    place.give_back(request)
    place.wait_empty()


def test_cloud_is_away_for_a_while(place: Place) -> None:
    """F-5: nothing is declined, and all goes on when the cloud is back."""
    place.launch()
    first = place.znodes.submit(["small"])
    place.fulfilled(first)
    place.simulator.change(errors=[{"operation": "*", "kind": "503"}])
    second = place.znodes.submit(["small"])
    place.give_back(first)
    wait_for("the provider is given a rest", lambda: place.provider.calls.resting)
    assert place.znodes.request_state(second) in ("requested", "pending")
    place.simulator.change(errors=[])
    place.fulfilled(second)
    place.give_back(second)
    place.wait_empty()
