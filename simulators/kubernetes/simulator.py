# SPDX-License-Identifier: Apache-2.0
"""`KubernetesSimulator`: the simulated cluster on a loopback port."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulators.base.simulator import Simulator
from simulators.kubernetes.application import ClusterApplication
from simulators.kubernetes.cluster import Cluster
from simulators.kubernetes.settings import KubernetesSettings

Json = dict[str, Any]


class KubernetesSimulator(Simulator[Cluster]):
    """A cluster with memory. Use it as a context manager, or call `start` and `stop`.

    :param settings: what it does; can be changed while it runs.
    :param seed: the same seed, settings and order of calls give the same times and faults.
    :param port: 0 chooses a free one.
    :param clock: seconds since the epoch; only for tests without watches, which wait in real time.
    :ivar application: has the counters of calls, ``<plural>.<verb>``.
    """

    def __init__(
        self,
        settings: KubernetesSettings | None = None,
        seed: int = 0,
        port: int = 0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        cluster = Cluster(settings, seed, clock)
        self.application = ClusterApplication(cluster)
        super().__init__(cluster, cluster.core, self.application, port)

    def kubeconfig(self) -> Json:
        """Contexts ``admin`` (the current one), ``developer`` and ``nobody``, each with a token."""
        with self.cloud() as cluster:
            tokens = dict(cluster.tokens)
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "admin",
            "clusters": [{"name": "simulator", "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {"token": token}} for name, token in tokens.items()],
            "contexts": [{"name": name, "context": {"cluster": "simulator", "user": name}} for name in tokens],
        }

    def write_kubeconfig(self, path: str | Path) -> Path:
        """Writes it as a file that only its owner can read; returns its path."""
        path = Path(path)
        path.touch(mode=0o600)
        path.write_text(json.dumps(self.kubeconfig(), indent=1), encoding="utf-8")
        return path
