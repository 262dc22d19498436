# SPDX-License-Identifier: Apache-2.0
"""Tenant resource limits (behaviour.md A-8, Q-15, Q-16)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.driver.quota import QuotaSupport, QuotaUnknown
from nodepool.exceptions import RuntimeConfigurationException, ZKConnectionError
from nodepool.model.quota import QuotaInformation
from nodepool.plan.queue import Kind

if TYPE_CHECKING:
    from nodepool.launcher.pool_worker import PoolWorker
    from nodepool.model.node import Node
    from nodepool.zk.nodepool_cache import NodepoolCache

#: Longest wait for the cache to have read what it was told of.
SETTLE_SECONDS: Final = 5.0


class TenantCheck:
    """Compares what each limited tenant uses with its limits. Owned by the pool worker's thread."""

    def __init__(self, worker: PoolWorker) -> None:
        self._worker = worker
        #: tenant -> use at its first check in this pass, and what was accepted since
        self._used: dict[str, QuotaInformation] = {}
        #: tenant -> what was said of the last error
        self._errors: dict[str, str] = {}

    def begin_pass(self) -> None:
        self._used.clear()

    def limits(self, kind: Kind) -> bool:
        """Has the tenant of such requests any limits?"""
        return bool(kind.tenant_name) and kind.tenant_name in self._worker.tenant_limits()

    def allows(self, kind: Kind, ready: Iterable[Node] | None = None) -> bool:
        """Would one more request of this kind stay within its tenant's limits? An error says no.

        :param ready: the nodes that it gets; None = new ones.
        """
        name = kind.tenant_name
        limits = self._worker.tenant_limits()
        if not name or name not in limits:
            return True
        try:
            left = _limit(limits[name])
            if name not in self._used:
                self._used[name] = self._worker.tenant_use(name)
            left.subtract(self._used[name])
            left.subtract(self._need(kind) if ready is None else _size(ready))
        except Exception as error:  # noqa: BLE001 - reported with its traceback unless it is an expected one
            self._report(name, error)
            return False
        self._errors.pop(name, None)
        return left.non_negative()

    def _report(self, tenant: str, error: Exception) -> None:
        """Once for each error, not at each look; with a traceback if nobody expected it."""
        text = f"{type(error).__name__}: {error}"
        if self._errors.get(tenant) == text:
            return
        self._errors[tenant] = text
        expected = isinstance(error, RuntimeConfigurationException | QuotaUnknown | ZKConnectionError)
        self._worker.log.warning(
            "Limits of tenant %s could not be checked, its requests wait: %s",
            *(tenant, text),
            exc_info=None if expected else error,
        )

    def add(self, kind: Kind) -> None:
        """Count a request that was accepted in this pass."""
        name = kind.tenant_name or ""
        if name in self._used:
            self._used[name].add(self._need(kind))

    def _need(self, kind: Kind) -> QuotaInformation:
        """What a request needs; labels that are not in this pool are not counted."""
        need = QuotaInformation()
        manager = self._worker.getProviderManager()
        if isinstance(manager, QuotaSupport):
            pool = self._worker.getPoolConfig()
            supported = self._worker.getProviderConfig().getSupportedLabels(self._worker.pool_name)
            for label in kind.labels:
                if label in supported:
                    need.add(manager.quotaNeededByLabel(label, pool))
        return need


def has_place(
    node: Node, limits: Mapping[str, dict[str, float]], cache: NodepoolCache, *, reused: bool = False
) -> bool:
    """Is there room for a node that is stored already, counting those of its tenant that were stored before it?

    Several launchers may see the same room and fill it. Ids of nodes grow, so of those who did the first has its place.
    Blocks until what ZooKeeper announced has been read.

    :param reused: it was there before it was the tenant's. Its id says nothing, so all others count: one that was
        stored later may have been found in order already. Two that are reused may both be refused.
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
        before = reused or (other.id or "") < (node.id or "")
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
