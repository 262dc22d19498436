# SPDX-License-Identifier: Apache-2.0
"""Zuul uses pods, namespaces and projects: what its executor reads of a node, and what it does with it (5.5, KU-8)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from simulators.kubernetes.kinds import PODS
from tests.support.kubernetes_client import KubernetesClient, refusal
from tests.support.kubernetes_place import PROJECT, PodPlace, SimulatedCluster, every_driver

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient

#: What Zuul's executor reads of ``connection_port``.
READ = {"namespace", "host", "skiptls", "token", "user"}


def _used(zuul: ZuulClient, label: str, *more: str) -> tuple[Any, list[Any]]:
    request = zuul.submit_and_wait([label, *more])
    assert request.state == "fulfilled"
    nodeset = zuul.accept(request)
    zuul.use(nodeset)
    return nodeset, list(nodeset.getNodes())


@every_driver
def test_a_job_in_a_pod(place: PodPlace, cluster: SimulatedCluster, zuul: ZuulClient, driver: str) -> None:
    """Its executor finds the pod by what the node says, and gives it back."""
    place.launch()
    nodeset, (node,) = _used(zuul, "pod")
    port = node.connection_port
    assert READ | {"pod"} <= set(port)
    assert node.connection_type == "kubectl"
    assert port["user"] == "zuul-worker"
    names = [pod["metadata"]["name"] for pod in cluster.objects(PODS, port["namespace"])]
    assert names == [port["pod"]] == [node.interface_ip]
    assert (port["namespace"] == PROJECT) == (driver == "openshiftpods")
    assert node.host_keys == []
    zuul.give_back(nodeset)
    place.wait_empty()


@pytest.mark.parametrize("driver", ["kubernetes", "openshift"], indirect=True)
def test_a_job_in_a_namespace(
    place: PodPlace, cluster: SimulatedCluster, zuul: ZuulClient, kubeconfig: Path, driver: str
) -> None:
    """The job makes pods of its own with the token that Zuul hands out; they go with the namespace."""
    place.launch()
    nodeset, (node,) = _used(zuul, "space")
    port = node.connection_port
    assert port.keys() >= READ
    assert node.connection_type == ("namespace" if driver == "kubernetes" else "project")
    assert node.interface_ip is None
    own = KubernetesClient.of_context(kubeconfig)
    worker = own.with_token(port["token"])
    own.close()
    try:
        worker.add_pod(port["namespace"], "of-a-job")
        worker.running(port["namespace"], "of-a-job")
        assert refusal(worker.core.list_namespace) is not None
    finally:
        worker.close()
    zuul.give_back(nodeset)
    place.wait_empty()
    assert cluster.objects(PODS) == []


@every_driver
def test_two_pods_of_one_request(place: PodPlace, zuul: ZuulClient, driver: str) -> None:
    place.launch()
    nodeset, nodes = _used(zuul, "pod", "pod")
    ports = {(node.connection_port["namespace"], node.connection_port["pod"]) for node in nodes}
    assert len(ports) == 2
    zuul.give_back(nodeset)
    place.wait_empty()


def test_an_autohold_keeps_the_pod(place: PodPlace, cluster: SimulatedCluster, zuul: ZuulClient) -> None:
    place.launch()
    nodeset, (node,) = _used(zuul, "pod")
    hold = zuul.hold(nodeset)
    other, _nodes = _used(zuul, "pod")
    zuul.give_back(other)
    names = [pod["metadata"]["namespace"] for pod in cluster.objects(PODS)]
    assert node.connection_port["namespace"] in names
    zuul.delete_hold(hold)
    place.wait_empty()
