# SPDX-License-Identifier: Apache-2.0
"""Quota of one provider: limits, use, room (behaviour.md Q-1 to Q-6; driver-api.md 12)."""

from __future__ import annotations

import abc
import logging
import math
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from nodepool.exceptions import RuntimeConfigurationException
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.config import ConfigPool, ProviderConfig
    from nodepool.zk.zookeeper import ZooKeeper

#: Seconds for which a provider's limits are not asked for again (Q-5).
LIMITS_AGE_SECONDS: Final = 300.0


class QuotaSupport(abc.ABC):
    """Mix-in for providers that have quota. Needs ``provider`` (configuration) and ``zk``.

    ``_quota_lock`` guards the cached limits; it is not held while the cloud is asked.
    """

    provider: ProviderConfig
    zk: ZooKeeper | None

    def __init__(self) -> None:
        self._quota_log = logging.getLogger("nodepool.driver.QuotaSupport")
        self._quota_lock = threading.Lock()
        self._limits: QuotaInformation | None = None
        self._limits_until = 0.0
        self._error_labels: set[str] = set()

    @abc.abstractmethod
    def quotaNeededByLabel(self, label: str, pool: ConfigPool) -> QuotaInformation:
        """What one node of a label uses. Raises RuntimeConfigurationException: the label can never work."""

    @abc.abstractmethod
    def unmanagedQuotaUsed(self) -> QuotaInformation:
        """What others use of the same quota (Q-4)."""

    @abc.abstractmethod
    def getProviderLimits(self) -> QuotaInformation:
        """Ask the cloud for its limits; may block."""

    def invalidateQuotaCache(self) -> None:
        """Ask the cloud again next time, because it said that a quota is used up."""
        with self._quota_lock:
            self._limits_until = 0.0

    def estimatedNodepoolQuota(self) -> QuotaInformation:
        """Limits minus unmanaged use, cached for 300 s; an old value serves when the cloud gives an error."""
        with self._quota_lock:
            if self._limits is not None and time.monotonic() < self._limits_until:
                return self._limits.copy()
        try:
            limits = self.getProviderLimits()
            limits.subtract(self.unmanagedQuotaUsed())
        except Exception:
            with self._quota_lock:
                if self._limits is None:
                    raise
                self._quota_log.exception("Provider %s: limits unknown, using old ones", self.provider.name)
                return self._limits.copy()
        with self._quota_lock:
            self._limits = limits
            self._limits_until = time.monotonic() + LIMITS_AGE_SECONDS
            return limits.copy()

    def estimatedNodepoolQuotaUsed(self, pool: ConfigPool | None = None) -> QuotaInformation:
        """What nodes in ZooKeeper use, in every state (Q-3).

        :param pool: only nodes of this pool; None = of the provider.
        """
        used = QuotaInformation()
        if self.zk is None:
            return used
        for node in self.zk.nodeIterator():
            if node.provider != self.provider.name or (pool is not None and node.pool != pool.name):
                continue
            if node.resources:
                used.add(QuotaInformation.from_resources(node.resources))
                continue
            node_pool = self.provider.pools.get(node.pool or "")
            label = node.type[0] if node.type else None
            if node_pool is None or label is None or label not in self.provider.getSupportedLabels(node_pool.name):
                self._quota_log.debug("Node %s: pool or label unknown, not counted", node.id)
                continue
            needed = self._needed(node_pool, [label])
            if needed is not None:
                used.add(needed)
        return used

    def poolQuota(self, pool: ConfigPool) -> QuotaInformation:
        """The limits that the configuration sets for a pool (Q-18: volumes too)."""

        def limit(name: str) -> float:
            value = getattr(pool, name, None)
            return math.inf if value is None else value

        limits = QuotaInformation(
            instances=limit("max_servers"),
            cores=limit("max_cores"),
            ram=limit("max_ram"),
            volumes=limit("max_volumes"),
            default=math.inf,
            **{"volume-gb": limit("max_volume_gb")},
        )
        amounts = limits.quota["compute"]
        for key, value in (getattr(pool, "max_resources", None) or {}).items():
            # One that has a key of its own too, e.g. cores: both limits hold.
            amounts[str(key)] = min(amounts.get(str(key), math.inf), float(value))
        return limits

    def canEverFit(self, pool: ConfigPool, labels: Iterable[str]) -> bool:
        """Would these nodes fit together if nothing of ours ran? (Q-1, Q-14)"""
        needed = self._needed(pool, labels)
        if needed is None:
            return False
        return self._fits(pool, needed)

    def roomForOne(self, pool: ConfigPool, label: str) -> bool:
        """Is there room for one more node of a label now? (Q-2)"""
        needed = self._needed(pool, [label])
        if needed is None:
            return False
        limits = self.poolQuota(pool)
        limits.subtract(self.estimatedNodepoolQuotaUsed(pool))
        limits.subtract(needed)
        if not limits.non_negative():
            return False
        if pool.ignore_provider_quota:
            return True
        limits = self.estimatedNodepoolQuota()
        limits.subtract(self.estimatedNodepoolQuotaUsed())
        limits.subtract(needed)
        return limits.non_negative()

    def _fits(self, pool: ConfigPool, needed: QuotaInformation) -> bool:
        limits = self.poolQuota(pool)
        limits.subtract(needed)
        if not limits.non_negative():
            return False
        if pool.ignore_provider_quota:
            return True
        limits = self.estimatedNodepoolQuota()
        limits.subtract(needed)
        return limits.non_negative()

    def _needed(self, pool: ConfigPool, labels: Iterable[str]) -> QuotaInformation | None:
        total = QuotaInformation()
        for label in labels:
            try:
                total.add(self.quotaNeededByLabel(label, pool))
            except RuntimeConfigurationException as error:
                if label not in self._error_labels:
                    self._quota_log.error("Provider %s: label %s can never work: %s", self.provider.name, label, error)
                self._error_labels.add(label)
                return None
        return total

    def errorLabels(self) -> list[str]:
        """Labels whose need cannot be determined for a permanent reason (Q-14)."""
        return sorted(self._error_labels)

    def getLabelQuota(self) -> dict[str, float]:
        """How many nodes of each label would still fit; unlimited when nothing limits them."""
        result: dict[str, float] = {}
        for pool in self.provider.pools.values():
            for label in self.provider.getSupportedLabels(pool.name):
                result[label] = max(result.get(label, 0), self._available(pool, label))
        return result

    def _available(self, pool: ConfigPool, label: str) -> float:
        needed = self._needed(pool, [label])
        if needed is None:
            return 0
        left = [self.poolQuota(pool)]
        left[0].subtract(self.estimatedNodepoolQuotaUsed(pool))
        if not pool.ignore_provider_quota:
            provider_left = self.estimatedNodepoolQuota()
            provider_left.subtract(self.estimatedNodepoolQuotaUsed())
            left.append(provider_left)
        counts: list[float] = [math.inf]
        for quota in left:
            for name, amount in needed.quota["compute"].items():
                if amount > 0:
                    available: Any = quota.quota["compute"].get(name, quota.default)
                    counts.append(math.inf if math.isinf(available) else max(0, available // amount))
        return min(counts)
