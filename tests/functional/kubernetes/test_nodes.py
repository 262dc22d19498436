# SPDX-License-Identifier: Apache-2.0
"""The Zuul client gets nodes from a real control plane, uses them and gives them back (KU, OS)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional.kubernetes.provider import KubeProvider, pod_label
from tests.support.kubernetes_rig import KubernetesRig
from tests.support.wait import wait_for
from tests.support.workplace import Workplace
from tests.support.zuul_client import ZuulClient
from tests.support.zuul_fixtures import zuul, zuul_log

__all__ = ["zuul", "zuul_log"]

#: How long a request, and the end of all nodes, may take, in seconds.
SERVED_SECONDS = 120.0


@pytest.fixture(autouse=True)
def kubeconfig(rig: KubernetesRig, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The launchers find the cluster. They run until nothing is left: who deletes it if they do not?"""
    assert not workplace.launchers
    monkeypatch.setenv("KUBECONFIG", str(rig.kubeconfig))
    yield
    wait_for("nothing is left in the cluster", lambda: not ours(rig), SERVED_SECONDS)


def ours(rig: KubernetesRig) -> list[str]:
    """Namespaces that a launcher made."""
    answer = rig.call("GET", "/api/v1/namespaces?labelSelector=nodepool_provider_name")
    return [item["metadata"]["name"] for item in answer["items"]]


def nodes_of(zuul: ZuulClient, labels: list[str]) -> list[Any]:
    """Nodes of a request that must be fulfilled; they are used and given back."""
    completed = zuul.wait(zuul.submit(labels), SERVED_SECONDS)
    assert completed.state == "fulfilled", f"request {completed.id} is {completed.state}"
    nodeset = zuul.accept(completed)
    zuul.use(nodeset)
    nodes = list(nodeset.getNodes())
    zuul.give_back(nodeset)
    return nodes


def test_pod(rig: KubernetesRig, workplace: Workplace, zuul: ZuulClient) -> None:
    """KU-2, KU-8, KU-9: a pod in a namespace of its own; Zuul knows how to reach it."""
    workplace.launch([KubeProvider("kubernetes", [pod_label()], "admin")])
    (node,) = nodes_of(zuul, ["pod"])
    assert node.connection_type == "kubectl"
    assert node.interface_ip == "pod"
    assert node.cloud == "admin"
    assert node.connection_port["pod"] == "pod"
    assert node.connection_port["user"] == "zuul-worker"
    assert node.connection_port["namespace"] == f"main-{node.id}"
    assert node.connection_port["token"]


def test_namespace(rig: KubernetesRig, workplace: Workplace, zuul: ZuulClient) -> None:
    """KU-9: a namespace without a pod has no address, and needs none."""
    workplace.launch([KubeProvider("kubernetes", [{"name": "room", "type": "namespace"}], "admin")])
    (node,) = nodes_of(zuul, ["room"])
    assert node.connection_type == "namespace"
    assert node.interface_ip is None
    assert node.connection_port["name"] == node.connection_port["namespace"] == f"main-{node.id}"


def test_project(rig: KubernetesRig, workplace: Workplace, zuul: ZuulClient) -> None:
    """OS-1 to OS-4: a user that may only ask for projects gets nodes; tokens are made explicitly."""
    labels = [pod_label(), {"name": "room", "type": "project"}]
    workplace.launch([KubeProvider("openshift", labels, "developer", pool="os")])
    (node,) = nodes_of(zuul, ["pod"])
    assert node.connection_type == "kubectl"
    assert node.connection_port["namespace"] == f"os-{node.id}"
    assert "name" not in node.connection_port
    assert node.connection_port["token"]
    (room,) = nodes_of(zuul, ["room"])
    assert room.connection_type == "project"
    assert room.interface_ip is None


def test_pod_in_project(rig: KubernetesRig, workplace: Workplace, zuul: ZuulClient) -> None:
    """OS-6: pods in a project that is there; the project stays."""
    rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": "shared"}})
    label = {"name": "pod", "image": "docker.io/debian:12"}
    workplace.launch([KubeProvider("openshiftpods", [label], "admin", pool="shared")])
    (node,) = nodes_of(zuul, ["pod"])
    assert node.interface_ip == node.connection_port["pod"] == f"pod-{node.id}"
    assert node.connection_port["namespace"] == "shared"

    def gone() -> bool:
        return not rig.call("GET", "/api/v1/namespaces/shared/pods")["items"]

    wait_for("the pod is gone", gone, SERVED_SECONDS)
    rig.call("DELETE", "/api/v1/namespaces/shared")


@pytest.mark.parametrize(
    ("outcome", "words"), [("image-pull-error", "ErrImagePull"), ("failed", "ended with exit code")]
)
def test_pod_that_cannot_run(
    rig: KubernetesRig, workplace: Workplace, zuul: ZuulClient, outcome: str, words: str
) -> None:
    """KU-10: a pod that fails ends its launch at once; one whose image cannot be pulled says so, and is waited for."""
    label = pod_label(annotations={"kubernetes-rig/outcome": outcome})
    provider = KubeProvider("kubernetes", [label], "admin")
    provider.section.update({"launch-timeout": 15, "launch-retries": 1})
    launcher = workplace.launch([provider])
    completed = zuul.wait(zuul.submit(["pod"]), SERVED_SECONDS)
    assert completed.state == "failed"
    assert words in launcher.log_text()
