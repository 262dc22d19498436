# SPDX-License-Identifier: Apache-2.0
"""Quotas that hold for several projects together (``ClusterResourceQuota``), as members of a project see them.

``AppliedClusterResourceQuota`` of the group ``quota.openshift.io`` shows in each project the quotas that it is under:
``status.total`` has the limit and what all projects use, ``status.namespaces`` what each of them uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.kubernetes import limits
from nodepool.driver.kubernetes.client import KubeClient
from nodepool.model.quota import QuotaInformation

_GROUP: Final = "/apis/quota.openshift.io/v1/namespaces"

Object = dict[str, Any]
#: What Nodepool counts, by the name of the project.
Counted = Mapping[str, limits.Amounts]


def applied(client: KubeClient, project: str) -> list[Object]:
    """The quotas that a project is under; none if nobody tells us. Blocks."""
    try:
        found, _ = client.list(f"{_GROUP}/{project}/appliedclusterresourcequotas")
    except CloudRefused:
        # No OpenShift, a project that is gone, or no right. A launch that is refused waits then.
        return []
    return found


def left_for_us(quota: Object, counted: Counted) -> dict[str, float]:
    """What a quota leaves for nodes: its limit without what others use.

    :param counted: what a project of ours uses beyond this is used by others.
    """
    spec, status = (quota.get("spec") or {}).get("quota") or {}, quota.get("status") or {}
    if spec.get("scopes") or spec.get("scopeSelector"):
        # Which pods it concerns depends on more than what they request.
        return {}
    total = status.get("total") or {}
    hard = limits.requested(total.get("hard") or spec.get("hard") or {})
    used = limits.requested(total.get("used") or {})
    ours: dict[str, float] = {}
    for part in status.get("namespaces") or []:
        of_nodes = counted.get(str(part.get("namespace"))) or {}
        for name, amount in limits.requested((part.get("status") or {}).get("used") or {}).items():
            ours[name] = ours.get(name, 0.0) + min(amount, of_nodes.get(name, 0.0))
    return {name: max(0.0, limit - max(0.0, used.get(name, 0.0) - ours.get(name, 0.0))) for name, limit in hard.items()}


def of_all(quotas: Iterable[Object], counted: Counted) -> QuotaInformation:
    """What quotas leave that hold for all our projects."""
    found: dict[str, float] = {}
    for quota in quotas:
        for name, limit in left_for_us(quota, counted).items():
            found[name] = min(limit, found.get(name, math.inf))
    return limits.made_of(found)


def together(
    own: Mapping[str, QuotaInformation], found: Mapping[str, Iterable[Object]], counted: Counted
) -> QuotaInformation:
    """What several projects have room for.

    :param own: what the quota of each project itself leaves.
    :param found: the quotas of several projects, as each project shows them.
    """
    by_name: dict[str, tuple[Object, set[str]]] = {}
    for project, quotas in found.items():
        for quota in quotas:
            by_name.setdefault(str(quota["metadata"]["name"]), (quota, set()))[1].add(project)
    room: dict[str, float] = dict(limits.together(own.values()).quota["compute"])
    for quota, projects in by_name.values():
        others = [own[project].quota["compute"] for project in own if project not in projects]
        for name, limit in left_for_us(quota, counted).items():
            limit += sum(amounts.get(name, math.inf) for amounts in others)
            if limit < math.inf:
                room[name] = min(limit, room.get(name, math.inf))
    return limits.made_of(room)
