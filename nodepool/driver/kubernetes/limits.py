# SPDX-License-Identifier: Apache-2.0
"""What a cluster, or a namespace, has room for, in the units of labels. Pure.

Amounts in Kubernetes are texts such as ``500m``, ``2Gi`` and ``1e3``. Those of labels are cores, MiB of memory and MB
of ephemeral storage; other resources, such as GPUs, are counted as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from nodepool.model.quota import QuotaInformation

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

Object = dict[str, Any]
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


def requests_of_all(pods: Iterable[Object]) -> dict[str, float]:
    """What pods request together; those that have ended request nothing."""
    total: dict[str, float] = {}
    for pod in filter(is_counted, pods):
        _add(total, requests_of(pod))
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
    ours = requests_of_all(pods)
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
