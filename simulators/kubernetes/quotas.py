# SPDX-License-Identifier: Apache-2.0
"""Resource quotas and limit ranges of namespaces."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from simulators.kubernetes import quantities
from simulators.kubernetes.errors import forbidden
from simulators.kubernetes.kinds import LIMIT_RANGES, PODS, QUOTAS, STORED, ObjectKind
from simulators.kubernetes.store import ObjectEvent, Store

Json = dict[str, Any]
#: Resources that a quota may name without ``requests.``.
_REQUESTS = ("cpu", "memory", "ephemeral-storage")
_COMPUTE = ("requests.", "limits.")


def pod_amounts(pod: Json) -> Counter[str]:
    """``requests.cpu``, ``limits.memory`` and so on: what the pod's containers ask for in all."""
    amounts: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        for group in ("requests", "limits"):
            for resource, amount in ((container.get("resources") or {}).get(group) or {}).items():
                amounts[f"{group}.{resource}"] += quantities.parse(amount)  # type: ignore[assignment]
    return amounts


class Quotas:
    """Refuses what is over a quota, and keeps the quotas' status."""

    def __init__(self, store: Store) -> None:
        self._store = store
        for kind in STORED:
            if kind.namespaced:
                store.table(kind).listeners.append(self._recount)

    def admit(self, kind: ObjectKind, content: Json) -> None:
        """Applies limit ranges to a new object, then refuses it if it is over a quota.

        :raises Refused: 403.
        """
        metadata = content["metadata"]
        if kind is PODS:
            for limits in self._store.all(LIMIT_RANGES, metadata["namespace"]):
                _apply_limits(content, limits)
        if kind is QUOTAS:
            return
        for quota in self._store.all(QUOTAS, metadata["namespace"]):
            self._check(quota, kind, content)

    def _check(self, quota: Json, kind: ObjectKind, content: Json) -> None:
        hard = quota["spec"].get("hard") or {}
        wanted = _use(kind, content, hard)
        if not wanted:
            return
        name, metadata = quota["metadata"]["name"], content["metadata"]
        if kind is PODS:
            missing = sorted(
                resource
                for resource in hard
                if _canonical(resource).startswith(_COMPUTE) and not _specified(content, _canonical(resource))
            )
            if missing:
                text = f"failed quota: {name}: must specify {','.join(missing)}"
                raise forbidden(kind, metadata["name"], text)
        used = self._used(quota)
        over = sorted(
            resource
            for resource, amount in wanted.items()
            if amount and used[resource] + amount > quantities.parse(hard[resource])
        )
        if over:
            parts = (
                ("requested", {resource: wanted[resource] for resource in over}),
                ("used", {resource: used[resource] for resource in over}),
                ("limited", {resource: quantities.parse(hard[resource]) for resource in over}),
            )
            texts = [
                f"{what}: {','.join(f'{resource}={_write(resource, amounts[resource])}' for resource in over)}"
                for what, amounts in parts
            ]
            raise forbidden(kind, metadata["name"], f"exceeded quota: {name}, {', '.join(texts)}")

    def _used(self, quota: Json) -> dict[str, Fraction]:
        hard = quota["spec"].get("hard") or {}
        used = dict.fromkeys(hard, Fraction(0))
        for kind, content in self._store.contents(quota["metadata"]["namespace"]):
            for resource, amount in _use(kind, content, hard).items():
                used[resource] += amount
        return used

    def _recount(self, event: ObjectEvent) -> None:
        namespace = event.content["metadata"]["namespace"]
        for quota in tuple(self._store.all(QUOTAS, namespace)):
            used = {resource: _write(resource, amount) for resource, amount in self._used(quota).items()}
            status = {"hard": quota["spec"].get("hard") or {}, "used": used}
            if quota.get("status") != status:
                self._store.change(QUOTAS, quota, lambda content, status=status: content.update(status=status))  # type: ignore[misc]


def _canonical(resource: str) -> str:
    return f"requests.{resource}" if resource in _REQUESTS else resource


def _use(kind: ObjectKind, content: Json, hard: Json) -> dict[str, Fraction]:
    """What one object counts in a quota."""
    counted = (kind.plural, f"count/{kind.resource}")
    use = {resource: Fraction(1) for resource in hard if resource in counted}
    if kind is PODS:
        if (content.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return {}
        amounts = pod_amounts(content)
        for resource in hard:
            if _canonical(resource).startswith(_COMPUTE):
                use[resource] = Fraction(amounts[_canonical(resource)])
    return use


def _specified(pod: Json, resource: str) -> bool:
    group, _, name = resource.partition(".")
    return all(name in ((item.get("resources") or {}).get(group) or {}) for item in pod["spec"]["containers"])


def _write(resource: str, amount: Fraction) -> str:
    return quantities.write(amount, binary="memory" in resource or "storage" in resource)


def _apply_limits(pod: Json, limit_range: Json) -> None:
    """Defaults of containers, then the most that they may have.

    :raises Refused: 403.
    """
    entries = [entry for entry in limit_range["spec"].get("limits") or () if entry.get("type") == "Container"]
    for container in pod["spec"]["containers"]:
        resources = container.setdefault("resources", {})
        for entry in entries:
            limits = entry.get("default") or {}
            requests = limits | (entry.get("defaultRequest") or {})
            for group, defaults in (("limits", limits), ("requests", requests)):
                for resource, amount in defaults.items():
                    resources.setdefault(group, {}).setdefault(resource, amount)
            for resource, most in (entry.get("max") or {}).items():
                limit = (resources.get("limits") or {}).get(resource)
                if limit is None or quantities.parse(limit) > quantities.parse(most):
                    found = "no limit is specified" if limit is None else f"limit is {limit}"
                    text = f"maximum {resource} usage per Container is {most}, but {found}"
                    raise forbidden(PODS, pod["metadata"]["name"], text)
