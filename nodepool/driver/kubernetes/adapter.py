# SPDX-License-Identifier: Apache-2.0
"""What the framework asks of a cluster of Kubernetes (reference/driver 9).

First `KubernetesAdapter`, then what ``nodepool check`` finds out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from nodepool.driver.framework.cloud_errors import CheckResult, CloudChecks
from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.client import NAMESPACES, REVIEWS, KubeClient, Object, core
from nodepool.driver.kubernetes.cloud import KubeCloud, SharedRoles
from nodepool.driver.kubernetes.connection import ClusterConnection
from nodepool.driver.kubernetes.create import NamespaceCreation
from nodepool.driver.kubernetes.objects import LABEL_KEY, NAMESPACE_RULES, POD_RULES, KubeRecord, need_of
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, CloudAdapter, Resource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine import instance as tags
from nodepool.model.node import QuotaInformation

#: Type of a resource, in logs and metrics (KU-12).
NODE: Final = "node"


class KubeResource(Resource):
    """A namespace, project or pod that says whose it is."""

    def __init__(self, record: KubeRecord) -> None:
        super().__init__(dict(record.metadata), NODE)
        self.id = record.id
        self.record = record


class KubernetesAdapter(CloudAdapter):
    """One cluster. Making it imports the package ``kubernetes``, and does not ask the cluster.

    :param client: for tests.
    """

    cloud_class: ClassVar[type[KubeCloud]] = KubeCloud
    creation_class: ClassVar[type[NamespaceCreation]] = NamespaceCreation

    def __init__(self, provider_config: Any, client: KubeClient | None = None) -> None:
        # Only here: it is needed by providers of this kind alone.
        import kubernetes  # noqa: F401

        super().__init__(provider_config)
        self.config = provider_config
        self.client = client or KubeClient(ClusterConnection(provider_config.name, provider_config.context))
        self.cloud = self.make_cloud()
        self.use(self.cloud)
        self.cloud.need_by = self._need_by
        # By the time of the deletion another launcher may have made a new one of the name.
        kind = ResourceKind(NODE, self._all_nodes, lambda found: self.cloud.delete_seen(found.record), vital=True)
        self.resources = ResourceKinds(self.config.name, [kind])
        if self.config.shared_roles:
            self.cloud.shared_roles = SharedRoles(self.client)

    def make_cloud(self) -> KubeCloud:
        return self.cloud_class(self.config.name, self.client)

    # -- machines --

    def idInAdvance(self, hostname: str, label: Any, metadata: dict[str, str]) -> str:
        return self.creation_class.name_of(label, metadata)

    def _all_nodes(self) -> Iterator[KubeResource]:
        for record in self.cloud.inventory.all(SWEEP_LIST_SECONDS):
            if not record.terminating:
                yield KubeResource(record)

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        if not self.config.cluster_room:
            return super().getQuotaLimits()
        nodes, _ = self.client.list(core("nodes"))
        pods, _ = self.client.list(core("pods"))
        return objects.of_cluster(nodes, pods, self._counted_for)

    def _counted_for(self, pod: Object) -> objects.Amounts:
        """What is counted for the node of a pod; nothing if it is not ours."""
        found = pod["metadata"].get("labels") or {}
        if tags.node_id_of(found, self.config.name) is None:
            return {}
        return self._need_by(found).quota["compute"]

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return need_of(label)

    # -- trouble --

    def preflight(self) -> Iterator[CheckResult]:
        subject, checks = f"cluster {self.config.context or 'of the launcher'}", CloudChecks(self.config.name)
        (first,) = checks.results(subject, self._reach, subject)
        yield first
        for subject, place, wanted, remedy in self.needed() if first.ok else ():
            yield from checks.results(subject, missing_rights, self.client, subject, place, wanted, remedy)

    def _reach(self, subject: str) -> list[CheckResult]:
        """Does the cluster answer, and does it know us?"""
        version = self.client.ask("GET", "/version").get("gitVersion", "of an unknown version")
        # Each account may ask for the version.
        may(self.client, LAUNCHES[0])
        host = self.client.connection.access().host
        return [CheckResult(subject, True, f"login works; Kubernetes {version} at {host}")]

    def needed(self) -> Iterator[Needed]:
        """What launches need."""
        config = self.config
        # Without these launches go on with a role in each namespace.
        own_roles = not config.shared_roles or not all(may(self.client, right) for right in SHARED_ROLES)
        wanted = [*LAUNCHES, *(OWN_ROLES if own_roles else SHARED_ROLES), *(ROOM if config.cluster_room else ())]
        if not may(self.client, ESCALATES):
            kinds = {label.is_pod for pool in config.pools.values() for label in pool.labels.values()}
            wanted += [right for is_pod in sorted(kinds) for right in granted(POD_RULES if is_pod else NAMESPACE_RULES)]
        yield "rights", "", wanted, "give the account the ClusterRole that the documentation of the driver shows"

    def _need_by(self, metadata: Mapping[str, str]) -> QuotaInformation:
        """What a node uses whose objects have this metadata."""
        pool = self.config.pools.get(metadata.get(tags.POOL_KEY))
        label = None if pool is None else pool.labels.get(metadata.get(LABEL_KEY))
        return QuotaInformation(instances=1) if label is None else need_of(label)


# What ``nodepool check`` finds out about a cluster: may we do what nodes need? Only reads.


class Right(NamedTuple):
    """Something that an account may do. :param resource: with its subresource, such as ``pods/log``."""

    verb: str
    resource: str
    group: str = ""


#: Subject of the results, namespace ("" = all of them), rights that launches need there, remedy if one is missing.
Needed = tuple[str, str, list[Right], str]


def rights(resource: str, verbs: str, group: str = "") -> list[Right]:
    """:param verbs: separated by spaces."""
    return [Right(verb, resource, group) for verb in verbs.split()]


def granted(rules: Iterable[dict[str, Any]]) -> Iterator[Right]:
    """What an account must have itself, to give it to another one in a role."""
    for rule in rules:
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            yield from rights(resource, " ".join(rule["verbs"]), group)


RBAC_GROUP: Final = "rbac.authorization.k8s.io"
#: What each launch of the driver ``kubernetes`` needs.
LAUNCHES: Final = [
    *rights("namespaces", "create delete get list watch"),
    *rights("serviceaccounts", "create"),
    *rights("secrets", "create list watch"),
    *rights("pods", "create list watch"),
    *rights("rolebindings", "create", RBAC_GROUP),
]
#: With a role in each namespace, and with cluster roles that stand for it; to see what the cluster has room for.
OWN_ROLES: Final = rights("roles", "create", RBAC_GROUP)
SHARED_ROLES: Final = rights("clusterroles", "create", RBAC_GROUP)
ROOM: Final = rights("nodes", "list")
#: A role with these may be made without having them.
ESCALATES: Final = Right("escalate", "roles", RBAC_GROUP)


def may(client: KubeClient, right: Right, place: str = "") -> bool:
    """Asks the API server what we may do in a namespace, or ("") in all of them. Blocks."""
    resource, _, subresource = right.resource.partition("/")
    about = {**right._asdict(), "resource": resource, "subresource": subresource, "namespace": place}
    spec = {"resourceAttributes": {key: value for key, value in about.items() if value}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}, "spec": spec}
    # It is answered, and not kept.
    return bool((client.ask("POST", REVIEWS, body).get("status") or {}).get("allowed"))


def missing_rights(
    client: KubeClient, subject: str, place: str, wanted: Iterable[Right], remedy: str
) -> list[CheckResult]:
    """A line for each resource with the rights that are missing, or one that says that there is none. Blocks."""
    missing: dict[str, list[str]] = {}
    for right in dict.fromkeys(wanted):
        if not may(client, right, place):
            target = f"{right.resource} ({right.group})" if right.group else right.resource
            missing.setdefault(target, []).append(right.verb)
    if not missing and place and may(client, Right("get", "namespaces"), place):
        # Rights can be there before the namespace is.
        client.get(f"{NAMESPACES}/{place}")
    return [
        CheckResult(subject, False, f"we may not {', '.join(verbs)} {target}", remedy)
        for target, verbs in missing.items()
    ] or [CheckResult(subject, True, "all rights that launches need are there")]
