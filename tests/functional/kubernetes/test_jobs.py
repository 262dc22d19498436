# SPDX-License-Identifier: Apache-2.0
"""A launcher and Zuul's client on a real control plane: nodes, rights, an API server that is killed (KU)."""

from __future__ import annotations

import base64
import json
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.documented_rights import documented_role
from tests.support.kubernetes_client import KubernetesClient, refusal
from tests.support.kubernetes_place import PodPlace, provider_section
from tests.support.kubernetes_rig import KubernetesRig
from tests.support.launcher import impatient_command
from tests.support.section_provider import SectionProvider
from tests.support.wait import wait_for
from tests.support.workplace import Workplace
from tests.support.zuul_client import ZuulClient
from tests.support.zuul_fixtures import zuul, zuul_log

RBAC = "/apis/rbac.authorization.k8s.io/v1"
#: A user of the rig's kubeconfig who may do nothing until a test says so.
NOBODY = "nobody"


class RigCluster:
    """Namespaces of one pool. :param pool: its name, which no other test has."""

    def __init__(self, rig: KubernetesRig, pool: str) -> None:
        self.rig = rig
        self.pool = pool

    def names(self) -> list[str]:
        items = self.rig.call("GET", "/api/v1/namespaces")["items"]
        names = [item["metadata"]["name"] for item in items]
        return [name for name in names if name.startswith(f"{self.pool}-")]

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.rig.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def allow(self, user: str, cluster_role: Mapping[str, Any]) -> None:
        """Gives a user a cluster role, everywhere."""
        name = cluster_role["metadata"]["name"]
        self.rig.call("POST", f"{RBAC}/clusterroles", cluster_role)
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        self.rig.call("POST", f"{RBAC}/clusterrolebindings", body)

    def forbid(self, cluster_role: Mapping[str, Any]) -> None:
        """Takes it back."""
        name = cluster_role["metadata"]["name"]
        for kind in ("clusterrolebindings", "clusterroles"):
            self.rig.call("DELETE", f"{RBAC}/{kind}/{name}")


def copy_of_kubeconfig(rig: KubernetesRig, directory: Path, *users: str) -> Path:
    """A kubeconfig like the rig's, with copies of the certificates that it names, which a test may change."""
    content = json.loads(rig.kubeconfig.read_text(encoding="utf-8"))
    content["users"] = [entry for entry in content["users"] if not users or entry["name"] in users]
    for entry in content["users"]:
        for key in ("client-certificate", "client-key"):
            copy = directory / Path(entry["user"][key]).name
            shutil.copy(entry["user"][key], copy)
            entry["user"][key] = str(copy)
    for entry in content["clusters"]:
        copy = directory / "ca.crt"
        shutil.copy(entry["cluster"]["certificate-authority"], copy)
        entry["cluster"]["certificate-authority"] = str(copy)
    file = directory / "kubeconfig"
    file.write_text(json.dumps(content), encoding="utf-8")
    file.chmod(0o600)
    return file


__all__ = ["zuul", "zuul_log"]

#: The rig shares its processors with the tests; namespaces end slowly there.
SECONDS = 300.0


@pytest.fixture
def cluster(rig: KubernetesRig, request: pytest.FixtureRequest) -> RigCluster:
    """Each test has a pool of its own: namespaces of an earlier one may still be going."""
    name = request.node.name.removeprefix("test_").partition("[")[0].replace("_", "-")
    return RigCluster(rig, name[:40])


