# SPDX-License-Identifier: Apache-2.0
"""The objects that are made for a node (KU-2 to KU-7), as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.key_schema import dynamic_value
from nodepool.driver.kubernetes.config import mangled

if TYPE_CHECKING:
    from nodepool.driver.kubernetes.config import PodLabel
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: Label with the name of the node's label.
LABEL_KEY: Final = "nodepool_node_label"
#: Of the service account, and of the secret with its token.
WORKER: Final = "zuul-worker"
#: The service account that the cluster makes in each namespace by itself.
DEFAULT_ACCOUNT: Final = "default"
ROLE: Final = "zuul"
RESTRICTED_ROLE: Final = "zuul-restricted"
BINDING: Final = "zuul-role"
#: Before the names of cluster roles that stand for roles.
SHARED: Final = "nodepool-"
TOKEN_TYPE: Final = "kubernetes.io/service-account-token"
ACCOUNT_KEY: Final = "kubernetes.io/service-account.name"
#: What a container does until its node is deleted.
_COMMAND: Final = ["/bin/sh", "-c"]
_ARGUMENTS: Final = ["while true; do sleep 30; done;"]

Object = dict[str, Any]


def _rule(group: str, resources: str, verbs: str = "create delete get list patch update watch") -> Object:
    """Of a role. Names are separated by spaces."""
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


#: What the user of a namespace may do there (KU-3).
NAMESPACE_RULES: Final = [
    _rule("", "pods pods/exec pods/log pods/portforward services endpoints configmaps secrets"),
    _rule("apps", "deployments replicasets"),
    _rule("batch", "jobs cronjobs"),
]
#: What the user of a pod may do in its namespace.
POD_RULES: Final = [
    _rule("", "pods", "get list"),
    _rule("", "pods/log", "get list"),
    _rule("", "pods/exec pods/portforward"),
]


def labels_of(label: PodLabel, metadata: Mapping[str, str], request: NodeRequest | None, log: Log) -> dict[str, str]:
    """Labels of all that is made for a node: the label's, the dynamic ones, then ours (KU-7).

    A dynamic value is mangled as `nodepool.driver.kubernetes.config.mangled` says.
    """
    found = dict(label.labels)
    for name, template in label.dynamic_labels.items():
        value = dynamic_value(template, request)
        if value is None:
            log.warning("Label %s: the value of dynamic-labels %s cannot be formatted: left out", label.name, name)
            continue
        usable = mangled(value)
        if usable != value:
            log.info("Label %s: the value of dynamic-labels %s is stored as %r", label.name, name, usable)
        found[name] = usable
    return {**found, **metadata, LABEL_KEY: label.name}


def marks(labels: Mapping[str, str]) -> dict[str, str]:
    """Those labels that say whose an object is."""
    return {key: value for key, value in labels.items() if key.startswith("nodepool_")}


def namespace(name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    """A namespace; a request for a project takes the same metadata."""
    return {"metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations)}}


def service_account(labels: Mapping[str, str]) -> Object:
    return {"metadata": {"name": WORKER, "labels": marks(labels)}}


def token_secret(labels: Mapping[str, str], account: str = WORKER) -> Object:
    """A secret into which the cluster writes a token of the service account, bound to both: it ends with them.

    The account must be there, else the cluster deletes the secret.
    """
    return {
        "type": TOKEN_TYPE,
        "metadata": {"name": WORKER, "labels": marks(labels), "annotations": {ACCOUNT_KEY: account}},
    }


def role(labels: Mapping[str, str], is_pod: bool) -> Object:
    name, rules = (RESTRICTED_ROLE, POD_RULES) if is_pod else (ROLE, NAMESPACE_RULES)
    return {"metadata": {"name": name, "labels": marks(labels)}, "rules": rules}


def shared_role(is_pod: bool) -> Object:
    """A cluster role with the same rights. A binding in a namespace gives them in that namespace only."""
    made = role({}, is_pod)
    return {"metadata": {"name": SHARED + made["metadata"]["name"]}, "rules": made["rules"]}


def role_binding(
    place: str, labels: Mapping[str, str], is_pod: bool, shared: str | None = None, account: str = WORKER
) -> Object:
    """:param place: the namespace.
    :param shared: the cluster role that is bound; None = the role of the namespace.
    :param account: the service account that gets it.
    """
    return {
        "metadata": {"name": BINDING, "labels": marks(labels)},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": place}],
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole" if shared else "Role",
            "name": shared or (RESTRICTED_ROLE if is_pod else ROLE),
        },
    }


def pod(name: str, label: PodLabel, labels: Mapping[str, str], token: bool = True) -> Object:
    """The pod of a node (KU-4 to KU-6). A ``spec`` of the label is used as it is.

    :param labels: as `labels_of` makes them.
    :param token: let the cluster put a token of the namespace's account into the container, as it does by itself.
    """
    spec = label.spec
    if spec is None:
        spec = _spec(label) if token else {**_spec(label), "automountServiceAccountToken": False}
    return {"metadata": {"name": name, "labels": dict(labels), "annotations": dict(label.annotations)}, "spec": spec}


def _spec(label: PodLabel) -> Object:
    container: Object = {
        "name": label.name,
        "image": label.image,
        "imagePullPolicy": label.image_pull,
        "command": _COMMAND,
        "args": _ARGUMENTS,
        "env": label.env,
    }
    resources = _resources(label)
    if resources:
        container["resources"] = resources
    if label.privileged is not None:
        container["securityContext"] = {"privileged": label.privileged}
    if label.volume_mounts:
        container["volumeMounts"] = label.volume_mounts
    # A container that ends is a node that failed: started again it would not be the node that the job knows.
    spec: Object = {"containers": [container], "restartPolicy": "Never"}
    optional = {
        "nodeSelector": label.node_selector,
        "schedulerName": label.scheduler_name,
        "volumes": label.volumes,
        "imagePullSecrets": getattr(label, "image_pull_secrets", None),
    }
    return {**spec, **{key: value for key, value in optional.items() if value}}


def _resources(label: PodLabel) -> Object:
    """Requests and limits, as Kubernetes writes quantities."""
    requests = _amounts(label.cpu, label.memory, label.storage)
    limits = _amounts(label.cpu_limit, label.memory_limit, label.storage_limit)
    if label.gpu and label.gpu_resource:
        requests[label.gpu_resource] = limits[label.gpu_resource] = f"{label.gpu:.2f}"
    return {key: found for key, found in (("requests", requests), ("limits", limits)) if found}


def _amounts(cpu: int | None, memory: int | None, storage: int | None) -> dict[str, str]:
    found = {
        "cpu": str(cpu) if cpu else "",
        "memory": f"{memory}Mi" if memory else "",
        "ephemeral-storage": f"{storage}M" if storage else "",
    }
    return {key: text for key, text in found.items() if text}
