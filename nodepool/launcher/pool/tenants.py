# SPDX-License-Identifier: Apache-2.0
"""Tenant resource limits (rules A-8, Q-15, Q-16)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.driver import gateway
from nodepool.driver.framework.quota_support import QuotaSupport, QuotaUnknown
from nodepool.exceptions import RuntimeConfigurationException, ZKConnectionError
from nodepool.model import states
from nodepool.model.quota import QuotaInformation, first_shortage
from nodepool.model.reasons import Reason, ReasonCode, tenant_limit
from nodepool.plan.queue import RequestKind

if TYPE_CHECKING:
    import logging

    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.model.node import Node
    from nodepool.zk.nodepool_cache import NodepoolCache

#: Longest wait for the cache to have read what it was told of.
SETTLE_SECONDS: Final = 5.0


class TenantCheck:
    """Compares what each limited tenant uses with its limits. Owned by the pool worker's thread."""

    def __init__(self, pool: PassContext, log: logging.Logger) -> None:
        self._pool = pool
        self.log = log
        #: tenant -> use at its first check in this pass, and what was accepted since
        self._used: dict[str, QuotaInformation] = {}
        #: Tenants whose first request waits for room in the limits, in this pass, and what it waits for.
        self._reserved: dict[str, Reason] = {}
        #: tenant -> what was said of the last error
        self._errors: dict[str, str] = {}

    def begin_pass(self) -> None:
        self._used.clear()
        self._reserved.clear()

    def limits(self, kind: RequestKind) -> bool:
        """Has the tenant of such requests any limits?"""
        return bool(kind.tenant_name) and kind.tenant_name in self._pool.tenant_limits()

    def exceeded(self, kind: RequestKind, ready: Iterable[Node] | None = None) -> Reason | None:
        """Why one more request of this kind would not stay within its tenant's limits; None = it would.

        :param ready: the nodes that it gets; None = new ones.
        """
        name = kind.tenant_name
        limits = self._pool.tenant_limits()
        if not name or name not in limits:
            return None
        try:
            if name not in self._used:
                self._used[name] = self._pool.tenant_use(name)
                self._used[name].add(self._expected(name))
            need = self._need(kind.labels) if ready is None else _size(ready)
            found = first_shortage(_limit(limits[name]), self._used[name], need)
        except Exception as error:  # noqa: BLE001 - reported with its traceback unless it is an expected one
            self._report(name, error)
            return Reason(ReasonCode.WAIT_TENANT_UNKNOWN, f"the limits of tenant {name} could not be checked")
        self._errors.pop(name, None)
        if found is None:
            return None
        return tenant_limit(name, found.resource, limit=found.limit, used=found.used, needed=found.needed)

    def reserved_for(self, kind: RequestKind) -> Reason | None:
        """What another request of the tenant waits for that comes first; None = there is none.

        Those that need less would always be faster otherwise.
        """
        return self._reserved.get(kind.tenant_name or "")

    def reserve(self, kind: RequestKind, cause: Reason) -> None:
        """A request waits for room in its tenant's limits. What comes after it in this pass is to wait, too.

        Not for one that would need more than all that is not on hold, which may be for days.
        """
        name = kind.tenant_name or ""
        limits = self._pool.tenant_limits().get(name)
        # A new configuration comes at any time, and may have none.
        if limits is None or name in self._errors:
            return
        left = _limit(limits)
        left.subtract(self._need(kind.labels))
        left.subtract(_size(node for node in self._nodes(name) if node.state == states.HOLD))
        if left.non_negative():
            self._reserved[name] = cause

    def _expected(self, name: str) -> QuotaInformation:
        """What requests of a tenant that some launcher works on will need beyond the nodes that they have."""
        requests = [r for r in self._pool.cache.requests.values() if r.tenant_name == name]
        missing = {r.id: Counter(r.node_types) for r in requests if r.state == states.PENDING}
        for node in self._nodes(name) if missing else ():
            labels = missing.get(node.allocated_to)
            label = None if labels is None else next((label for label in node.type if labels[label] > 0), None)
            if labels is not None and label is not None:
                labels[label] -= 1
        total = QuotaInformation()
        for labels in missing.values():
            total.add(self._need(labels.elements()))
        return total

    def _nodes(self, tenant: str) -> list[Node]:
        return [node for node in self._pool.cache.nodes.values() if node.tenant_name == tenant]

    def _report(self, tenant: str, error: Exception) -> None:
        """Once for each error, not at each look; with a traceback if nobody expected it."""
        text = f"{type(error).__name__}: {error}"
        if self._errors.get(tenant) == text:
            return
        self._errors[tenant] = text
        expected = isinstance(error, RuntimeConfigurationException | QuotaUnknown | ZKConnectionError)
        self.log.warning(
            "Limits of tenant %s could not be checked, its requests wait: %s",
            *(tenant, text),
            exc_info=None if expected else error,
        )

    def add(self, kind: RequestKind) -> None:
        """Count a request that was accepted in this pass."""
        name = kind.tenant_name or ""
        if name in self._used:
            self._used[name].add(self._need(kind.labels))

    def _need(self, labels: Iterable[str]) -> QuotaInformation:
        """What nodes of some labels need; labels that are not in this pool are not counted."""
        need = QuotaInformation()
        provider = self._pool.provider
        if isinstance(provider, QuotaSupport):
            pool, supported = self._pool.pool_config, self._pool.labels
            for label in labels:
                if label in supported:
                    need.add(gateway.quota_needed_by_label(provider, label, pool))
        return need


def has_place(
    node: Node, limits: Mapping[str, dict[str, float]], cache: NodepoolCache, *, reused: bool = False
) -> bool:
    """Is there room for a node that is stored already, counting those of its tenant that were stored before it?

    Several launchers may see the same room and fill it. Ids of nodes grow, so of those who did the first has its place.
    Blocks until what ZooKeeper announced has been read.

    :param reused: it was there before it was the tenant's. Its id says nothing, so all others count: one that was
        stored later may have been found in order already. Two that are reused may both be given back.
    """
    name = node.tenant_name
    if not name or name not in limits:
        return True
    # A ready node that somebody took is under his lock, where changes are not read otherwise.
    cache.nodes.refresh_stale()
    if not cache.nodes.wait_settled(SETTLE_SECONDS):
        return False
    left = _limit(limits[name])
    for other in cache.nodes.values():
        before = reused or other.key < node.key
        if other.tenant_name == name and other.id != node.id and before:
            left.subtract(QuotaInformation.from_resources(other.resources or {}))
    left.subtract(QuotaInformation.from_resources(node.resources or {}))
    return left.non_negative()


def _size(nodes: Iterable[Node]) -> QuotaInformation:
    total = QuotaInformation()
    for node in nodes:
        total.add(QuotaInformation.from_resources(node.resources or {}))
    return total


def _limit(configured: dict[str, float]) -> QuotaInformation:
    quota = QuotaInformation(default=math.inf)
    quota.quota["compute"].update(configured)
    return quota
