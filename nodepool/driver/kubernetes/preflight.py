# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about a cluster: does it answer, and may we do what nodes need? Only reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from nodepool.driver.framework.checks import CheckResult, failure
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.kubernetes.client import REVIEWS, KubeClient, core
from nodepool.driver.kubernetes.objects import NAMESPACE_RULES, POD_RULES
from nodepool.exceptions import LaunchError

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
