# SPDX-License-Identifier: Apache-2.0
"""The same world with Kubernetes as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.chaos import providers
from tests.chaos.kubernetes_cloud import ClusterCloud
from tests.chaos.links import Links
from tests.chaos.providers import static_provider
from tests.chaos.world import PROVIDER, World, own_label
from tests.support.kubernetes_place import PodProvider
from tests.support.launcher_config import Provider

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
        return [PodProvider(main), PodProvider(others), static_provider(self.sshd.port, self.sshd.host_keys)]

    def _main_provider(self, number: int, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.world.CloudProvider`; what must wait for its turn goes together."""
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
        """As `tests.chaos.providers.RichProvider`: empty namespaces, and pods whose rights are in shared roles."""
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
