# SPDX-License-Identifier: Apache-2.0
"""The objects that are made for a node (KU-2 to KU-7), as JSON; then what a cluster or a namespace has room for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.config import dynamic_values
from nodepool.driver.kubernetes.config import mangled
from nodepool.model.quota import QuotaInformation

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
    for name, value in dynamic_values(label, "dynamic-labels", request, log).items():
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


# What a cluster, or a namespace, has room for, in the units of labels. Pure functions.
#
# Amounts in Kubernetes are texts such as ``500m``, ``2Gi`` and ``1e3``. Those of labels are cores, MiB of memory and MB
# of ephemeral storage; other resources, such as GPUs, are counted as they are.

#: Pods that have ended use nothing.
ENDED: Final = ("Succeeded", "Failed")
#: A node with a taint of these effects takes only pods that tolerate it.
_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
#: Names of resources in Kubernetes, ours, and how many of the first make one of the second.
_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "cpu": ("cores", 1.0),
    "memory": ("ram", 1024.0 * 1024.0),
    "ephemeral-storage": ("ephemeral-storage", 1000.0 * 1000.0),
    "pods": ("instances", 1.0),
}
#: How a quota names the number of pods.
_PODS: Final = ("pods", "count/pods")

#: Amounts by our name of the resource.
Amounts = Mapping[str, float]


def amount_of(text: Any) -> float:
    """A quantity as a number. Raises ValueError."""
    # Only where limits are asked for: the package takes long to import.
    from kubernetes.utils import quantity

    # It has no type hints.
    parse: Any = quantity.parse_quantity
    return float(parse(text))


def _ours(found: Mapping[str, Any]) -> dict[str, float]:
    """Amounts in our units; what is no quantity is left out."""
    amounts: dict[str, float] = {}
    for name, text in found.items():
        own, unit = _UNITS.get(name, (name, 1.0))
        try:
            amounts[own] = amount_of(text) / unit
        except ValueError:
            continue
    return amounts


def _add(total: dict[str, float], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0.0) + amount


def requests_of(pod: Object) -> dict[str, float]:
    """What a pod requests: all containers together, or the greatest of those that run before them."""
    spec = pod.get("spec") or {}
    total: dict[str, float] = {"instances": 1.0}
    for container in spec.get("containers") or []:
        _add(total, _ours((container.get("resources") or {}).get("requests") or {}))
    for container in spec.get("initContainers") or []:
        for name, amount in _ours((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = max(total.get(name, 0.0), amount)
    _add(total, _ours(spec.get("overhead") or {}))
    return total


def is_counted(pod: Object) -> bool:
    """Does a pod use anything? One that has ended does not."""
    return (pod.get("status") or {}).get("phase") not in ENDED


def not_counted(pods: Iterable[Object], need_of: Callable[[Object], Amounts]) -> dict[str, float]:
    """What pods request that Nodepool does not count by itself: all of foreign ones, the surplus of our own.

    :param need_of: what Nodepool counts for a pod; nothing if the pod is not ours.
    """
    total: dict[str, float] = {}
    for pod in filter(is_counted, pods):
        counted = need_of(pod)
        surplus = {name: max(0.0, amount - counted.get(name, 0.0)) for name, amount in requests_of(pod).items()}
        _add(total, surplus)
    return total


def takes_pods(node: Object) -> bool:
    """Does a node of the cluster take pods that tolerate nothing?"""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    if spec.get("unschedulable") or any(taint.get("effect") in _KEEPS_AWAY for taint in spec.get("taints") or []):
        return False
    ready = [found for found in status.get("conditions") or [] if found.get("type") == "Ready"]
    return all(found.get("status") == "True" for found in ready)


def of_cluster(
    nodes: Iterable[Object], pods: Iterable[Object], need_of: Callable[[Object], Amounts]
) -> QuotaInformation:
    """What Nodepool may use of a cluster: what its nodes can allocate, without what others request.

    :param pods: of all namespaces.
    :param need_of: see `not_counted`.
    """
    room: dict[str, float] = {}
    there = set()
    for node in nodes:
        if takes_pods(node):
            there.add(node["metadata"]["name"])
            _add(room, _ours((node.get("status") or {}).get("allocatable") or {}))
    used = not_counted((pod for pod in pods if (pod.get("spec") or {}).get("nodeName") in there), need_of)
    return made_of({name: max(0.0, amount - used.get(name, 0.0)) for name, amount in room.items()})


def of_quotas(quotas: Iterable[Object], pods: Iterable[Object]) -> QuotaInformation:
    """What Nodepool may use of a namespace, as far as its resource quotas limit requests.

    :param pods: ours in the namespace: what they request is in what the quotas say is used.
    """
    ours: dict[str, float] = {}
    for pod in filter(is_counted, pods):
        _add(ours, requests_of(pod))
    limits: dict[str, float] = {}
    for quota in quotas:
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            # Which pods it concerns depends on more than what they request.
            continue
        hard, used = requested(status.get("hard") or spec.get("hard") or {}), requested(status.get("used") or {})
        for name, limit in hard.items():
            others = max(0.0, used.get(name, 0.0) - ours.get(name, 0.0))
            limits[name] = min(limits.get(name, math.inf), max(0.0, limit - others))
    return made_of(limits)


def requested(found: Mapping[str, Any]) -> dict[str, float]:
    """Of what a quota names, the requests and the number of pods."""
    named: dict[str, Any] = {}
    for name, text in found.items():
        if name in _PODS:
            named["pods"] = text
        elif name.startswith("requests."):
            named[name.removeprefix("requests.")] = text
        elif name in ("cpu", "memory", "ephemeral-storage"):
            named.setdefault(name, text)
    return _ours(named)


def made_of(amounts: Amounts) -> QuotaInformation:
    """These limits, and no others."""
    return QuotaInformation(default=math.inf, **amounts)


def together(limits: Iterable[QuotaInformation]) -> QuotaInformation:
    """What several namespaces have room for: a resource that one of them does not limit is not limited."""
    found = [each.quota["compute"] for each in limits]
    names = set.intersection(*map(set, found)) if found else set()
    return made_of({name: sum(amounts[name] for amounts in found) for name in names})
