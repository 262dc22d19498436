# SPDX-License-Identifier: Apache-2.0
"""Nodes of the drivers of Kubernetes and OpenShift in a running launcher: what they are made of (KU, OS)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from nodepool.testing.kubernetes import KubernetesSimulator
from nodepool.testing.kubernetes.kinds import ACCOUNTS, BINDINGS, NAMESPACES, PODS, ROLES, SECRETS
from tests.support.kubernetes_client import KubernetesClient, refusal
from tests.support.kubernetes_place import PROJECT, PodPlace, SimulatedCluster, every_driver


def _token_client(kubeconfig: Path, node: dict[str, Any]) -> KubernetesClient:
    """What Zuul can do with what the node's record says."""
    own = KubernetesClient.of_context(kubeconfig)
    client = own.with_token(node["connection_port"]["token"])
    own.close()
    return client


#: What is made once a node, by driver. The first object in a project may be refused until our rights have come.
MADE = {
    "kubernetes": ("namespaces", "secrets", "rolebindings", "pods"),
    "openshift": ("projectrequests", "secrets", "rolebindings", "pods"),
    "openshiftpods": ("pods",),
}
#: What is deleted; all else goes with it.
DELETED = {"kubernetes": "namespaces", "openshift": "projects", "openshiftpods": "pods"}
#: What is not called for a node of which watches tell.
NEVER = ("namespaces.get", "pods.get", "secrets.get", "serviceaccounts.create", "roles.create")


@every_driver
@pytest.mark.parametrize("count", [1, 20])
def test_pods(place: PodPlace, cluster: SimulatedCluster, driver: str, count: int) -> None:
    """L, KU-5, KU-8, OS-6: made, used, deleted; each node has its own pod; few calls a node."""
    place.launch()
    requests = [place.submit() for _ in range(count)]
    nodes = [place.fulfilled(request) for request in requests]
    assert len({node["external_id"] for node in nodes}) == count
    for node in nodes:
        port = node["connection_port"]
        namespace = PROJECT if driver == "openshiftpods" else f"main-{node['id']}"
        (pod,) = [pod for pod in cluster.objects(PODS, namespace) if pod["metadata"]["name"] == port["pod"]]
        assert pod["status"]["phase"] == "Running"
        assert (port["namespace"], port["host"]) == (namespace, cluster.simulator.url)
        assert (node["connection_type"], node["interface_ip"]) == ("kubectl", port["pod"])
        assert node["cloud"] == place.provider.section["context"]
        # KU-9: the username of a record that has none.
        assert (node["python_path"], node["shell_type"], node["username"]) == ("auto", None, "zuul")
        assert node["resources"] == {"instances": 1, "cores": 1, "ram": 64}
        labels = pod["metadata"]["labels"]
        assert labels["nodepool_node_id"] == node["id"]
        assert (labels["nodepool_provider_name"], labels["nodepool_pool_name"]) == (
            "cluster-a",
            place.provider.pool["name"],
        )
        assert labels["nodepool_node_label"] == "pod"
        token = port["token"]
        assert token not in place.log()
    place.give_back(*requests)
    place.wait_empty()
    assert {kind: cluster.calls(f"{kind}.create") for kind in MADE[driver]} == dict.fromkeys(MADE[driver], count)
    # One that shows no effect for seconds is sent again.
    assert cluster.calls(f"{DELETED[driver]}.delete") <= 2 * count
    if driver != "openshift":
        # Who may only ask for projects may watch nothing in the whole cluster: how often it looks depends on the clock.
        assert {call: cluster.calls(call) for call in NEVER} == dict.fromkeys(NEVER, 0)
    if driver == "kubernetes":
        # Made once, for all nodes.
        assert cluster.calls("clusterroles.create") == 1


@pytest.mark.parametrize("driver", ["kubernetes", "openshift"], indirect=True)
def test_namespaces(place: PodPlace, cluster: SimulatedCluster, kubeconfig: Path, driver: str) -> None:
    """KU-2, KU-3, KU-8, OS-2, OS-3: an empty namespace, and a token that can work in it, and nowhere else."""
    place.launch()
    request = place.submit("space")
    node = place.fulfilled(request)
    assert node["connection_type"] == ("namespace" if driver == "kubernetes" else "project")
    namespace = node["connection_port"]["namespace"]
    assert namespace == f"main-{node['id']}" == node["external_id"]
    assert cluster.objects(PODS, namespace) == []
    assert base64.b64decode(node["connection_port"]["ca_crt"]).startswith(b"-----BEGIN CERTIFICATE-----")
    worker = _token_client(kubeconfig, node)
    try:
        worker.core.create_namespaced_config_map(namespace, {"metadata": {"name": "of-a-job"}})
        assert worker.core.list_namespaced_pod(namespace).items == []
        found = refusal(lambda: worker.core.list_namespaced_pod(PROJECT))
        assert found is not None
        assert found.status == 403
    finally:
        worker.close()
    place.give_back(request)
    place.wait_empty()


