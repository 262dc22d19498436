# SPDX-License-Identifier: Apache-2.0
"""The drivers of Kubernetes and OpenShift keep the contract, in the simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.kubernetes import KubernetesDriver
from nodepool.driver.openshift import OpenShiftDriver
from nodepool.driver.openshift import cloud as projects
from nodepool.driver.openshiftpods import OpenShiftPodsDriver
from nodepool.testing.contract import DriverContract
from nodepool.testing.kubernetes import KubernetesSettings, KubernetesSimulator
from tests.support.kubernetes_place import PROJECT, SimulatedCluster, provider_section
from tests.support.wait import wait_for


class PodContract(DriverContract):
    """What the three have in common: two pools, an empty cluster for each test."""

    driver_name = "kubernetes"
    context = "admin"
    label = "pod"
    unknown_external_id = "main-0000000099"

    def provider_section(self) -> dict[str, Any]:
        section = provider_section(self.driver_name, self.context, "somewhere")
        other = {"name": "other", "image": "docker.io/debian:12", "cpu": 1}
        if self.driver_name != "openshiftpods":
            other["type"] = "pod"
        section["pools"].append({"name": "other", "max-servers": 5, "labels": [other]})
        return section

    @pytest.fixture(autouse=True)
    def _cluster(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A cluster of its own for each test, which must be empty at the end."""
        # So long rights in a project that nobody saw yet are waited for.
        monkeypatch.setattr(projects, "RIGHTS_SECONDS", 0.3)
        with KubernetesSimulator(KubernetesSettings(openshift=self.driver_name != "kubernetes")) as simulator:
            if self.driver_name == "openshiftpods":
                with simulator.cloud() as cluster:
                    cluster.add_namespace(PROJECT)
            monkeypatch.setenv("KUBECONFIG", str(simulator.write_kubeconfig(tmp_path / "kubeconfig")))
            yield
            # What was ordered takes a moment: nobody waits for the deletion of what was leaked.
            wait_for("nothing is left behind", lambda: not SimulatedCluster(simulator).names())
            assert simulator.application.bugs == []


class TestKubernetes(PodContract):
    """Nodes are pods."""

    def make_driver(self) -> KubernetesDriver:
        return KubernetesDriver()


class TestKubernetesNamespaces(TestKubernetes):
    """Nodes are namespaces."""

    label = "space"


class TestOpenshift(PodContract):
    """Nodes are pods in projects, which somebody makes who may do no more than that."""

    driver_name = "openshift"
    context = "developer"

    def make_driver(self) -> OpenShiftDriver:
        return OpenShiftDriver()


class TestOpenshiftProjects(TestOpenshift):
    """Nodes are projects."""

    label = "space"


class TestOpenshiftPods(PodContract):
    """Nodes are pods in a project that is there."""

    driver_name = "openshiftpods"
    unknown_external_id = f"{PROJECT}-pod-0000000099"

    def make_driver(self) -> OpenShiftPodsDriver:
        return OpenShiftPodsDriver()
