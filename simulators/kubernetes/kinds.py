# SPDX-License-Identifier: Apache-2.0
"""Which kinds of objects there are, and which object a path means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

READ_WRITE = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
RBAC, OPENSHIFT_RBAC, PROJECTS = "rbac.authorization.k8s.io", "authorization.openshift.io", "project.openshift.io"
REVIEWS = "authorization.k8s.io"


@dataclass(frozen=True)
class ObjectKind:
    """A kind of object.

    :param group: of the API; "" is the core.
    :param plural: its name in paths, in rules and in counters.
    :param subresources: for example ``status``.
    """

    group: str
    name: str
    plural: str
    namespaced: bool = True
    verbs: tuple[str, ...] = READ_WRITE
    subresources: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """As objects have it."""
        return f"{self.group}/v1" if self.group else "v1"

    @property
    def resource(self) -> str:
        """As errors name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACES = ObjectKind("", "Namespace", "namespaces", namespaced=False, subresources=("status", "finalize"))
ACCOUNTS = ObjectKind("", "ServiceAccount", "serviceaccounts", subresources=("token",))
SECRETS = ObjectKind("", "Secret", "secrets")
CONFIG_MAPS = ObjectKind("", "ConfigMap", "configmaps")
PODS = ObjectKind("", "Pod", "pods", subresources=("status", "log", "exec", "portforward"))
QUOTAS = ObjectKind("", "ResourceQuota", "resourcequotas", subresources=("status",))
LIMIT_RANGES = ObjectKind("", "LimitRange", "limitranges")
SERVICES = ObjectKind("", "Service", "services")
NODES = ObjectKind("", "Node", "nodes", namespaced=False, subresources=("status",))
ROLES = ObjectKind(RBAC, "Role", "roles")
BINDINGS = ObjectKind(RBAC, "RoleBinding", "rolebindings")
CLUSTER_ROLES = ObjectKind(RBAC, "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_BINDINGS = ObjectKind(RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
ACCESS_REVIEWS = ObjectKind(REVIEWS, "SelfSubjectAccessReview", "selfsubjectaccessreviews", False, ("create",))
PROJECT = ObjectKind(PROJECTS, "Project", "projects", False, ("delete", "get", "list", "watch"))
PROJECT_REQUESTS = ObjectKind(PROJECTS, "ProjectRequest", "projectrequests", False, ("create", "list"))
OPENSHIFT_BINDINGS = ObjectKind(
    OPENSHIFT_RBAC, "RoleBinding", "rolebindings", True, ("create", "delete", "get", "list")
)

#: Kinds whose objects are stored.
STORED = (
    NAMESPACES,
    ACCOUNTS,
    SECRETS,
    CONFIG_MAPS,
    PODS,
    QUOTAS,
    LIMIT_RANGES,
    SERVICES,
    NODES,
    ObjectKind("apps", "Deployment", "deployments", subresources=("status", "scale")),
    ObjectKind("apps", "ReplicaSet", "replicasets", subresources=("status", "scale")),
    ObjectKind("batch", "Job", "jobs", subresources=("status",)),
    ObjectKind("batch", "CronJob", "cronjobs", subresources=("status",)),
    ROLES,
    BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_BINDINGS,
)
#: Kinds that are views of stored ones; served where ``openshift`` is set.
OPENSHIFT = (PROJECT, PROJECT_REQUESTS, OPENSHIFT_BINDINGS)

_BY_PATH = {(kind.group, kind.plural): kind for kind in (*STORED, ACCESS_REVIEWS, *OPENSHIFT)}


@dataclass(frozen=True)
class ObjectPath:
    """What a path means. :param name: "" is the collection; ``namespace``: "" is all of them, or a cluster's object."""

    kind: ObjectKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def find_object_path(parts: Sequence[str], openshift: bool) -> ObjectPath | None:
    """What ``/api/v1/...`` or ``/apis/<group>/v1/...`` means, None = nothing that we have."""
    if list(parts[:2]) == ["api", "v1"]:
        group, rest = "", list(parts[2:])
    elif len(parts) > 2 and parts[0] == "apis" and parts[2] == "v1":
        group, rest = parts[1], list(parts[3:])
    else:
        return None
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in NAMESPACES.subresources:
        namespace, rest = rest[1], rest[2:]
    kind = _BY_PATH.get((group, rest[0])) if 1 <= len(rest) <= 3 else None
    if kind is None or (namespace and not kind.namespaced) or (kind in OPENSHIFT and not openshift):
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and subresource not in kind.subresources:
        return None
    return ObjectPath(kind, namespace, name, subresource)
