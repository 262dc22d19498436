# SPDX-License-Identifier: Apache-2.0
"""The official client meets the faults that the simulated cluster can have, and the simulator as a process."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from urllib3.exceptions import HTTPError

from simulators.base.client import AdminClient
from simulators.kubernetes import KubernetesSettings, KubernetesSimulator
from tests.support.kubernetes_client import KubernetesClient, pod_body, refusal
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def simulator() -> Iterator[KubernetesSimulator]:
    with KubernetesSimulator() as running:
        yield running
        assert running.application.bugs == []


@pytest.fixture
def cluster(simulator: KubernetesSimulator, tmp_path: Path) -> Iterator[KubernetesClient]:
    client = KubernetesClient.of_context(simulator.write_kubeconfig(tmp_path / "kubeconfig"))
    yield client
    client.close()


def _pods(simulator: KubernetesSimulator) -> int:
    with simulator.cloud() as cloud:
        return cloud.contents()["pods"]


@pytest.mark.parametrize(("status", "reason"), [("429", "TooManyRequests"), ("500", "InternalError"), ("503", "Serv")])
def test_errors_by_status(simulator: KubernetesSimulator, cluster: KubernetesClient, status: str, reason: str) -> None:
    simulator.change(errors=[{"operation": "pods.create", "kind": status, "count": 1}])
    found = refusal(lambda: cluster.call("POST", "/api/v1/namespaces/default/pods", body=pod_body("pod")))
    assert found is not None
    assert found.status == int(status)
    assert found.reason.startswith(reason)
    assert _pods(simulator) == 0
    cluster.add_pod("default")
    assert simulator.application.calls["pods.create"] == 2


def test_an_answer_is_lost(simulator: KubernetesSimulator, cluster: KubernetesClient) -> None:
    """The call has its effect, and the client does not know."""
    simulator.change(errors=[{"operation": "pods.create", "kind": "drop", "after": True, "count": 1}])
    with pytest.raises(HTTPError):
        cluster.call("POST", "/api/v1/namespaces/default/pods", body=pod_body("pod"))
    assert _pods(simulator) == 1
    found = refusal(lambda: cluster.add_pod("default"))
    assert found is not None
    assert found.reason == "AlreadyExists"


def _list_version(cluster: KubernetesClient) -> str:
    version: str = cluster.call("GET", MAPS)["metadata"]["resourceVersion"]
    return version


@pytest.mark.parametrize("kind", ["cut", "garbage"])
def test_a_watch_breaks(simulator: KubernetesSimulator, cluster: KubernetesClient, kind: str) -> None:
    simulator.change(watches=[{"kind": kind, "count": 1}])
    with pytest.raises((HTTPError, json.JSONDecodeError)):
        list(cluster.watch_lines(MAPS, resourceVersion=_list_version(cluster)))
    cluster.call("POST", MAPS, body={"metadata": {"name": "map"}})
    (event,) = itertools.islice(cluster.watch_lines(MAPS, fieldSelector="metadata.name=map"), 1)
    assert event["type"] == "ADDED"


def test_a_watch_ends_early(simulator: KubernetesSimulator, cluster: KubernetesClient) -> None:
    simulator.change(watches=[{"kind": "end", "resource": "config*"}])
    assert list(cluster.watch_lines(MAPS, resourceVersion=_list_version(cluster))) == []


def test_a_watch_expires(simulator: KubernetesSimulator, cluster: KubernetesClient) -> None:
    simulator.change(watches=[{"kind": "expired"}])
    (event,) = cluster.watch_lines(MAPS, resourceVersion=_list_version(cluster))
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_a_watch_says_nothing(simulator: KubernetesSimulator, cluster: KubernetesClient) -> None:
    """As behind a router that forgot the connection."""
    simulator.change(watches=[{"kind": "silent"}])
    version = _list_version(cluster)
    cluster.call("POST", MAPS, body={"metadata": {"name": "map"}})
    # The client's own patience ends; the event was there before it began.
    with pytest.raises(HTTPError):
        next(cluster.watch_lines(MAPS, patience_seconds=1.0, resourceVersion=version))


def test_history_is_short(simulator: KubernetesSimulator, cluster: KubernetesClient) -> None:
    simulator.change(history=2)
    version = _list_version(cluster)
    for number in range(3):
        cluster.call("POST", MAPS, body={"metadata": {"name": f"map-{number}"}})
    (event,) = cluster.watch_lines(MAPS, resourceVersion=version)
    assert event["object"]["code"] == 410


def test_all_watches_can_be_cut(simulator: KubernetesSimulator, cluster: KubernetesClient) -> None:
    lines = cluster.watch_lines(MAPS, fieldSelector="metadata.name=kube-root-ca.crt")
    assert next(lines)["type"] == "ADDED"
    with simulator.cloud() as cloud:
        assert len(cloud.watches) == 1
        cloud.cut_watches()
    with pytest.raises(HTTPError):
        list(lines)
    wait_for("the watch is over", lambda: not simulator.application.cluster.watches)


def test_pods_of_nodes_in_a_namespace_of_others_are_counted(
    simulator: KubernetesSimulator, cluster: KubernetesClient
) -> None:
    """As in OpenShift, where a project that was asked for has no labels."""

    def counted() -> tuple[int, list[str]]:
        with simulator.cloud() as cloud:
            return cloud.places.observer.machines, cloud.places.observer.double_nodes

    labels = {"nodepool_node_id": "0000000001", "nodepool_provider_name": "cluster"}
    cluster.add_pod("default", "first", labels=labels)
    assert counted() == (1, [])
    cluster.add_pod("default", "second", labels=labels)
    assert counted() == (2, ["0000000001"])
    for name in ("first", "second"):
        cluster.call("DELETE", f"/api/v1/namespaces/default/pods/{name}")
    wait_for("both are deleted", lambda: counted()[0] == 0)


def test_a_project_limit(tmp_path: Path) -> None:
    with KubernetesSimulator(KubernetesSettings(openshift=True, project_limit=1)) as simulator:
        client = KubernetesClient.of_context(simulator.write_kubeconfig(tmp_path / "kubeconfig"), "developer")
        path = "/apis/project.openshift.io/v1/projectrequests"
        client.call("POST", path, body={"metadata": {"name": "one"}})
        found = refusal(lambda: client.call("POST", path, body={"metadata": {"name": "two"}}))
        assert found is not None
        assert (found.status, found.reason) == (403, "Forbidden")
        assert found.message.endswith("user developer cannot create more than 1 project(s).")
        client.close()


def test_projects_can_be_watched(tmp_path: Path) -> None:
    """Which the real control plane of the tests cannot."""
    settings = KubernetesSettings(openshift=True, project_access_seconds=(0.0, 0.0))
    with KubernetesSimulator(settings) as simulator:
        client = KubernetesClient.of_context(simulator.write_kubeconfig(tmp_path / "kubeconfig"))
        projects = "/apis/project.openshift.io/v1/projects"
        version = client.call("GET", projects)["metadata"]["resourceVersion"]
        client.call("POST", "/apis/project.openshift.io/v1/projectrequests", body={"metadata": {"name": "one"}})
        client.call("DELETE", f"{projects}/one")
        events = []
        for event in client.watch_lines(projects, resourceVersion=version):
            events.append((event["type"], event["object"]["kind"], event["object"]["status"]["phase"]))
            if event["type"] == "DELETED":
                break
        assert events[0] == ("ADDED", "Project", "Active")
        assert ("MODIFIED", "Project", "Terminating") in events
        client.close()


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
        admin.change(pods=[{"outcome": "failed"}])
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
