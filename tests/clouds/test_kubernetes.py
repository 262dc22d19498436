# SPDX-License-Identifier: Apache-2.0
"""What only clusters have: namespaces and projects, tokens and roles, pods that cannot come up, quotas of projects."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from simulators.kubernetes.kinds import ACCOUNTS, BINDINGS, NAMESPACES, PODS, ROLES, SECRETS
from tests.clouds.site import Site
from tests.support.clouds import Kubernetes
from tests.support.kubernetes_client import KubernetesClient, refusal
from tests.support.kubernetes_place import PROJECT, SimulatedCluster

Json = dict[str, Any]

kubernetes = pytest.mark.parametrize("site", ["kubernetes"], indirect=True)
with_namespaces = pytest.mark.parametrize("site", ["kubernetes", "openshift"], indirect=True)
every_driver = pytest.mark.parametrize("site", ["kubernetes", "openshift", "openshiftpods"], indirect=True)

#: What is made once a node, by driver. The first object in a project may be refused until our rights have come.
MADE = {
    "kubernetes": ("namespaces", "secrets", "rolebindings", "pods"),
    "openshift": ("projectrequests", "secrets", "rolebindings", "pods"),
    "openshiftpods": ("pods",),
}
#: What is deleted; all else goes with it.
DELETED = {"kubernetes": "namespaces", "openshift": "projects", "openshiftpods": "pods"}
#: What is not called for a node that is watched.
NEVER = ("namespaces.get", "pods.get", "secrets.get", "serviceaccounts.create", "roles.create")


def cluster_of(site: Site) -> SimulatedCluster:
    return SimulatedCluster(site.cloud.simulator)


@contextmanager
def client_of(site: Site, node: Json) -> Iterator[KubernetesClient]:
    """What Zuul can do with what the node's record says."""
    assert isinstance(site.cloud, Kubernetes)
    own = KubernetesClient.of_context(site.cloud.directory / "kubeconfig")
    client = own.with_token(node["connection_port"]["token"])
    own.close()
    try:
        yield client
    finally:
        client.close()


def refused(call: Callable[[], object]) -> bool:
    found = refusal(call)
    return found is not None and found.status == 403