@pytest.fixture
def kubeconfig(rig: KubernetesRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = copy_of_kubeconfig(rig, tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(file))
    return file


@pytest.fixture
def place(workplace: Workplace, cluster: RigCluster, kubeconfig: Path) -> PodPlace:
    assert kubeconfig.exists()
    provider = SectionProvider(provider_section("kubernetes", name=cluster.pool))
    provider.pool["name"] = cluster.pool
    return PodPlace(workplace, cluster, provider, SECONDS)


@pytest.fixture
def workers() -> Iterator[list[KubernetesClient]]:
    """Clients that a test has made; they are closed."""
    made: list[KubernetesClient] = []
    yield made
    for worker in made:
        worker.close()


def worker_of(node: Any, rig: KubernetesRig, directory: Path) -> KubernetesClient:
    """A client with what Zuul's executor knows of a node, and nothing else."""
    from kubernetes import client

    configuration = client.Configuration()
    configuration.host = node.connection_port["host"]
    authority = directory / "handed-out.crt"
    authority.write_bytes(base64.b64decode(node.connection_port["ca_crt"]))
    configuration.ssl_ca_cert = str(authority)
    configuration.api_key = {"authorization": f"Bearer {node.connection_port['token']}"}
    return KubernetesClient(client.ApiClient(configuration))


def test_pod_of_a_job(
    place: PodPlace, zuul: ZuulClient, rig: KubernetesRig, tmp_path: Path, workers: list[KubernetesClient]
) -> None:
    """KU-2, KU-3, KU-8, KU-9, 5.5: what Zuul got works; what the role does not allow is refused by the API server."""
    place.launch()
    request = zuul.wait(zuul.submit(["pod"]), SECONDS)
    assert request.state == "fulfilled"
    nodeset = zuul.accept(request)
    zuul.use(nodeset)
    (node,) = nodeset.getNodes()
    assert (node.connection_type, node.python_path, node.cloud) == ("kubectl", "auto", "admin")
    namespace, name = node.connection_port["namespace"], node.connection_port["pod"]
    assert (namespace, name, node.interface_ip) == (f"{place.provider.pool['name']}-{node.id}", "pod", "pod")
    assert node.connection_port["user"] == "zuul-worker"
    worker = worker_of(node, rig, tmp_path)
    workers.append(worker)
    pod = worker.pod(namespace, name)
    assert (pod.status.phase, pod.spec.restart_policy) == ("Running", "Never")
    assert [item.metadata.name for item in worker.core.list_namespaced_pod(namespace).items] == [name]
    for call in (
        lambda: worker.core.delete_namespaced_pod(name, namespace),
        lambda: worker.add_pod(namespace, "other"),
        lambda: worker.core.list_namespaced_secret(namespace),
        lambda: worker.core.list_namespaced_pod("default"),
        worker.core.list_namespace,
    ):
        found = refusal(call)
        assert found is not None
        assert (found.status, found.reason) == (403, "Forbidden")
    # The fake kubelet has no logs: the right is there, the log is not.
    found = refusal(lambda: worker.core.read_namespaced_pod_log(name, namespace))
    assert found is None or found.status != 403
    zuul.give_back(nodeset)
    place.wait_empty()
    dead = refusal(lambda: worker.pod(namespace, name))
    assert dead is not None
    assert dead.status == 401


def test_namespace_of_a_job(
    place: PodPlace, zuul: ZuulClient, rig: KubernetesRig, tmp_path: Path, workers: list[KubernetesClient]
) -> None:
    """KU-3, KU-9: a job can work in its namespace, and nowhere else. It has no address, and needs none."""
    place.launch()
    request = zuul.wait(zuul.submit(["space"]), SECONDS)
    nodeset = zuul.accept(request)
    zuul.use(nodeset)
    (node,) = nodeset.getNodes()
    assert (node.connection_type, node.interface_ip) == ("namespace", None)
    namespace = node.connection_port["namespace"]
    assert node.connection_port["name"] == namespace
    worker = worker_of(node, rig, tmp_path)
    workers.append(worker)
    worker.add_pod(namespace, "of-a-job")
    worker.running(namespace, "of-a-job")
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    assert worker.call("GET", deployments)["items"] == []
    for call in (lambda: worker.core.list_namespaced_pod("default"), worker.core.list_namespace):
        found = refusal(call)
        assert found is not None
        assert found.status == 403
    zuul.give_back(nodeset)
    place.wait_empty()


@pytest.mark.parametrize("shared", [False, True])
def test_least_rights(place: PodPlace, cluster: RigCluster, shared: bool) -> None:
    """The role of the documentation is enough, also for the keys that need others; else the log would say so."""
    role = documented_role(shared_roles=shared, cluster_room=True)
    place.provider.section.update({"context": NOBODY, "cluster-room": True})
    if not shared:
        place.provider.section["shared-roles"] = False
    cluster.allow(NOBODY, role)
    try:
        place.launch()
        requests = [place.submit("pod"), place.submit("space")]
        for request in requests:
            assert place.fulfilled(request)["connection_port"]["token"]
        place.give_back(*requests)
        place.wait_empty()
        assert "forbidden" not in place.log()
    finally:
        cluster.forbid(role)


def test_least_rights_of_pods_in_a_project(place: PodPlace, cluster: RigCluster, rig: KubernetesRig) -> None:
    """OS-6: the role ``edit`` in the project is enough for openshiftpods."""
    project = cluster.pool
    rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": project}})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NOBODY}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    binding = {"metadata": {"name": NOBODY}, "roleRef": reference, "subjects": [subject]}
    rig.call("POST", f"{RBAC}/namespaces/{project}/rolebindings", binding)
    quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "1"}}}
    rig.call("POST", f"/api/v1/namespaces/{project}/resourcequotas", quota)
    place.provider.section.update({"driver": "openshiftpods", "context": NOBODY})
    place.provider.pool["labels"] = [{"name": "pod", "image": "docker.io/debian:12"}]
    try:
        place.launch()
        for _ in range(2):
            request = place.submit()
            node = place.fulfilled(request)
            assert node["external_id"].startswith(f"{project}-pod-")
            assert node["interface_ip"] == node["connection_port"]["pod"] == f"pod-{node['id']}"
            assert node["connection_port"]["namespace"] == project
            place.give_back(request)
            place.wait_empty(lambda: [pod["metadata"]["name"] for pod in cluster.pods(project)])
        assert "forbidden" not in place.log()
    finally:
        rig.call("DELETE", f"/api/v1/namespaces/{project}")


