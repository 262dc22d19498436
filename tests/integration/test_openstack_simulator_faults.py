# SPDX-License-Identifier: Apache-2.0
"""openstacksdk meets the faults that the simulator can have, and the simulator as a process of its own."""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from keystoneauth1.exceptions import (
    ConnectFailure,
    ConnectTimeout,
    RetriableConnectionFailure,
    Unauthorized,
    UnknownConnectionError,
)
from openstack.exceptions import ForbiddenException, HttpException
from openstack.proxy import Proxy

from simulators.openstack import ErrorRule, Knobs, OpenStackSimulator, SimulatorClient
from tests.support.manual_clock import ManualClock
from tests.support.openstack_cloud import SimulatedCloud, connected
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

#: How often openstacksdk makes a call again by itself.
REPEATS = inspect.signature(Proxy.request).parameters["connect_retries"].default


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[SimulatedCloud]:
    with OpenStackSimulator() as simulator, connected(simulator, tmp_path) as connection:
        yield SimulatedCloud(simulator, connection)
        assert simulator.state()["bugs"] == []


@pytest.mark.parametrize("status", ["400", "403", "404", "409", "500", "503", "504"])
def test_errors_by_status(cloud: SimulatedCloud, status: str) -> None:
    cloud.simulator.change(errors=[{"operation": "compute.list_servers", "kind": status, "message": "on purpose"}])
    with pytest.raises(HttpException, match="on purpose") as caught:
        list(cloud.connection.compute.servers())
    assert caught.value.status_code == int(status)
    assert cloud.connection.list_flavors()


def test_429_says_when_to_come_again(cloud: SimulatedCloud) -> None:
    cloud.simulator.change(errors=[{"operation": "network.list_ports", "kind": "429", "retry_after": 7, "count": 1}])
    answer = cloud.connection.network.get("/ports")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert cloud.connection.network.get("/ports").status_code == 200


def test_html_in_place_of_json(cloud: SimulatedCloud) -> None:
    cloud.simulator.change(errors=[{"operation": "compute.list_servers", "kind": "html"}])
    answer = cloud.connection.compute.get("/servers/detail")
    assert answer.headers["Content-Type"] == "text/html"
    assert "Bad Gateway" in answer.text


@pytest.mark.parametrize(
    ("kind", "content_type", "body"),
    [
        ("portal", "text/html", "Sign in"),
        ("garbage", "application/json", "{{"),
        ("odd", "application/json", "[null, 7]"),
        ("huge", "application/json", "x" * 100),
    ],
)
def test_answers_that_make_no_sense(cloud: SimulatedCloud, kind: str, content_type: str, body: str) -> None:
    cloud.simulator.change(errors=[{"operation": "compute.list_servers", "kind": kind, "size": 1000}])
    answer = cloud.connection.compute.get("/servers/detail")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, content_type)
    assert body in answer.text


def test_an_answer_that_ends_in_the_middle(cloud: SimulatedCloud) -> None:
    cloud.connection.list_flavors()
    cloud.simulator.change(errors=[{"operation": "compute.list_servers", "kind": "truncated"}])
    with pytest.raises(UnknownConnectionError, match="IncompleteRead"):
        cloud.connection.compute.get("/servers/detail")


def test_no_answer_in_time(cloud: SimulatedCloud) -> None:
    cloud.connection.list_flavors()
    cloud.simulator.change(errors=[{"operation": "compute.list_servers", "kind": "hang"}])
    with pytest.raises((ConnectTimeout, RetriableConnectionFailure)):
        cloud.connection.compute.get("/servers/detail", timeout=0.2)
    assert cloud.connection.list_flavors()


def test_a_connection_that_ends_without_an_answer(cloud: SimulatedCloud) -> None:
    cloud.connection.list_flavors()
    cloud.simulator.change(errors=[{"operation": "compute.list_servers", "kind": "drop"}])
    with pytest.raises(ConnectFailure):
        cloud.connection.compute.get("/servers/detail")


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


def test_an_expired_token_is_renewed(cloud: SimulatedCloud) -> None:
    cloud.connection.list_flavors()
    SimulatorClient(cloud.simulator.url).expire_tokens()
    assert cloud.connection.list_flavors()
    assert cloud.calls()["identity.create_token"] == 2


def test_an_expired_password(cloud: SimulatedCloud) -> None:
    cloud.simulator.change(password="another")
    with pytest.raises(Unauthorized):
        cloud.connection.list_flavors()


def test_quota_texts(cloud: SimulatedCloud) -> None:
    cloud.simulator.change(quota={"instances": 1})
    cloud.create()
    with pytest.raises(ForbiddenException, match="Quota exceeded for instances: Requested 1, but already used 1 of 1"):
        cloud.create("np2")
    cloud.simulator.change(quota={"instances": -1, "cores": 2})
    with pytest.raises(ForbiddenException, match="Quota exceeded for cores"):
        cloud.create("np2", flavor="medium")
    cloud.simulator.change(quota={"cores": -1, "ports": 1})
    with pytest.raises(ForbiddenException, match="Maximum number of ports exceeded"):
        cloud.create("np2")


def test_faults_that_mean_quota(cloud: SimulatedCloud) -> None:
    def fault() -> str:
        server = cloud.create(boot_from_volume=True, volume_size=5, terminate_volume=True)
        return str(cloud.reaches(server.id, "ERROR").fault["message"])

    cloud.simulator.change(quota={"gigabytes": 4})
    assert "exceeds allowed gigabytes quota" in fault()
    cloud.simulator.change(quota={"gigabytes": -1, "volumes": 0})
    assert "exceeded for quota 'volumes'" in fault()


