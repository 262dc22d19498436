# SPDX-License-Identifier: Apache-2.0
"""The same world with Kubernetes as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from simulators.base.observer import NODE_KEY
from simulators.openstack import SimulatorClient
from tests.chaos import providers
from tests.chaos.links import Links
from tests.chaos.providers import static_provider
from tests.chaos.world import PROVIDER, World, own_label
from tests.support.launcher_config import Provider
from tests.support.section_provider import SectionProvider

#: Cores and MiB of memory of a node.
SMALL, MEDIUM = (1, 1024), (2, 4096)


class KubernetesWorld(World):
    """See `World`."""

    def simulator_command(self) -> list[str]:
        settings = (
            '{"start_seconds": [0.3, 1.5], "stop_seconds": [0.05, 0.2], "namespace_seconds": [0.1, 0.5], '
            '"latency_seconds": [0.0, 0.05]}'
        )
        options = ["--kubeconfig", str(self._kubeconfig), "--seed", str(self.seed), "--knobs", settings]
        return [sys.executable, "-m", "simulators.kubernetes", *options]

    @property
    def _kubeconfig(self) -> Path:
        """What the simulator writes."""
        return self.directory / "kubeconfig"

    def make_cloud(self, url: str) -> ClusterCloud:
        return ClusterCloud(url)

    def launcher_environment(self, number: int) -> dict[str, str]:
        return {"KUBECONFIG": str(self.directory / f"kubeconfig{number}")}

    def write_cloud_file(self, number: int, links: Links) -> None:
        config = json.loads(self._kubeconfig.read_text(encoding="utf-8"))
        for entry in config["clusters"]:
            entry["cluster"]["server"] = links.cloud_url
        file = self.directory / f"kubeconfig{number}"
        file.touch(mode=0o600)
        file.write_text(json.dumps(config), encoding="utf-8")

    def providers_of(self, number: int, launch_timeout: int) -> list[Provider]:
        main = self._main_provider(number, launch_timeout)
        others = self._other_provider(launch_timeout)
        return [SectionProvider(main), SectionProvider(others), static_provider(self.sshd.port, self.sshd.host_keys)]

    def _main_provider(self, number: int, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.world.cloud_provider`; what must wait for its turn goes together."""
        tenant = {"tenant": "{request.tenant_name}"}
        labels = [
            _pod(label, MEDIUM if label == "medium" else SMALL, **{"dynamic-labels": tenant})
            for label in ("small", "medium", own_label(number))
        ]
        pool = {
            "name": "main",
            "max-servers": self.limits.servers,
            "max-cores": self.limits.cores,
            "max-ram": self.limits.ram,
        }
        return _section(PROVIDER, launch_timeout, [{**pool, "labels": labels}])

    def _other_provider(self, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.providers.rich_provider`: empty namespaces, and pods whose rights are in shared roles."""
        pools: list[dict[str, Any]] = [
            {"name": providers.VOLUME, "labels": [{"name": providers.VOLUME, "type": "namespace"}]},
            {"name": providers.FLOATING, "labels": [_pod(providers.FLOATING, SMALL)]},
        ]
        for pool in pools:
            pool["max-servers"] = providers.POOL_SERVERS
        return {**_section(providers.PROVIDER, launch_timeout, pools), "shared-roles": True}


def _pod(name: str, size: tuple[int, int], **more: Any) -> dict[str, Any]:
    cores, ram = size
    return {"name": name, "type": "pod", "image": "docker.io/debian:12", "cpu": cores, "memory": ram, **more}


def _section(name: str, launch_timeout: int, pools: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "driver": "kubernetes",
        "context": "admin",
        "launch-timeout": launch_timeout,
        "launch-retries": 3,
        "pools": pools,
    }


class ClusterCloud(SimulatorClient):
    """Servers are namespaces of nodes. There are no ports, floating IPs or volumes."""

    def state(self) -> dict[str, Any]:
        state = super().state()
        places = state["contents"]["node_places"]
        contents = {"servers": places, "ports": places, "floating_ips": 0, "volumes": 0}
        return {**state, "contents": contents, "peak_servers": state["peak_node_places"]}

    def servers(self) -> list[dict[str, Any]]:
        found = [content["metadata"] for content in self.call("GET", "namespaces")["namespaces"]]
        return [
            {"id": metadata["name"], "metadata": labels}
            for metadata in found
            if NODE_KEY in (labels := metadata.get("labels") or {})
        ]

    def vanish(self, server_id: str) -> None:
        self.call("POST", "end-namespace", {"namespace": server_id})

    def change(self, **changes: Any) -> None:
        """As the faults name them."""
        super().change(**translated(changes))


def translated(changes: dict[str, Any]) -> dict[str, Any]:
    """Settings of the simulated OpenStack as those of the cluster. What there is not in a cluster is left out."""
    found: dict[str, Any] = {}
    if "errors" in changes:
        found["errors"] = [_error(rule) for rule in changes["errors"]]
    if "boots" in changes:
        found["pods"] = [_pod_rule(rule) for rule in changes["boots"]]
    if "hidden_rate" in changes:
        # What is not told for a while: watches that break, and that expire.
        rate = changes["hidden_rate"] / 2
        kinds = ("cut", "expired") if rate else ()
        found["watches"] = [{"kind": kind, "rate": rate, "after_seconds": 1.0} for kind in kinds]
    return found


def _error(rule: dict[str, Any]) -> dict[str, Any]:
    operations = {"compute.create_server": "*.create", "compute.*": "*"}
    return {**rule, "operation": operations.get(rule["operation"], rule["operation"])}


def _pod_rule(rule: dict[str, Any]) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "error": {"outcome": "failed"},
        "no-valid-host": {"outcome": "config-error"},
        "stuck": {"outcome": "pending", "stuck": True},
    }
    return {"rate": rule["rate"], **kinds[rule["kind"]]}
