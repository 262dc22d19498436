# SPDX-License-Identifier: Apache-2.0
"""openstacksdk uses the simulator as a cloud: what a healthy one does, and its faults."""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.exceptions import (
    ConnectFailure,
    ConnectTimeout,
    RetriableConnectionFailure,
    UnknownConnectionError,
)
from openstack.config import OpenStackConfig
from openstack.connection import Connection
from openstack.exceptions import ForbiddenException, HttpException, NotFoundException
from openstack.proxy import Proxy

from simulators.openstack import CLOUD_NAME, ErrorRule, Knobs, OpenStackSimulator, SimulatorClient
from tests.support.manual_clock import ManualClock
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

#: How often openstacksdk makes a call again by itself.
REPEATS = inspect.signature(Proxy.request).parameters["connect_retries"].default


class SimulatedCloud:
    """The simulator and a connection to it."""

    def __init__(self, simulator: OpenStackSimulator, connection: Connection) -> None:
        self.simulator = simulator
        #: Its type hints make of every answer a union that tests would have to take apart.
        self.connection: Any = connection

    def create(self, name: str = "np1", network: str = "provider", **arguments: Any) -> Any:
        """Creates a server without waiting for it."""
        arguments = {"flavor": "small", "image": "cloud-image"} | arguments
        return self.connection.create_server(name, network=network, auto_ip=False, wait=False, **arguments)

    def server(self, key: str) -> Any:
        """The server as a list has it now; None = there is none."""
        return next((server for server in self.connection.compute.servers() if server.id == key), None)

    def reaches(self, key: str, status: str) -> Any:
        """Waits until the server has this status and returns it, with its fault."""

        def look() -> bool:
            server = self.server(key)
            return server is not None and server.status == status

        wait_for(f"server {key} is {status}", look)
        return self.connection.compute.get_server(key)

    def active(self, name: str = "np1", network: str = "provider", **arguments: Any) -> Any:
        """Creates a server and waits until it is ACTIVE."""
        return self.reaches(self.create(name, network, **arguments).id, "ACTIVE")

    def delete(self, key: str) -> None:
        """Deletes a server and waits until lists have it no more."""
        self.connection.compute.delete_server(key)
        wait_for(f"server {key} is deleted", lambda: self.server(key) is None)

    def contents(self) -> dict[str, int]:
        """How many servers, ports, ... there are, without asking the API."""
        with self.simulator.cloud() as cloud:
            return cloud.contents()


@contextmanager
def connected(directory: Path, knobs: Knobs | None = None, **options: Any) -> Iterator[SimulatedCloud]:
    """A running simulator, and a connection to it that is made from a clouds.yaml in ``directory``."""
    with OpenStackSimulator(knobs or Knobs(), **options) as simulator:
        file = simulator.write_clouds_yaml(directory / "clouds.yaml", CLOUD_NAME)
        config = OpenStackConfig(config_files=[str(file)], secure_files=[], load_envvars=False)
        connection = Connection(config=config.get_one(CLOUD_NAME))
        try:
            yield SimulatedCloud(simulator, connection)
        finally:
            connection.close()
            # keystoneauth leaves the sessions' sockets to the garbage collector.
            connection.session.session.close()
        assert simulator.state()["bugs"] == []


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[SimulatedCloud]:
    with connected(tmp_path) as made:
        yield made


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
    """Its volume goes with it; limits count both."""
    before, connection = cloud.contents(), cloud.connection
    cloud.simulator.change(quota={"instances": 5, "cores": 6, "ram": 70000})
    settings: dict[str, Any] = {"key_name": "key", "userdata": "hello", "config_drive": True, "flavor": "large"}
    settings |= {"boot_from_volume": True, "volume_size": 7, "terminate_volume": True}
    server = cloud.active(meta={"nodepool_node_id": "1"}, **settings)
    assert server.metadata == {"nodepool_node_id": "1"}
    assert server.addresses["provider"][0]["addr"].startswith("127.")
    assert server.flavor["original_name"] == "large"
    assert "login:" in connection.get_server_console(server)
    assert [port.status for port in connection.network.ports(device_id=server.id)] == ["ACTIVE"]
    assert [(volume.size, volume.status) for volume in connection.list_volumes()] == [(7, "in-use")]
    assert connection.get_volume_limits().absolute["totalGigabytesUsed"] == 7
    limits = connection.get_compute_limits()
    assert (limits.instances, limits.total_cores, limits.total_ram) == (5, 6, 70000)
    assert (limits.instances_used, limits.total_cores_used, limits.total_ram_used) == (1, 4, 8192)
    cloud.delete(server.id)
    assert cloud.contents() == before
    with pytest.raises(NotFoundException):
        connection.compute.delete_server(server.id, ignore_missing=False)


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


