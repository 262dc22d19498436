# SPDX-License-Identifier: Apache-2.0
"""`ClusterCloud`: the simulated cluster, steered and seen as the chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from typing import Any

from simulators.base.observer import NODE_KEY
from simulators.kubernetes import KubernetesSimulatorClient
from simulators.openstack import SimulatorClient


class ClusterCloud(SimulatorClient):
    """Servers are namespaces of nodes. There are no ports, floating IPs or volumes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._cluster = KubernetesSimulatorClient(url)

    def state(self) -> dict[str, Any]:
        state = self._cluster.state()
        places = state["contents"]["node_places"]
        contents = {"servers": places, "ports": places, "floating_ips": 0, "volumes": 0}
        return {**state, "contents": contents, "peak_servers": state["peak_node_places"]}

    def servers(self) -> list[dict[str, Any]]:
        found = [content["metadata"] for content in self._cluster.namespaces()]
        return [
            {"id": metadata["name"], "metadata": labels}
            for metadata in found
            if NODE_KEY in (labels := metadata.get("labels") or {})
        ]

    def vanish(self, server_id: str) -> None:
        self._cluster.end_namespace(server_id)

    def release_stuck(self) -> None:
        self._cluster.release_stuck()

    def change(self, **changes: Any) -> None:
        """As the faults name them."""
        self._cluster.change(**translated(changes))


def translated(changes: dict[str, Any]) -> dict[str, Any]:
    """Settings of the simulated OpenStack as those of the cluster. What there is not in a cluster is left out."""
    found: dict[str, Any] = {}
    if "errors" in changes:
        found["errors"] = [_error(rule) for rule in changes["errors"]]
    if "boots" in changes:
        found["pods"] = [_pod(rule) for rule in changes["boots"]]
    if "hidden_rate" in changes:
        # What is not told for a while: watches that break, and that expire.
        rate = changes["hidden_rate"] / 2
        kinds = ("cut", "expired") if rate else ()
        found["watches"] = [{"kind": kind, "rate": rate, "after_seconds": 1.0} for kind in kinds]
    return found


def _error(rule: dict[str, Any]) -> dict[str, Any]:
    operations = {"compute.create_server": "*.create", "compute.*": "*"}
    return {**rule, "operation": operations.get(rule["operation"], rule["operation"])}


def _pod(rule: dict[str, Any]) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "error": {"outcome": "failed"},
        "no-valid-host": {"outcome": "config-error"},
        "stuck": {"outcome": "pending", "stuck": True},
    }
    return {"rate": rule["rate"], **kinds[rule["kind"]]}
