# SPDX-License-Identifier: Apache-2.0
"""What the tests look at in the control plane, and the least that a launcher may do there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.kubernetes_rig import KubernetesRig

RBAC = "/apis/rbac.authorization.k8s.io/v1"
#: A user of the rig's kubeconfig who may do nothing until a test says so.
NOBODY = "nobody"


class RigCluster:
    """Namespaces of one pool. :param pool: its name, which no other test has."""

    def __init__(self, rig: KubernetesRig, pool: str) -> None:
        self.rig = rig
        self.pool = pool

    def names(self) -> list[str]:
        items = self.rig.call("GET", "/api/v1/namespaces")["items"]
        names = [item["metadata"]["name"] for item in items]
        return [name for name in names if name.startswith(f"{self.pool}-")]

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.rig.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def allow(self, user: str, cluster_role: Mapping[str, Any]) -> None:
        """Gives a user a cluster role, everywhere."""
        name = cluster_role["metadata"]["name"]
        self.rig.call("POST", f"{RBAC}/clusterroles", cluster_role)
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        self.rig.call("POST", f"{RBAC}/clusterrolebindings", body)

    def forbid(self, cluster_role: Mapping[str, Any]) -> None:
        """Takes it back."""
        name = cluster_role["metadata"]["name"]
        for kind in ("clusterrolebindings", "clusterroles"):
            self.rig.call("DELETE", f"{RBAC}/{kind}/{name}")


def copy_of_kubeconfig(rig: KubernetesRig, directory: Path, *users: str) -> Path:
    """A kubeconfig like the rig's, with copies of the certificates that it names, which a test may change."""
    content = json.loads(rig.kubeconfig.read_text(encoding="utf-8"))
    content["users"] = [entry for entry in content["users"] if not users or entry["name"] in users]
    for entry in content["users"]:
        for key in ("client-certificate", "client-key"):
            copy = directory / Path(entry["user"][key]).name
            shutil.copy(entry["user"][key], copy)
            entry["user"][key] = str(copy)
    for entry in content["clusters"]:
        copy = directory / "ca.crt"
        shutil.copy(entry["cluster"]["certificate-authority"], copy)
        entry["cluster"]["certificate-authority"] = str(copy)
    file = directory / "kubeconfig"
    file.write_text(json.dumps(content), encoding="utf-8")
    file.chmod(0o600)
    return file