def test_a_boot_takes_its_time_and_lists_are_late(tmp_path: Path) -> None:
    # Its client compares the tokens' times with its own.
    clock = ManualClock(time.time())
    knobs = Knobs(boot_seconds=(10, 10), hidden_rate=1, hidden_seconds=(5, 5))
    with connected(tmp_path, knobs, clock=clock) as cloud:
        server = cloud.create()
        assert cloud.server(server.id) is None
        assert cloud.connection.compute.get_server(server.id).id == server.id
        for seconds, status in ((9.9, "BUILD"), (0.2, "ACTIVE")):
            clock.pass_seconds(seconds)
            assert cloud.server(server.id).status == status


# -- faults


@pytest.mark.parametrize(
    ("rule", "status", "content_type", "body"),
    [
        *(({"kind": status}, int(status), "application/json", "on purpose") for status in ("400", "403", "404", "409")),
        *(({"kind": status}, int(status), "application/json", "on purpose") for status in ("500", "503", "504")),
        ({"kind": "429", "retry_after": 7}, 429, "application/json", "on purpose"),
        ({"kind": "html"}, 502, "text/html", "Bad Gateway"),
        ({"kind": "portal"}, 200, "text/html", "Sign in"),
        ({"kind": "garbage"}, 200, "application/json", "{{"),
        ({"kind": "odd"}, 200, "application/json", "[null, 7]"),
        ({"kind": "huge", "size": 1000}, 200, "application/json", "x" * 100),
    ],
)
def test_answers_of_a_cloud_in_trouble(
    cloud: SimulatedCloud, rule: dict[str, Any], status: int, content_type: str, body: str
) -> None:
    """Of one operation, so often as the rule says."""
    message = {"message": body} if content_type.endswith("json") and status != 200 else {}
    cloud.simulator.change(errors=[{"operation": "compute.list_servers", "count": 1, **message, **rule}])
    answer = cloud.connection.compute.get("/servers/detail")
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, content_type)
    assert body in answer.text
    assert answer.headers.get("Retry-After") == ("7" if status == 429 else None)
    assert cloud.connection.compute.get("/servers/detail").status_code == 200


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("truncated", UnknownConnectionError),
        ("hang", (ConnectTimeout, RetriableConnectionFailure)),
        ("drop", ConnectFailure),
    ],
)
def test_answers_that_do_not_come(cloud: SimulatedCloud, kind: str, error: Any) -> None:
    cloud.connection.list_flavors()
    cloud.simulator.change(errors=[{"operation": "compute.list_servers", "kind": kind}])
    with pytest.raises(error):
        cloud.connection.compute.get("/servers/detail", timeout=0.2 if kind == "hang" else 30)
    assert cloud.connection.list_flavors()


@pytest.mark.parametrize("kind", ["500", "drop", "html"])
def test_the_answer_to_a_create_is_lost(cloud: SimulatedCloud, kind: str) -> None:
    if kind == "drop" and REPEATS:
        pytest.skip("openstacksdk 3 makes the call again by itself")
    cloud.connection.list_flavors()
    rule = ErrorRule(operation="compute.create_server", kind=kind, after=True, count=1)
    cloud.simulator.change(errors=[rule])
    with pytest.raises((HttpException, ConnectFailure)):
        cloud.create("lost")
    assert [server.name for server in cloud.connection.compute.servers()] == ["lost"]


