# SPDX-License-Identifier: Apache-2.0
"""The whole simulated cluster: its objects and controllers, what is in it at the beginning, and mishaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulators.base.core import SimulationCore
from simulators.kubernetes.access import (
    AUTHENTICATED,
    MASTERS,
    OAUTH,
    AccessControl,
    cluster_binding,
    first_roles,
    openshift_roles,
)
from simulators.kubernetes.accounts import Accounts
from simulators.kubernetes.kinds import (
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    STORED,
)
from simulators.kubernetes.lifecycle import Lifecycle
from simulators.kubernetes.node_places import NodePlaces
from simulators.kubernetes.openshift import REQUESTER, OpenShift
from simulators.kubernetes.pods import PodController
from simulators.kubernetes.quotas import Quotas
from simulators.kubernetes.resources import Resources
from simulators.kubernetes.settings import KubernetesSettings
from simulators.kubernetes.store import Store
from simulators.kubernetes.watches import WatchStream

Json = dict[str, Any]

#: Users of the kubeconfig, with their groups: one may do all, one may ask for projects, one may do nothing.
USERS = {"admin": (MASTERS,), "developer": (OAUTH,), "nobody": ()}
#: Of the node that is there at the beginning.
CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "500", "ephemeral-storage": "1Ti"}
#: A certificate that certifies nothing: the simulator does not serve TLS.
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nc2ltdWxhdGVk\n-----END CERTIFICATE-----\n"
FINALIZER = "example.org/hold"


class Cluster:
    """One node ``node-1``, the users `USERS` and the usual cluster roles are there to begin with.

    Other threads than the server's hold ``core.lock`` for each look and each change, and call ``core.run_due()`` first.

    :ivar tokens: of the users of the kubeconfig, by their names.
    :ivar watches: that go on.
    """

    def __init__(
        self, settings: KubernetesSettings | None = None, seed: int = 0, clock: Callable[[], float] | None = None
    ) -> None:
        self.core = SimulationCore(settings or KubernetesSettings(), seed, clock)
        self.store = Store(self.core)
        self.access = AccessControl(self.store)
        self.accounts = Accounts(self.store, self.access, CERTIFICATE)
        self.pods = PodController(self.store, lambda pod: self.lifecycle.end_pod(pod))
        self.lifecycle = Lifecycle(self.store, self.pods.stop)
        quotas = Quotas(self.store)
        self.resources = Resources(self.store, self.access, self.accounts, quotas, self.pods, self.lifecycle)
        self.openshift = OpenShift(self.store, self.access, self.lifecycle)
        self.places = NodePlaces(self.store)
        self.watches: list[WatchStream] = []
        self.tokens = {name: self.access.add_user(name, *groups) for name, groups in USERS.items()}
        for role in (*first_roles(), *openshift_roles()):
            self.store.add(CLUSTER_ROLES, role)
        bindings = {"system:basic-user": AUTHENTICATED, "basic-user": AUTHENTICATED, "self-provisioner": OAUTH}
        for role_name, group in bindings.items():
            self.store.add(CLUSTER_BINDINGS, cluster_binding(role_name, group))
        self.add_node("node-1")
        for name in ("default", "kube-system"):
            self.add_namespace(name)

    def add_node(self, name: str, capacity: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> Json:
        """A node of the cluster, on which pods can run."""
        room = CAPACITY | (capacity or {})
        status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        return self.store.add(NODES, {"metadata": {"name": name, "labels": dict(labels or {})}, "status": status})

    def add_namespace(self, name: str, labels: dict[str, str] | None = None) -> Json:
        """A namespace that no client made."""
        return self.store.add(
            NAMESPACES,
            {
                "metadata": {"name": name, "labels": dict(labels or {})},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            },
        )

    def add_quota(self, namespace: str, **hard: str) -> Json:
        """A resource quota; ``_`` in names stands for ``.``: ``requests_cpu="4"``."""
        amounts = {name.replace("_", "."): str(amount) for name, amount in hard.items()}
        metadata = {"name": "quota", "namespace": namespace}
        status = {"hard": amounts, "used": dict.fromkeys(amounts, "0")}
        return self.store.add(QUOTAS, {"metadata": metadata, "spec": {"hard": amounts}, "status": status})

    def give_project(self, namespace: str, user: str) -> None:
        """As if the user had asked for this namespace as a project."""
        found = self.store.get(NAMESPACES, "", namespace)

        def sign(content: Json) -> None:
            content["metadata"].setdefault("annotations", {})[REQUESTER] = user

        self.store.change(NAMESPACES, found, sign)
        self.openshift.give_access(namespace, user)

    def hold(self, namespace: str) -> None:
        """Puts something into the namespace that keeps it in Terminating when it is deleted, until `release`."""
        metadata = {"name": "held", "namespace": namespace, "finalizers": [FINALIZER]}
        self.store.add(CONFIG_MAPS, {"metadata": metadata})

    def release(self, namespace: str) -> None:
        """What `hold` has put there holds no more."""
        found = self.store.get(CONFIG_MAPS, namespace, "held")
        changed = self.store.change(CONFIG_MAPS, found, lambda content: content["metadata"].pop("finalizers"))
        self.lifecycle.changed(CONFIG_MAPS, changed)

    def new_token(self, user: str, revoke: bool = True) -> str:
        """Gives a user of the kubeconfig another token; returns it. ``revoke``: the old one is worth nothing then."""
        if revoke:
            self.access.revoke(self.tokens[user])
        self.tokens[user] = self.access.add_user(user, *USERS[user])
        return self.tokens[user]

    def cut_watches(self) -> None:
        """The connections of all watches break."""
        for watch in tuple(self.watches):
            watch.cut_now()

    def vanish(self, namespace: str, pod: str) -> None:
        """The pod is gone at once: somebody has deleted it without grace."""
        self.store.remove(PODS, self.store.get(PODS, namespace, pod))

    def end_namespace(self, namespace: str) -> None:
        """Somebody deletes a namespace."""
        self.lifecycle.delete(NAMESPACES, self.store.get(NAMESPACES, "", namespace), {})

    def contents(self) -> dict[str, int]:
        """How many objects of each kind there are, those that a cluster has by itself included."""
        return {kind.plural: len(self.store.table(kind).objects) for kind in STORED}

    def namespaces(self) -> list[str]:
        """Names of the namespaces that were not there at the beginning."""
        names = [content["metadata"]["name"] for content in self.store.all(NAMESPACES)]
        return [name for name in names if name not in ("default", "kube-system")]
