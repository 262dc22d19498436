# SPDX-License-Identifier: Apache-2.0
"""Launcher processes with a provider of Kubernetes or OpenShift, and the cluster that they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest

from simulators.kubernetes import KubernetesSimulator
from simulators.kubernetes.kinds import PODS
from tests.support.command_line import CommandLine
from tests.support.launcher import LauncherProcess
from tests.support.pool_znodes import PoolZnodes
from tests.support.section_provider import SectionProvider
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.support.workplace import Workplace

#: Sweeps of the launchers under test: two sightings, without the minute between them.
SWEEPS = {
    "nodepool.launcher.deletion.SWEEP_SECONDS": 2.0,
    "nodepool.driver.statemachine.leaks.LOOK_AGAIN_SECONDS": 0.5,
}
#: A project that is there, for nodes that are pods in it.
PROJECT = "shared"
#: Driver -> context of the simulator's kubeconfig. Who makes projects may do no more than that.
DRIVERS = {"kubernetes": "admin", "openshift": "developer", "openshiftpods": "admin"}
every_driver = pytest.mark.parametrize("driver", DRIVERS, indirect=True)


class Cluster(Protocol):
    """Where nodes are."""

    def names(self) -> Sequence[str]:
        """Namespaces that were not there at the beginning; a pod in `PROJECT` is ``shared/<pod>``."""


def provider_section(driver: str, context: str = "admin", name: str = "cluster-a") -> dict[str, Any]:
    """A provider with the labels ``pod`` and, where the driver has them, ``space`` (a namespace or a project)."""
    pod: dict[str, Any] = {"name": "pod", "image": "docker.io/debian:12", "cpu": 1, "memory": 64}
    labels = [pod]
    if driver != "openshiftpods":
        pod["type"] = "pod"
        labels.append({"name": "space", "type": "namespace" if driver == "kubernetes" else "project"})
    pool = {"name": PROJECT if driver == "openshiftpods" else "main", "max-servers": 50, "labels": labels}
    return {"name": name, "driver": driver, "context": context, "pools": [pool]}


class PodPlace:
    """One cluster, one chroot, launchers. :param seconds: how long anything may take."""

    def __init__(
        self, workplace: Workplace, cluster: Cluster, provider: SectionProvider, seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._seconds = seconds
        self.workplace = workplace
        self.cluster = cluster
        self.provider = provider

    @property
    def znodes(self) -> PoolZnodes:
        return self.workplace.znodes

    @property
    def launcher(self) -> LauncherProcess:
        """The latest one."""
        return self.workplace.launchers[-1]

    @property
    def nodepool(self) -> CommandLine:
        """The command line with the latest launcher's configuration."""
        return CommandLine(self.launcher.config_path)

    def launch(self, **options: Any) -> LauncherProcess:
        """Starts a launcher; options as `Workplace.launch`."""
        return self.workplace.launch([self.provider], **options)

    def submit(self, label: str = "pod") -> str:
        return self.znodes.submit([label])

    def fulfilled(self, request: str) -> dict[str, Any]:
        """Waits for a request for one node; returns the node, with its ``id``."""

        def over() -> bool:
            state = self.znodes.request_state(request)
            if state == "failed" or not self.launcher.running:
                raise RuntimeError(f"the request is {state}:\n{self.log()[-6000:]}")
            assert state == "fulfilled", f"it is {state}"
            return True

        wait_for(f"{request} is fulfilled", over, self._seconds)
        (node_id,) = (self.znodes.request(request) or {})["nodes"]
        return {"id": node_id, **(self.znodes.node(node_id) or {})}

    def failed(self, request: str) -> None:
        """Waits until a request has failed."""
        wait_for(f"{request} fails", lambda: self.znodes.request_state(request) == "failed", self._seconds)

    def give_back(self, *requests: str) -> None:
        """What a client does when its job is over."""
        for request in requests:
            self.znodes.use_and_return(request)

    def explained(self, request: str, text: str) -> None:
        """Waits until ``nodepool explain`` has this text."""

        def told() -> bool:
            found = self.nodepool("explain", request)
            assert text in found.out, f"it says: {found.out}{found.err}"
            return True

        wait_for(f"explain says {text!r}", told)

    def log(self) -> str:
        """What the latest launcher wrote."""
        return self.launcher.log_text()

    def logged(self, text: str) -> None:
        """Waits until the latest launcher has written this."""
        wait_for(f"the launcher says {text!r}", lambda: text in self.log(), self._seconds)

    def wait_empty(self, look: Callable[[], Sequence[str]] | None = None) -> None:
        """Waits until nothing is left in ZooKeeper or in the cluster.

        :param look: what there is in the cluster; None = all of the test's.
        """

        def empty() -> bool:
            assert not self.znodes.nodes(), f"left in ZooKeeper: {self.znodes.nodes()}"
            left = (look or self.cluster.names)()
            assert not left, f"left in the cluster: {left}"
            return True

        wait_for("nothing is left", empty, self._seconds)


class SimulatedCluster:
    """What is in the simulator."""

    def __init__(self, simulator: KubernetesSimulator) -> None:
        self.simulator = simulator

    def names(self) -> list[str]:
        with self.simulator.cloud() as cluster:
            spaces = [name for name in cluster.namespaces() if name != PROJECT]
            pods = [pod["metadata"]["name"] for pod in cluster.store.all(PODS, PROJECT)]
            return spaces + [f"{PROJECT}/{name}" for name in pods]

    def calls(self, *operations: str) -> int:
        """How often these were called."""
        with self.simulator.cloud():
            return sum(self.simulator.application.calls[operation] for operation in operations)

    def objects(self, kind: Any, namespace: str = "") -> list[dict[str, Any]]:
        """Objects of this kind as they are."""
        with self.simulator.cloud() as cluster:
            return list(cluster.store.all(kind, namespace))