def test_quota_texts(cloud: SimulatedCloud) -> None:
    """Refusals, and faults of servers, that mean a quota."""
    cloud.create()
    for quota, flavor, text in (
        ({"instances": 1}, "small", "Quota exceeded for instances: Requested 1, but already used 1 of 1"),
        ({"instances": -1, "cores": 2}, "medium", "Quota exceeded for cores"),
        ({"cores": -1, "ports": 1}, "small", "Maximum number of ports exceeded"),
    ):
        cloud.simulator.change(quota=quota)
        with pytest.raises(ForbiddenException, match=text):
            cloud.create("np2", flavor=flavor)
    for quota, text in (
        ({"ports": -1, "gigabytes": 4}, "exceeds allowed gigabytes quota"),
        ({"gigabytes": -1, "volumes": 0}, "exceeded for quota 'volumes'"),
    ):
        cloud.simulator.change(quota=quota)
        server = cloud.create(boot_from_volume=True, volume_size=5, terminate_volume=True)
        assert text in cloud.reaches(server.id, "ERROR").fault["message"]


def test_deletes_that_do_not_happen(cloud: SimulatedCloud) -> None:
    rules = [{"kind": kind, "count": 1} for kind in ("swallowed", "error", "stuck")]
    server = cloud.active()
    delete = cloud.connection.compute.delete_server
    cloud.simulator.change(deletes=rules)
    delete(server.id)
    assert cloud.server(server.id).task_state is None
    delete(server.id)
    cloud.reaches(server.id, "ERROR")
    delete(server.id)
    delete(server.id)
    assert cloud.server(server.id).task_state == "deleting"
    SimulatorClient(cloud.simulator.url).release_stuck()
    assert cloud.server(server.id) is None


def test_leaks(cloud: SimulatedCloud) -> None:
    client = SimulatorClient(cloud.simulator.url)
    added = {kind: client.add(kind) for kind in ("port", "floating_ip", "volume")}
    added["server"] = client.add("server", name="stray", metadata={"nodepool_provider_name": "other"})
    connection = cloud.connection
    port = connection.network.get_port(added["port"])
    assert (port.status, port.device_owner) == ("DOWN", "compute:nova")
    assert connection.compute.get_server(added["server"]).metadata == {"nodepool_provider_name": "other"}
    client.vanish(added["server"])
    assert client.servers() == []
    assert cloud.contents() == {"servers": 0, "ports": 1, "floating_ips": 1, "volumes": 1, "images": 1}
    connection.delete_port(added["port"])
    connection.delete_floating_ip(added["floating_ip"])
    connection.delete_volume(added["volume"], wait=False)
    assert cloud.contents() == {"servers": 0, "ports": 0, "floating_ips": 0, "volumes": 0, "images": 1}


def test_as_a_process(tmp_path: Path) -> None:
    """All clients see the same settings."""
    file = tmp_path / "clouds.yaml"
    command = [sys.executable, "-m", "simulators.openstack", "--clouds-yaml", str(file), "--cloud", "mine"]
    command += ["--seed", "3", "--knobs", json.dumps({"boot_seconds": [0, 0]})]
    process = ChildProcess(command, tmp_path / "log", cwd=Path(__file__).parents[2])
    process.start()
    try:
        url = wait_for("it says where it is", lambda: process.log_text().rpartition("\n")[0])
        assert f"auth_url: {url}/identity" in file.read_text(encoding="utf-8")
        client = SimulatorClient(url)
        assert client.knobs()["boot_seconds"] == [0, 0]
        client.change(quota={"cores": 7})
        assert client.knobs()["quota"]["cores"] == 7
        with pytest.raises(ValueError, match=r"unknown settings: boot_secs; there are: .*boot_seconds"):
            client.change(boot_secs=1)
        with pytest.raises(ValueError, match="kind 'explode'"):
            client.change(errors=[{"kind": "explode"}])
    finally:
        process.stop()
    assert process.returncode == 0
    assert process.log_text().splitlines() == [url]