@pytest.mark.parametrize(
    ("outcome", "words"), [("image-pull-error", "ErrImagePull"), ("failed", "ended with exit code")]
)
def test_pod_that_cannot_run(place: PodPlace, outcome: str, words: str) -> None:
    """KU-10: a pod that fails ends its launch at once; one whose image cannot be pulled says so, and is waited for."""
    place.provider.label["annotations"] = {"kubernetes-rig/outcome": outcome}
    place.provider.section.update({"launch-timeout": 15, "launch-retries": 1})
    place.launch()
    place.failed(place.submit())
    assert words in place.log()
    place.wait_empty()


def test_projects(place: PodPlace) -> None:
    """OS-1 to OS-4: a user that may only ask for projects gets nodes; tokens are made explicitly."""
    pod, space = place.provider.pool["labels"]
    space["type"] = "project"
    place.provider.section.update({"driver": "openshift", "context": "developer"})
    place.launch()
    requests = [place.submit(label["name"]) for label in (pod, space)]
    node, room = (place.fulfilled(request) for request in requests)
    assert (node["connection_type"], room["connection_type"], room.get("interface_ip")) == ("kubectl", "project", None)
    assert node["connection_port"]["namespace"] == f"{place.provider.pool['name']}-{node['id']}"
    assert "name" not in node["connection_port"]
    assert node["connection_port"]["token"]
    place.give_back(*requests)
    place.wait_empty()


def test_api_server_killed(place: PodPlace, rig: KubernetesRig) -> None:
    """In mid-launch; its watch cache is gone with it: watches expire, and everything is served."""
    place.launch()
    requests = [place.submit() for _ in range(5)]
    wait_for("something is being made", place.cluster.names, SECONDS)
    rig.kill_api_server()
    rig.start_api_server()
    for request in requests:
        place.fulfilled(request)
    assert len(place.cluster.names()) == 5
    place.give_back(*requests)
    place.wait_empty()


def test_launcher_killed(place: PodPlace) -> None:
    """In mid-launch: the next one serves the requests, and nothing is left of what the first had begun."""
    first = place.launch(session_seconds=4.0)
    requests = [place.submit() for _ in range(5)]
    wait_for("something is being made", place.cluster.names, SECONDS)
    first.kill()
    assert first.returncode == -signal.SIGKILL
    place.launch(wait=False)
    for request in requests:
        place.fulfilled(request)
    place.give_back(*requests)
    place.wait_empty()


