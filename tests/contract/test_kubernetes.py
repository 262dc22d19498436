# SPDX-License-Identifier: Apache-2.0
"""The drivers of Kubernetes and OpenShift keep the contract, in the simulated cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.interface import Provider
from nodepool.driver.kubernetes import KubernetesDriver
from nodepool.driver.kubernetes.client import KubeClient
from nodepool.driver.openshift import OpenShiftDriver
from nodepool.driver.openshift import adapter as projects
from nodepool.driver.openshiftpods import OpenShiftPodsDriver
from nodepool.testing.contract import DriverContract
from nodepool.testing.pool_worker import PoolWorkerStandIn
from simulators.kubernetes import KubernetesSettings, KubernetesSimulator
from tests.support.kubernetes_place import PROJECT, SimulatedCluster, provider_section
from tests.support.lost_machine_contract import LostMachineContract
from tests.support.wait import wait_for

#: Longer than a launch may take, and not so long that it counts as given up because its machine was not advanced.
PUT_OFF_SECONDS = 20
LAUNCH_SECONDS = 12


class LeapingClock:
    """Leaps to the time for which a call waits for its turn. Else it goes as ever."""

    def __init__(self) -> None:
        self._plain = time.monotonic
        self._lock = threading.Lock()
        self._ahead = 0.0

    def __call__(self) -> float:
        return self._plain() + self._ahead

    def sleep(self, seconds: float) -> None:
        until = self() + seconds
        with self._lock:
            self._ahead += max(0.0, until - self())


class PodContract(LostMachineContract, DriverContract):
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
            self.simulator = simulator
            yield
            # What was ordered takes a moment: nobody waits for the deletion of what was leaked.
            wait_for("nothing is left behind", lambda: not SimulatedCluster(simulator).names())
            assert simulator.application.bugs == []

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> LeapingClock:
        made = LeapingClock()
        monkeypatch.setattr(time, "monotonic", made)
        # Before the client is made.
        monkeypatch.setattr(KubeClient, "_sleep", made.sleep)
        return made

    def test_put_off_by_the_cluster(
        self, clock: LeapingClock, provider_config: Any, provider: Provider, worker: PoolWorkerStandIn
    ) -> None:
        """CM-5, L-5: the API puts calls off for longer than a launch may take. No launch and no deletion fails by that,
        and nothing is left.
        """
        provider_config.launch_timeout, provider_config.launch_retries = LAUNCH_SECONDS, 1
        # So that only calls of this launch, and of this deletion, wait for their turn: only their time leaps.
        self.release(worker, provider, self.get_node(worker, provider))
        begun = clock()
        self.put_off("create")
        node = self.get_node(worker, provider)
        assert clock() - begun > PUT_OFF_SECONDS > LAUNCH_SECONDS
        begun = clock()
        self.put_off("delete")
        self.release(worker, provider, node)
        assert clock() - begun > PUT_OFF_SECONDS

    def put_off(self, verb: str) -> None:
        """The next calls of a kind."""
        rule = {"operation": f"*.{verb}", "kind": "429", "count": 1, "retry_after": PUT_OFF_SECONDS}
        self.simulator.change(errors=[rule])


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
