# SPDX-License-Identifier: Apache-2.0
"""A real control plane of Kubernetes that notes who calls it, and a provider that uses it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.kubernetes_rig import KubernetesRig
from tests.support.wait import wait_for

#: Where clients look for the file with the clusters.
KUBECONFIG_VARIABLE: Final = "KUBECONFIG"
#: Whose calls are counted: the user that launchers are. The control plane's own programs have users of their own.
USER: Final = "admin"
LABEL: Final = "small"
#: For all pods of a burst at once, which are held until the last one runs.
CAPACITY: Final = "cpu=1000,memory=1Ti,pods=1000,ephemeral-storage=10Ti"
#: Seconds that a pod takes to run, and to end.
OPTIONS: Final = ("--start-seconds", "0.2", "--stop-seconds", "0.2", "--capacity", CAPACITY)
#: The last events are written a moment after their answers.
SETTLE_SECONDS: Final = 20.0


@contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    """Starts one and tells launchers, which inherit the environment, where it is. It ends with the block.

    :raises NoRig: there is nothing that starts one.
    """
    rig = KubernetesRig(directory / "rig", OPTIONS)
    audit, policy = directory / "audit.log", directory / "audit.yaml"
    # Where a call goes on (a watch), it is noted when it begins.
    rules = [{"level": "Metadata", "users": [USER]}, {"level": "None"}]
    kind = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
    policy.write_text(json.dumps({**kind, "rules": rules}), encoding="utf-8")
    try:
        rig.start()
        rig.kill_api_server()
        rig.start_api_server(f"--audit-policy-file={policy}", f"--audit-log-path={audit}")
        os.environ[KUBECONFIG_VARIABLE] = str(rig.kubeconfig)
        yield ControlPlane(rig, audit)
    finally:
        os.environ.pop(KUBECONFIG_VARIABLE, None)
        rig.stop()


class ControlPlane:
    """Looks at the cluster.

    :param audit: where the API server notes calls.
    """

    def __init__(self, rig: KubernetesRig, audit: Path) -> None:
        self._rig = rig
        self._audit = audit
        self.kubeconfig = rig.kubeconfig

    def calls(self) -> Counter[str]:
        """How often launchers called so far, by ``<verb> <resource>``; each watch counts once."""
        found: dict[str, str] = {}
        with self._audit.open(encoding="utf-8") as lines:
            for line in lines:
                if not line.endswith("\n"):
                    break
                event = json.loads(line)
                if "Python-urllib" in event.get("userAgent", ""):
                    continue
                resource = event.get("objectRef", {}).get("resource", "-")
                found[event["auditID"]] = f"{event['verb']} {resource}"
        return Counter(found.values())

    def namespaces(self, pool: str) -> list[str]:
        """Namespaces of nodes of the pool."""
        items = self._rig.call("GET", "/api/v1/namespaces")["items"]
        names = [item["metadata"]["name"] for item in items]
        return [name for name in names if name.startswith(f"{pool}-")]

    def wait_empty(self, pool: str, seconds: float) -> None:
        """Blocks until no node of the pool is left in the cluster."""
        wait_for("the cluster is empty", lambda: not self.namespaces(pool), seconds)


@dataclass
class KubernetesProvider:
    """A provider with one pool and one label, whose nodes are namespaces or projects, with a pod or without.

    :param driver: ``openshiftpods`` makes pods in the project that has the name of the pool.
    """

    name: str = "cluster"
    pool: str = "bench"
    #: ``pod`` or ``namespace``.
    kind: str = "pod"
    driver: str = "kubernetes"

    @property
    def labels(self) -> Iterable[str]:
        return [LABEL]

    @property
    def slots(self) -> int:
        return 0

    def as_config(self) -> dict[str, Any]:
        label: dict[str, Any] = {"name": LABEL, "type": self.kind}
        if self.kind == "pod":
            label |= {"image": "docker.io/debian:12", "cpu": 1, "memory": 64}
        if self.driver == "openshiftpods":
            del label["type"]
        pool = {"name": self.pool, "max-servers": 1000, "labels": [label]}
        return {"name": self.name, "driver": self.driver, "context": USER, "pools": [pool]}
