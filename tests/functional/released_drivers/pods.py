# SPDX-License-Identifier: Apache-2.0
"""The three drivers that make pods, on a real control plane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import pytest

from tests.functional.released_drivers.cloud import NO_SWEEP, Cloud
from tests.support.kubernetes_rig import NoRig

NAMESPACES = "/api/v1/namespaces"


class Kubernetes(Cloud):
    """A namespace and a pod for each node."""

    driver: ClassVar[str] = "kubernetes"
    kind: ClassVar[str] = "Kubernetes control plane"

    @property
    def pool(self) -> str:
        """Namespaces have the name of a pool and the id of a node; the control plane serves all rows."""
        return f"pool-{self.driver}"

    def section(self) -> dict[str, Any]:
        label = {"name": self.label, "type": "pod", "image": "docker.io/debian", "cpu": 2, "memory": 512}
        dynamic = {"dynamic-labels": {"tenant": "{request.tenant_name}"}}
        pool = {"name": self.pool, "max-servers": 5, "labels": [{**label, **dynamic}]}
        return {"context": "admin", "pools": [pool]}

    def start(self) -> None:
        rig = self.surroundings.rig
        try:
            rig.start()
        except NoRig as missing:
            pytest.skip(str(missing))
        self.environment["KUBECONFIG"] = str(rig.kubeconfig)

    def machines(self) -> set[str]:
        return set(self._things())

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert node["connection_type"] == "kubectl"
        assert node["cloud"] == "admin"
        assert node["resources"] == {"instances": 1, "cores": 2, "ram": 512}
        assert node["connection_port"]["pod"] == node["interface_ip"]
        (pod,) = self._pods(node["connection_port"]["namespace"])
        labels = pod["metadata"]["labels"]
        assert (labels["tenant"], labels["nodepool_provider_name"]) == ("tenant", self.provider)
        assert pod["status"]["phase"] == "Running"

    def _pods(self, namespace: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.surroundings.rig.call("GET", f"{NAMESPACES}/{namespace}/pods")["items"]
        return found

    def _things(self) -> Iterable[str]:
        """Node of each namespace of ours."""
        for item in self.surroundings.rig.call("GET", NAMESPACES)["items"]:
            pool, _, node_id = item["metadata"]["name"].rpartition("-")
            if pool == self.pool:
                yield node_id


class OpenShift(Kubernetes):
    """A project and a pod for each node."""

    driver: ClassVar[str] = "openshift"
    kind: ClassVar[str] = "Kubernetes control plane with OpenShift's projects"
    no_sweep: ClassVar[str] = NO_SWEEP


class OpenShiftPods(Kubernetes):
    """A pod in an existing project for each node."""

    driver: ClassVar[str] = "openshiftpods"
    kind: ClassVar[str] = OpenShift.kind
    no_sweep: ClassVar[str] = NO_SWEEP

    def section(self) -> dict[str, Any]:
        section = super().section()
        del section["pools"][0]["labels"][0]["type"]
        return section

    def start(self) -> None:
        super().start()
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.pool}}
        self.surroundings.rig.call("POST", NAMESPACES, body)

    def _things(self) -> Iterable[str]:
        """Node of each pod of ours."""
        return [pod["metadata"]["labels"]["nodepool_node_id"] for pod in self._pods(self.pool)]
