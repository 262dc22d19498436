# SPDX-License-Identifier: Apache-2.0
"""``/admin`` of the simulated cluster: mishaps, and things that no client made."""

from __future__ import annotations

from simulators.base.admin import AdminApi
from simulators.base.application import SimulatedApplication
from simulators.base.messages import Json
from simulators.kubernetes.cluster import Cluster
from simulators.kubernetes.kinds import NAMESPACES, PODS


class KubernetesAdminApi(AdminApi):
    """Adds its handlers to the common ones."""

    def __init__(self, cluster: Cluster, application: SimulatedApplication) -> None:
        super().__init__(cluster, application, cluster.places.observer, "node_places")
        self.cluster = cluster
        self.add_deeds(
            {
                "add-namespace": lambda body: cluster.add_namespace(**body),
                "add-node": lambda body: cluster.add_node(**body),
                "add-quota": lambda body: cluster.add_quota(**body),
                "hold": lambda body: cluster.hold(**body),
                "release": lambda body: cluster.release(**body),
                "end-namespace": lambda body: cluster.end_namespace(**body),
                "vanish": lambda body: cluster.vanish(**body),
                "cut-watches": lambda _body: cluster.cut_watches(),
                "expire-watches": lambda _body: cluster.store.forget(),
                "release-stuck": lambda _body: cluster.pods.release_stuck(),
            }
        )
        self.handlers |= {
            ("GET", "/admin/namespaces"): self._namespaces,
            ("GET", "/admin/pods"): self._pods,
            ("POST", "/admin/new-token"): lambda body: {"token": cluster.new_token(**body)},
        }

    def state(self) -> Json:
        """How many nodes of Nodepool there are, and how many watches go on, too."""
        found = super().state()
        found["contents"]["node_places"] = self.cluster.places.observer.machines
        return found | {"watches": len(self.cluster.watches)}

    def _namespaces(self, _body: Json) -> Json:
        return {"namespaces": list(self.cluster.store.all(NAMESPACES))}

    def _pods(self, _body: Json) -> Json:
        return {"pods": list(self.cluster.store.all(PODS))}
