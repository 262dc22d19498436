# SPDX-License-Identifier: Apache-2.0
"""Official clients use the simulators as a cluster and as a cloud, and meet their faults; each may be a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openstack.config import OpenStackConfig
from openstack.connection import Connection
from openstack.exceptions import NotFoundException

from simulators.base.client import AdminClient
from simulators.kubernetes import KubernetesSettings, KubernetesSimulator
from simulators.openstack import CLOUD_NAME, OpenStackSimulator, SimulatorClient
from tests.support.kubernetes_api_contract import KubernetesApiContract
from tests.support.kubernetes_client import KubernetesClient, refusal
from tests.support.kubernetes_contract import Place
from tests.support.kubernetes_rights_contract import KubernetesRightsContract
from tests.support.process import ChildProcess
from tests.support.wait import present, wait_for

MAPS = "/api/v1/namespaces/default/configmaps"
PROJECTS = "/apis/project.openshift.io/v1/projects"


@pytest.fixture
def kubernetes() -> Iterator[KubernetesSimulator]:
    settings = KubernetesSettings(openshift=True, project_access_seconds=(0.0, 0.0))
    with KubernetesSimulator(settings) as running:
        yield running
        assert running.application.bugs == []


class TestKubernetesSimulator(KubernetesApiContract, KubernetesRightsContract):
    """It says what the real one says."""

    @pytest.fixture
    def place(self, kubernetes: KubernetesSimulator, tmp_path: Path) -> Place:
        def expire() -> None:
            with kubernetes.cloud() as cluster:
                cluster.store.forget()

        return Place(kubernetes.write_kubeconfig(tmp_path / "kubeconfig"), expire)


@pytest.fixture
def cluster(kubernetes: KubernetesSimulator, tmp_path: Path) -> Iterator[KubernetesClient]:
    client = KubernetesClient.of_context(kubernetes.write_kubeconfig(tmp_path / "kubeconfig"))
    yield client
    client.close()


def _version(cluster: KubernetesClient, path: str = MAPS) -> str:
    """Of a list: a watch may begin there."""
    version: str = cluster.call("GET", path)["metadata"]["resourceVersion"]
    return version


def test_projects_can_be_watched(cluster: KubernetesClient) -> None:
    """Which the real control plane of the tests cannot."""
    version = _version(cluster, PROJECTS)
    cluster.call("POST", "/apis/project.openshift.io/v1/projectrequests", body={"metadata": {"name": "one"}})
    cluster.call("DELETE", f"{PROJECTS}/one")
    events = []
    for event in cluster.watch_lines(PROJECTS, resourceVersion=version):
        events.append((event["type"], event["object"]["kind"], event["object"]["status"]["phase"]))
        if event["type"] == "DELETED":
            break
    assert events[0] == ("ADDED", "Project", "Active")
    assert ("MODIFIED", "Project", "Terminating") in events


def test_a_process_of_its_own(tmp_path: Path) -> None:
    """``python -m simulators.kubernetes``, steered through ``/admin``."""
    file = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "simulators.kubernetes", "--kubeconfig", str(file)]
    process = ChildProcess(
        [*command, "--knobs", '{"openshift": true}'], tmp_path / "simulator.log", cwd=Path(__file__).parents[2]
    )
    process.start()
    try:
        url = wait_for("it says its address", lambda: process.log_text().rpartition("\n")[0])
        admin = AdminClient(url)
        client = KubernetesClient.of_context(file)
        admin.call("POST", "add-namespace", {"name": "space"})
        client.add_pod("space")
        client.running("space")
        state = admin.state()
        assert (state["calls"]["pods.create"], state["contents"]["pods"], state["watches"]) == (1, 1, 0)
        assert len(admin.call("GET", "pods")["pods"]) == 1
        with pytest.raises(ValueError, match="one of running, succeeded"):
            admin.change(pods=[{"outcome": "odd"}])
        admin.call("POST", "add-quota", {"namespace": "space", "pods": "1"})
        found = present(refusal(lambda: client.add_pod("space", "two")))
        assert "exceeded quota: quota, requested: pods=1, used: pods=1, limited: pods=1" in found.message
        token = admin.call("POST", "new-token", {"user": "admin"})["token"]
        assert refusal(client.core.list_namespace) is not None
        fresh = client.with_token(token)
        assert refusal(fresh.core.list_namespace) is None
        fresh.close()
        client.close()
    finally:
        process.stop()


# -- openstacksdk uses the simulator as a cloud. Its faults, limits and leaks are what tests/clouds is about


@pytest.fixture
def connection(simulator: OpenStackSimulator, tmp_path: Path) -> Iterator[Any]:
    file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml", CLOUD_NAME)
    config = OpenStackConfig(config_files=[str(file)], secure_files=[], load_envvars=False)
    made = Connection(config=config.get_one(CLOUD_NAME))
    yield made
    made.close()
    # keystoneauth leaves the sessions' sockets to the garbage collector.
    made.session.session.close()


def test_life_of_a_server(simulator: OpenStackSimulator, connection: Any) -> None:
    """Its volume is deleted with it; limits count both, and lists of changes show what was deleted."""
    simulator.change(quota={"instances": 5, "cores": 6, "ram": 70000})
    settings: dict[str, Any] = {"key_name": "key", "userdata": "hello", "config_drive": True, "flavor": "large"}
    settings |= {"boot_from_volume": True, "volume_size": 7, "terminate_volume": True, "image": "cloud-image"}
    network = {"network": "provider", "auto_ip": False, "wait": False}
    key = connection.create_server("np1", meta={"nodepool_node_id": "1"}, **settings, **network).id

    def states(**arguments: Any) -> dict[str, str]:
        return {server.id: server.status for server in connection.compute.servers(**arguments)}

    wait_for("it is active", lambda: states().get(key) == "ACTIVE")
    server = connection.compute.get_server(key)
    assert server.metadata == {"nodepool_node_id": "1"}
    assert server.addresses["provider"][0]["addr"].startswith("127.")
    assert server.flavor["original_name"] == "large"
    assert "login:" in connection.get_server_console(server)
    assert [port.status for port in connection.network.ports(device_id=key)] == ["ACTIVE"]
    assert [(volume.size, volume.status) for volume in connection.list_volumes()] == [(7, "in-use")]
    assert connection.get_volume_limits().absolute["totalGigabytesUsed"] == 7
    limits = connection.get_compute_limits()
    assert (limits.instances, limits.total_cores, limits.total_ram) == (5, 6, 70000)
    assert (limits.instances_used, limits.total_cores_used, limits.total_ram_used) == (1, 4, 8192)
    connection.compute.delete_server(key)
    wait_for("it is deleted", lambda: not states())
    assert states(changes_since="2020-01-01T00:00:00Z") == {key: "DELETED"}
    with simulator.cloud() as cloud:
        assert cloud.contents() == {"servers": 0, "ports": 0, "floating_ips": 0, "volumes": 0, "images": 1}
    with pytest.raises(NotFoundException):
        connection.compute.delete_server(key, ignore_missing=False)


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
