# SPDX-License-Identifier: Apache-2.0
"""The official client uses the simulator as a cluster, and meets the faults that it can have; it may be a process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.base.client import AdminClient
from simulators.kubernetes import KubernetesSettings, KubernetesSimulator
from tests.support.kubernetes_api_contract import KubernetesApiContract
from tests.support.kubernetes_client import KubernetesClient, refusal
from tests.support.kubernetes_contract import Place
from tests.support.kubernetes_rights_contract import KubernetesRightsContract
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

MAPS = "/api/v1/namespaces/default/configmaps"
PROJECTS = "/apis/project.openshift.io/v1/projects"


@pytest.fixture
def simulator() -> Iterator[KubernetesSimulator]:
    settings = KubernetesSettings(openshift=True, project_access_seconds=(0.0, 0.0))
    with KubernetesSimulator(settings) as running:
        yield running
        assert running.application.bugs == []


class TestKubernetesSimulator(KubernetesApiContract, KubernetesRightsContract):
    """It says what the real one says."""

    @pytest.fixture
    def place(self, simulator: KubernetesSimulator, tmp_path: Path) -> Place:
        def expire() -> None:
            with simulator.cloud() as cluster:
                cluster.store.forget()

        return Place(simulator.write_kubeconfig(tmp_path / "kubeconfig"), expire)


@pytest.fixture
def cluster(simulator: KubernetesSimulator, tmp_path: Path) -> Iterator[KubernetesClient]:
    client = KubernetesClient.of_context(simulator.write_kubeconfig(tmp_path / "kubeconfig"))
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
        found = refusal(lambda: client.add_pod("space", "two"))
        assert found is not None
        assert "exceeded quota: quota, requested: pods=1, used: pods=1, limited: pods=1" in found.message
        token = admin.call("POST", "new-token", {"user": "admin"})["token"]
        assert refusal(client.core.list_namespace) is not None
        fresh = client.with_token(token)
        assert refusal(fresh.core.list_namespace) is None
        fresh.close()
        client.close()
    finally:
        process.stop()
