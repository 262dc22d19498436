# SPDX-License-Identifier: Apache-2.0
"""What the framework asks of a cluster of Kubernetes (reference/driver 9).

First `KubernetesAdapter`, then what ``nodepool check`` finds out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from nodepool.driver.framework.checks import CheckResult, failure
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.client import NODES, REVIEWS, KubeClient, Object, core
from nodepool.driver.kubernetes.cloud import KubeCloud, SharedRoles
from nodepool.driver.kubernetes.connection import ClusterConnection
from nodepool.driver.kubernetes.create import NamespaceCreation
from nodepool.driver.kubernetes.objects import LABEL_KEY, NAMESPACE_RULES, POD_RULES
from nodepool.driver.kubernetes.records import KubeRecord, need_of
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, CloudAdapter, Resource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine import instance as tags
from nodepool.exceptions import LaunchError
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.framework.checks import CheckResult

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
        super().__init__(provider_config)
        self.config = provider_config
        self.client = client or KubeClient(ClusterConnection(provider_config.name, provider_config.context))
        self.cloud = self.make_cloud()
        self.use(self.cloud)
        self.cloud.need_by = self._need_by
        # By the time of the deletion another launcher may have made a new one of the name.
        kind = ResourceKind(NODE, self._all_nodes, lambda found: self.cloud.delete_seen(found.record), vital=True)
        self.resources = ResourceKinds(self.config.name, [kind])
        shared = self.config.shared_roles
        self.cloud.shares_accounts = shared is not False or self.config.default_account
        if shared is not False:
            self.cloud.shared_roles = SharedRoles(self.client, required=shared is True)

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
        nodes, _ = self.client.list(NODES)
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
        return of_kubernetes(self.config, self.client)

    def _need_by(self, metadata: Mapping[str, str]) -> QuotaInformation:
        """What a node uses whose objects have this metadata."""
        pool = self.config.pools.get(metadata.get(tags.POOL_KEY))
        label = None if pool is None else pool.labels.get(metadata.get(LABEL_KEY))
        return QuotaInformation(instances=1) if label is None else need_of(label)


# What ``nodepool check`` finds out about a cluster: does it answer, and may we do what nodes need? Only reads.

#: In an error, before the cloud's own words.
_SEPARATOR: Final = ": "


class Right(NamedTuple):
    """Something that an account may do.

    :param resource: with its subresource, such as ``pods/log``.
    """

    verb: str
    resource: str
    group: str = ""

    @property
    def target(self) -> str:
        """What it is a right for, for people."""
        return f"{self.resource}{f' ({self.group})' if self.group else ''}"


def rights(resource: str, verbs: str, group: str = "") -> list[Right]:
    """:param verbs: separated by spaces."""
    return [Right(verb, resource, group) for verb in verbs.split()]


def granted(rules: Iterable[dict[str, Any]]) -> list[Right]:
    """What an account must have itself, to give it to somebody in a role."""
    return [
        Right(verb, resource, group)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


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
#: To be told when a pod can be made, instead of trying.
ACCOUNTS: Final = rights("serviceaccounts", "list watch")
#: A role with these may be made without having them.
ESCALATES: Final = Right("escalate", "roles", RBAC_GROUP)


class RightsCheck:
    """Asks the API server what we may do. Blocks.

    :param namespace: in which; "" = in all of them.
    """

    def __init__(self, client: KubeClient, namespace: str = "") -> None:
        self._client = client
        self._namespace = namespace

    def may(self, right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        about = {
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self._namespace,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": {key: value for key, value in about.items() if value}},
        }
        # It is answered, and not kept.
        return bool((self._client.call("POST", REVIEWS, body).get("status") or {}).get("allowed"))

    def missing(self, wanted: Iterable[Right]) -> list[Right]:
        """Those that we do not have."""
        return [right for right in dict.fromkeys(wanted) if not self.may(right)]


def reach(provider: str, client: KubeClient, context: str | None) -> CheckResult:
    """Does the cluster answer, and does it know us?"""
    subject = f"cluster {context or 'of the launcher'}"
    try:
        version = client.call("GET", "/version").get("gitVersion", "of an unknown version")
        host = client.connection.access().host
        # Anybody may ask for the version.
        RightsCheck(client).may(LAUNCHES[0])
    except LaunchError as error:
        return failure(subject, str(error).removeprefix(f"Provider {provider}{_SEPARATOR}"))
    return CheckResult(subject, True, f"login works; Kubernetes {version} at {host}")


def told_rights(subject: str, missing: Sequence[Right], remedy: str) -> list[CheckResult]:
    """A line for each resource with the rights that are missing, or one that says that there is none."""
    if not missing:
        return [CheckResult(subject, True, "all rights that launches need are there")]
    verbs: dict[str, list[str]] = {}
    for right in missing:
        verbs.setdefault(right.target, []).append(right.verb)
    return [
        CheckResult(subject, False, f"we may not {', '.join(found)} {target}", remedy)
        for target, found in verbs.items()
    ]


def quotas(client: KubeClient, namespace: str, wanted: float) -> list[CheckResult]:
    """Does the quota of a namespace let as many pods be as the pool may have?"""
    found, _ = client.list(core("resourcequotas", namespace))
    limits = [
        (str((quota.get("metadata") or {}).get("name")), float(hard))
        for quota in found
        for name, hard in ((quota.get("spec") or {}).get("hard") or {}).items()
        if name in ("pods", "count/pods") and str(hard).isdigit()
    ]
    subject = f"quota of {namespace}"
    text = "no limit" if wanted == math.inf else f"{wanted:g} nodes"
    low = [
        CheckResult(
            subject,
            True,
            f"quota {name} allows {hard:g} pods, and max-servers is {text}: requests will wait for the quota",
            "lower max-servers, or have the quota raised",
        )
        for name, hard in limits
        if hard < wanted
    ]
    return low or [CheckResult(subject, True, f"no quota allows fewer pods than max-servers ({text})")]


def guarded(provider: str, subject: str, ask: Callable[[], list[CheckResult]]) -> list[CheckResult]:
    """What a check finds; an error is a result, too."""
    try:
        return ask()
    except CloudNotFound as error:
        return [failure(subject, f"{error}; correct the name in the configuration, or make it")]
    except LaunchError as error:
        return [failure(subject, str(error).removeprefix(f"Provider {provider}{_SEPARATOR}"))]


def of_kubernetes(config: Any, client: KubeClient) -> Iterator[CheckResult]:
    """Results for ``driver: kubernetes``."""
    first = reach(config.name, client, config.context)
    yield first
    if first.ok:
        yield from guarded(config.name, "rights", lambda: _kubernetes_rights(config, RightsCheck(client)))


def _kubernetes_rights(config: Any, check: RightsCheck) -> list[CheckResult]:
    remedy = "give the account the ClusterRole that the documentation of the driver shows"
    own_roles = config.shared_roles is False or (config.shared_roles is None and bool(check.missing(SHARED_ROLES)))
    wanted = [*LAUNCHES, *(OWN_ROLES if own_roles else SHARED_ROLES), *(ROOM if config.cluster_room else ())]
    missing = check.missing(wanted)
    labels = [label for pool in config.pools.values() for label in pool.labels.values()]
    if not check.may(ESCALATES):
        rules = [rule for label in labels for rule in (POD_RULES if label.is_pod else NAMESPACE_RULES)]
        missing += [right for right in check.missing(granted(rules)) if right not in missing]
    found = told_rights("rights", missing, remedy)
    if not missing and any(label.is_pod for label in labels) and check.missing(ACCOUNTS):
        text = "we may not list and watch serviceaccounts: pods are sent again until their namespaces have an account"
        found.append(CheckResult("rights", True, text, remedy))
    if not missing and own_roles and config.shared_roles is None:
        text = "we may not create clusterroles: each namespace gets a role of its own, one call more for a node"
        found.append(CheckResult("rights", True, text, remedy))
    return found