@every_driver
def test_pods(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """L, KU-5, KU-8, OS-6: made, used, deleted; each node has its own pod; few calls a node."""
    driver, cluster = site.cloud.name, cluster_of(site)
    with site.served(8) as found:
        nodes = dict(found)
        assert len({node["external_id"] for node in nodes.values()}) == 8
        for name, node in nodes.items():
            port = node["connection_port"]
            namespace = PROJECT if driver == "openshiftpods" else f"main-{name}"
            (pod,) = [pod for pod in cluster.objects(PODS, namespace) if pod["metadata"]["name"] == port["pod"]]
            assert pod["status"]["phase"] == "Running"
            assert pod["spec"]["restartPolicy"] == "Never"
            assert (port["namespace"], port["host"]) == (namespace, cluster.simulator.url)
            assert (node["connection_type"], node["interface_ip"]) == ("kubectl", port["pod"])
            assert node["cloud"] == site.section["context"]
            # KU-9: the username of a record that has none.
            assert (node["python_path"], node["shell_type"], node["username"]) == ("auto", None, "zuul")
            assert node["resources"] == {"instances": 1, "cores": 1, "ram": 64}
            labels = pod["metadata"]["labels"]
            assert (labels["nodepool_node_id"], labels["nodepool_node_label"]) == (name, "small")
            assert (labels["nodepool_provider_name"], labels["nodepool_pool_name"]) == ("cloud-a", site.pool["name"])
            assert port["token"] not in caplog.text
    assert {kind: cluster.calls(f"{kind}.create") for kind in MADE[driver]} == dict.fromkeys(MADE[driver], 8)
    # One that shows no effect for seconds is sent again.
    assert cluster.calls(f"{DELETED[driver]}.delete") <= 16
    if driver != "openshift":
        # Who may only ask for projects may watch nothing in the whole cluster: how often it looks depends on the clock.
        assert {call: cluster.calls(call) for call in NEVER} == dict.fromkeys(NEVER, 0)
    if driver == "kubernetes":
        assert cluster.calls("clusterroles.create") == 1, "made once, for all nodes"


@with_namespaces
def test_namespaces(site: Site) -> None:
    """KU-2, KU-3, KU-8, OS-2, OS-3: an empty namespace, and a token that can work in it, and nowhere else."""
    with site.served(label="space") as ((name, node),):
        assert node["connection_type"] == ("namespace" if site.cloud.name == "kubernetes" else "project")
        namespace = node["connection_port"]["namespace"]
        assert namespace == f"main-{name}" == node["external_id"]
        assert cluster_of(site).objects(PODS, namespace) == []
        assert base64.b64decode(node["connection_port"]["ca_crt"]).startswith(b"-----BEGIN CERTIFICATE-----")
        with client_of(site, node) as worker:
            worker.core.create_namespaced_config_map(namespace, {"metadata": {"name": "of-a-job"}})
            assert worker.core.list_namespaced_pod(namespace).items == []
            assert refused(lambda: worker.core.list_namespaced_pod(PROJECT))


@kubernetes
@pytest.mark.parametrize("shared", [False, True], ids=["own-role", "shared-roles"])
def test_token_of_a_pod(site: Site, shared: bool) -> None:
    """KU-3: the pod can be read, also its log; it cannot be deleted, and no other can be made."""
    cluster = cluster_of(site)
    site.section["shared-roles"] = shared
    with site.served() as ((_, node),):
        namespace, pod = node["connection_port"]["namespace"], node["connection_port"]["pod"]
        with client_of(site, node) as worker:
            assert worker.pod(namespace, pod).status.phase == "Running"
            assert "log of" in worker.core.read_namespaced_pod_log(pod, namespace)
            assert refused(lambda: worker.core.delete_namespaced_pod(pod, namespace))
            assert refused(lambda: worker.add_pod(namespace, "other"))
            assert refused(lambda: worker.core.list_namespaced_secret(namespace))
        assert [role["metadata"]["name"] for role in cluster.objects(ROLES, namespace)] == (
            [] if shared else ["zuul-restricted"]
        )
        accounts = {account["metadata"]["name"] for account in cluster.objects(ACCOUNTS, namespace)}
        assert accounts == ({"default"} if shared else {"default", "zuul-worker"})
        assert [binding["metadata"]["name"] for binding in cluster.objects(BINDINGS, namespace)] == ["zuul-role"]


@kubernetes
def test_labels(site: Site) -> None:
    """KU-7: on namespace and pod; what a request says is mangled where Kubernetes would refuse it."""
    site.label.update(
        {
            "labels": {"a": "1", "nodepool_node_id": "forged"},
            "dynamic-labels": {"tenant": "{request.tenant_name}", "event": "no: {request.event_id}"},
            "annotations": {"note": "free text"},
        }
    )
    with site.served() as ((name, _),):
        (pod,) = cluster_of(site).objects(PODS, f"main-{name}")
        spaces = cluster_of(site).objects(NAMESPACES)
        for thing in (pod, *[one for one in spaces if one["metadata"]["name"] == f"main-{name}"]):
            labels = thing["metadata"]["labels"]
            assert (labels["a"], labels["nodepool_node_id"], labels["tenant"]) == ("1", name, "tenant")
        assert pod["metadata"]["annotations"]["note"] == "free text"


@kubernetes
def test_token_secrets_that_come_by_themselves(site: Site) -> None:
    """A cluster before Kubernetes 1.24: pods wait for the token of their account."""
    site.cloud.change(token_secrets_by_itself=True, token_seconds=[0.1, 0.3])
    site.launch()
    requests = [site.submit(label=label) for label in ("space", "small")]
    for name in site.fulfilled(*requests):
        secrets = [one["metadata"]["name"] for one in cluster_of(site).objects(SECRETS, f"main-{name}")]
        assert "zuul-worker" in secrets
    site.give_back(*requests)
    site.wait_empty()


@kubernetes
@pytest.mark.parametrize("shared", [False, True], ids=["own-role", "shared-roles"])
def test_slow_tokens_and_accounts(site: Site, shared: bool) -> None:
    """The controllers take their time: a pod is refused until its namespace has an account (KU-2)."""
    site.cloud.change(token_seconds=[1, 2], account_seconds=[1, 2])
    site.section["shared-roles"] = shared
    site.launch()
    requests = [site.submit() for _ in range(3)]
    assert all(node["connection_port"]["token"] for node in site.fulfilled(*requests).values())
    site.give_back(*requests)
    site.wait_empty()


@every_driver
@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("image-pull-error", "ImagePull"),
        ("config-error", "CreateContainerConfigError"),
        ("invalid-image", "InvalidImageName"),
        ("failed", "Failed"),
    ],
)
def test_pod_that_cannot_come_up(site: Site, caplog: pytest.LogCaptureFixture, outcome: str, reason: str) -> None:
    """Its reason is in the log, and it is not waited for; what was made goes."""
    # For so long a container says why its image cannot be pulled, and after it only that it waits.
    site.cloud.change(pods=[{"outcome": outcome}], backoff_seconds=[30.0, 30.0])
    site.section["launch-retries"] = 2
    site.launch()
    site.failed(site.submit())
    assert reason in caplog.text
    assert "launch-timeout" not in caplog.text
    site.wait_empty(hurry=0.5)


@kubernetes
def test_pod_that_fits_nowhere(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """The scheduler's words are in the log, and the pod runs when there is room."""
    caplog.set_level("INFO")
    site.label["node-selector"] = {"kind": "fast"}
    site.launch()
    request = site.submit()
    text = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    site.wait("the log has it", lambda: text in caplog.text)
    with site.cloud.simulator.cloud() as cluster:
        cluster.add_node("node-2", labels={"kind": "fast"})
    site.fulfilled(request)
    site.give_back(request)
    site.wait_empty()


@pytest.mark.parametrize("site", ["openshiftpods"], indirect=True)
def test_quota_of_a_project(site: Site) -> None:
    """403 "exceeded quota" is no failure: requests wait, say for what, and all are served."""
    site.section["launch-retries"] = 1
    with site.cloud.simulator.cloud() as cluster:
        cluster.add_quota(PROJECT, pods="2")
    site.launch()
    first = [site.submit() for _ in range(2)]
    site.fulfilled(*first)
    third = site.submit()
    site.wait("it is explained", lambda: "quota" in site.command("explain", third))
    site.give_back(*first)
    site.serve_all([third, site.submit()])
    site.wait_empty()


@pytest.mark.parametrize("site", ["openshift"], indirect=True)
def test_limit_of_projects(site: Site) -> None:
    """OS-5: a node over the limit of projects is not a failed attempt; what is made fits."""
    site.section["launch-retries"] = 1
    site.cloud.change(project_limit=2)
    site.pool["max-servers"] = 2
    site.run(4)