@pytest.mark.parametrize(
    ("files", "others", "said"),
    [
        (("admin.crt", "admin.key"), ("nobody.crt", "nobody.key"), "forbidden"),
        (("ca.crt",), ("etcd-ca.crt",), "certificate verify failed"),
    ],
    ids=["client", "authority"],
)
def test_certificates_change(
    place: PodPlace, rig: KubernetesRig, tmp_path: Path, files: list[str], others: list[str], said: str
) -> None:
    """Files that the kubeconfig names are exchanged, for wrong ones and back: no restart is needed."""
    place.launch(command=impatient_command({"nodepool.driver.kubernetes.connection.LOOK_SECONDS": 0.2}))
    first = place.submit()
    place.fulfilled(first)
    good = {name: (tmp_path / name).read_bytes() for name in files}
    for name, other in zip(files, others, strict=True):
        (tmp_path / name).write_bytes((rig.pki / other).read_bytes())
    refused = place.submit()
    place.logged(said)
    for name, content in good.items():
        (tmp_path / name).write_bytes(content)
    # What the launcher could not do meanwhile may have failed, or may have waited.
    ended = ("fulfilled", "failed")
    wait_for("the refused one is over", lambda: place.znodes.request_state(refused) in ended, SECONDS)
    second = place.submit()
    place.fulfilled(second)
    if place.znodes.request_state(refused) == "fulfilled":
        place.give_back(refused)
    place.give_back(first, second)
    place.wait_empty()


def test_quota(place: PodPlace, rig: KubernetesRig, cluster: RigCluster) -> None:
    """KU-13, OS-5: a ResourceQuota of the project is a limit: what does not fit waits, and is served in the end."""
    project = cluster.pool
    rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": project}})
    quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "2"}}}
    rig.call("POST", f"/api/v1/namespaces/{project}/resourcequotas", quota)
    section = place.provider.section
    section.update({"driver": "openshiftpods", "name": project})
    place.provider.pool["labels"] = [{"name": "pod", "image": "docker.io/debian:12"}]
    try:
        place.launch()
        waiting = [place.submit() for _ in range(4)]
        served: list[str] = []

        def serve() -> bool:
            states = {request: place.znodes.request_state(request) for request in waiting}
            assert "failed" not in states.values()
            assert len(cluster.pods(project)) <= 2
            for request in [request for request, state in states.items() if state == "fulfilled"]:
                place.give_back(request)
                waiting.remove(request)
                served.append(request)
            return not waiting

        wait_for("all are served", serve, SECONDS)
        place.wait_empty(lambda: [pod["metadata"]["name"] for pod in cluster.pods(project)])
        assert len(served) == 4
    finally:
        rig.call("DELETE", f"/api/v1/namespaces/{project}")


def test_shared_roles(
    place: PodPlace, zuul: ZuulClient, rig: KubernetesRig, cluster: RigCluster, tmp_path: Path, workers: Any
) -> None:
    """KU-2, KU-3: a cluster role that is bound in one namespace gives its rights there, and nowhere else."""
    place.launch()
    request = zuul.wait(zuul.submit(["pod"]), SECONDS)
    nodeset = zuul.accept(request)
    zuul.use(nodeset)
    (node,) = nodeset.getNodes()
    namespace = node.connection_port["namespace"]
    worker = worker_of(node, rig, tmp_path)
    workers.append(worker)
    assert [item.metadata.name for item in worker.core.list_namespaced_pod(namespace).items] == ["pod"]
    assert rig.call("GET", f"{RBAC}/namespaces/{namespace}/roles")["items"] == []
    accounts = rig.call("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts")["items"]
    assert [account["metadata"]["name"] for account in accounts] == ["default"]
    # The account has the rights of the job: the pod itself has no token of it.
    (pod,) = cluster.pods(namespace)
    assert not any("token" in volume["name"] for volume in pod["spec"].get("volumes") or [])
    for call in (lambda: worker.core.list_namespaced_pod("default"), lambda: worker.add_pod(namespace, "other")):
        found = refusal(call)
        assert found is not None
        assert found.status == 403
    zuul.give_back(nodeset)
    place.wait_empty()