@pytest.mark.parametrize("shared", [False, True])
def test_the_token_of_a_pod_can_use_the_pod(
    place: PodPlace, cluster: SimulatedCluster, kubeconfig: Path, shared: bool
) -> None:
    """KU-3: the pod can be read, also its log; it cannot be deleted, and no other can be made."""
    place.provider.section["shared-roles"] = shared
    place.launch()
    request = place.submit()
    node = place.fulfilled(request)
    namespace, pod = node["connection_port"]["namespace"], node["connection_port"]["pod"]
    worker = _token_client(kubeconfig, node)
    try:
        assert worker.pod(namespace, pod).status.phase == "Running"
        assert "log of" in worker.core.read_namespaced_pod_log(pod, namespace)
        for call in (
            lambda: worker.core.delete_namespaced_pod(pod, namespace),
            lambda: worker.add_pod(namespace, "other"),
            lambda: worker.core.list_namespaced_secret(namespace),
        ):
            found = refusal(call)
            assert found is not None
            assert found.status == 403
    finally:
        worker.close()
    roles = [role["metadata"]["name"] for role in cluster.objects(ROLES, namespace)]
    assert roles == ([] if shared else ["zuul-restricted"])
    accounts = {account["metadata"]["name"] for account in cluster.objects(ACCOUNTS, namespace)}
    assert accounts == ({"default"} if shared else {"default", "zuul-worker"})
    assert [binding["metadata"]["name"] for binding in cluster.objects(BINDINGS, namespace)] == ["zuul-role"]
    place.give_back(request)
    place.wait_empty()


def test_label_and_dynamic_labels(place: PodPlace, cluster: SimulatedCluster) -> None:
    """KU-7: on namespace and pod; what a request says is mangled where Kubernetes would refuse it."""
    place.provider.label.update(
        {
            "labels": {"a": "1", "nodepool_node_id": "forged"},
            "dynamic-labels": {"tenant": "{request.tenant_name}", "event": "no: {request.event_id}"},
            "annotations": {"note": "free text"},
        }
    )
    place.launch()
    request = place.submit()
    node = place.fulfilled(request)
    (pod,) = cluster.objects(PODS, f"main-{node['id']}")
    (namespace,) = [one for one in cluster.objects(NAMESPACES) if one["metadata"]["name"] == f"main-{node['id']}"]
    for thing in (pod, namespace):
        labels = thing["metadata"]["labels"]
        assert (labels["a"], labels["nodepool_node_id"], labels["tenant"]) == ("1", node["id"], "tenant")
    assert pod["metadata"]["annotations"]["note"] == "free text"
    place.give_back(request)
    place.wait_empty()


def test_a_container_that_ends_is_not_started_again(place: PodPlace, cluster: SimulatedCluster) -> None:
    """KU-4: restartPolicy is where it has an effect."""
    place.launch()
    request = place.submit()
    place.fulfilled(request)
    (pod,) = cluster.objects(PODS)
    assert pod["spec"]["restartPolicy"] == "Never"
    place.give_back(request)
    place.wait_empty()


def test_token_secrets_that_come_by_themselves_do_not_disturb(
    place: PodPlace, simulator: KubernetesSimulator, cluster: SimulatedCluster
) -> None:
    """A cluster before Kubernetes 1.24: pods wait for the token of their account."""
    simulator.change(token_secrets_by_itself=True, token_seconds=(0.1, 0.3))
    place.launch()
    requests = [place.submit("space"), place.submit("pod")]
    for request in requests:
        node = place.fulfilled(request)
        secrets = [secret["metadata"]["name"] for secret in cluster.objects(SECRETS, f"main-{node['id']}")]
        assert "zuul-worker" in secrets
    place.give_back(*requests)
    place.wait_empty()


@pytest.mark.parametrize("shared", [False, True])
def test_slow_tokens_and_accounts(place: PodPlace, simulator: KubernetesSimulator, shared: bool) -> None:
    """The controllers take their time: a pod is refused until its namespace has an account (KU-2)."""
    simulator.change(token_seconds=(1, 2), account_seconds=(1, 2))
    place.provider.section["shared-roles"] = shared
    place.launch()
    requests = [place.submit() for _ in range(3)]
    for request in requests:
        assert place.fulfilled(request)["connection_port"]["token"]
    place.give_back(*requests)
    place.wait_empty()