def test_stuck_in_build(cloud: SimulatedCloud) -> None:
    cloud.simulator.change(boots=[{"kind": "stuck", "count": 1}])
    stuck = cloud.create("stuck")
    cloud.active("next")
    assert cloud.server(stuck.id).status == "BUILD"
    cloud.delete(stuck.id)
    assert cloud.contents()["ports"] == 1


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


def test_a_server_that_lists_show_late(tmp_path: Path) -> None:
    # Its client compares the tokens' times with its own.
    clock = ManualClock(time.time())
    knobs = Knobs(hidden_rate=1, hidden_seconds=(30, 30))
    with OpenStackSimulator(knobs, clock=clock) as simulator, connected(simulator, tmp_path) as connection:
        cloud = SimulatedCloud(simulator, connection)
        server = cloud.create()
        assert cloud.server(server.id) is None
        assert connection.compute.get_server(server.id).id == server.id
        clock.pass_seconds(31)
        assert cloud.server(server.id).status == "ACTIVE"


def test_leaks(cloud: SimulatedCloud) -> None:
    client = SimulatorClient(cloud.simulator.url)
    added = {kind: client.add(kind) for kind in ("port", "floating_ip", "volume")}
    added["server"] = client.add("server", name="stray", metadata={"nodepool_provider_name": "other"})
    connection = cloud.connection
    port = connection.network.get_port(added["port"])
    assert (port.status, port.device_owner) == ("DOWN", "compute:nova")
    assert connection.compute.get_server(added["server"]).metadata == {"nodepool_provider_name": "other"}
    assert [server["id"] for server in client.servers()] == [added["server"]]
    client.vanish(added["server"])
    assert client.servers() == []
    assert cloud.contents() == {"servers": 0, "ports": 1, "floating_ips": 1, "volumes": 1, "images": 1}
    connection.delete_port(added["port"])
    connection.delete_floating_ip(added["floating_ip"])
    connection.delete_volume(added["volume"], wait=False)
    assert cloud.contents() == {"servers": 0, "ports": 0, "floating_ips": 0, "volumes": 0, "images": 1}


def test_ports_and_volumes_that_outlive_their_server(cloud: SimulatedCloud) -> None:
    cloud.simulator.change(port_leak_rate=1, volume_leak_rate=1)
    cloud.delete(cloud.active(boot_from_volume=True, volume_size=5, terminate_volume=True).id)
    assert [port.status for port in cloud.connection.network.ports()] == ["DOWN"]
    assert [volume.status for volume in cloud.connection.list_volumes()] == ["available"]


def test_latency_can_depend_on_the_operation(cloud: SimulatedCloud) -> None:
    cloud.connection.list_flavors()
    cloud.simulator.change(latencies={"compute.list_servers": 30})
    with pytest.raises(ConnectTimeout):
        cloud.connection.compute.get("/servers/detail", timeout=0.2)
    assert cloud.connection.list_flavors()


def test_all_clients_see_the_same_settings(cloud: SimulatedCloud) -> None:
    client = SimulatorClient(cloud.simulator.url)
    client.change(boot_seconds=[1, 3], quota={"cores": 7})
    assert (client.knobs()["boot_seconds"], client.knobs()["quota"]["cores"]) == ([1, 3], 7)
    with pytest.raises(ValueError, match=r"unknown settings: boot_secs; there are: .*boot_seconds"):
        client.change(boot_secs=1)
    with pytest.raises(ValueError, match="kind 'explode'"):
        client.change(errors=[{"kind": "explode"}])
    with pytest.raises(ValueError, match="kind must be one of server"):
        client.add("host")


def test_peaks_and_doubles(cloud: SimulatedCloud) -> None:
    meta = {"nodepool_node_id": "0000000001", "nodepool_provider_name": "one"}
    first, second = cloud.create(meta=meta), cloud.create(meta=meta)
    cloud.delete(first.id)
    cloud.delete(second.id)
    state = SimulatorClient(cloud.simulator.url).reset_counters()
    assert (state["peak_servers"], state["peak_by_provider"], state["double_nodes"]) == (2, {"one": 2}, ["0000000001"])
    state = cloud.simulator.state()
    assert (state["peak_servers"], state["double_nodes"], state["calls"]) == (0, [], {})


def test_as_a_process(tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    command = [sys.executable, "-m", "simulators.openstack", "--clouds-yaml", str(file), "--cloud", "mine"]
    command += ["--seed", "3", "--knobs", json.dumps({"boot_seconds": [0, 0]})]
    process = ChildProcess(command, tmp_path / "log", cwd=Path(__file__).parents[2])
    process.start()
    try:
        url = wait_for("it says where it is", lambda: process.log_text().rpartition("\n")[0])
        assert f"auth_url: {url}/identity" in file.read_text(encoding="utf-8")
        assert SimulatorClient(url).knobs()["boot_seconds"] == [0, 0]
    finally:
        process.stop()
    assert process.returncode == 0
    assert process.log_text().splitlines() == [url]


def test_knobs_of_the_beginning(tmp_path: Path) -> None:
    knobs = Knobs(availability_zones=["az1", "az2"], regions=["one", "two"])
    with OpenStackSimulator(knobs) as simulator, connected(simulator, tmp_path, region_name="two") as connection:
        assert connection.list_availability_zone_names() == ["az1", "az2"]
        server = SimulatedCloud(simulator, connection).create(availability_zone="az2")
        assert connection.compute.get_server(server.id).availability_zone == "az2"
