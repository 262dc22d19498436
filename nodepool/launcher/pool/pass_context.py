# SPDX-License-Identifier: Apache-2.0
"""`PassContext`: who a pool is, and the provider and configuration that a pass of it works with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.driver import gateway
from nodepool.model import states
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan import maintenance_effect
from nodepool.plan.assignment import PoolInfo

if TYPE_CHECKING:
    from nodepool.driver.config import ConfigPool, ProviderConfig
    from nodepool.driver.interface import Provider
    from nodepool.launcher.pool.context import PoolContext
    from nodepool.model.maintenance import Maintenance
    from nodepool.model.quota import QuotaInformation
    from nodepool.model.request import NodeRequest
    from nodepool.zk.nodepool_cache import NodepoolCache
    from nodepool.zk.zookeeper import ZooKeeper


#: A pool of this launcher has declined a request, and notes its reason at this moment or did so long ago.
IN_ITS_LINE: Final = Reason(ReasonCode.DECLINED_BEFORE, "declined before, its own line in this log says why")


class PassContext:
    """Owned by the pool worker's thread; all parts of a pool share it.

    :param launcher: the same for all pools of the launcher.
    :param launcher_id: of this pool among all registered pools.
    """

    def __init__(self, launcher: PoolContext, provider_name: str, pool_name: str, launcher_id: str) -> None:
        self.launcher = launcher
        self.provider_name = provider_name
        self.pool_name = pool_name
        self.launcher_id = launcher_id
        #: For the log, such as ``cloud-1/main``.
        self.place = f"{provider_name}/{pool_name}"
        self._provider: Provider | None = None
        self._config: ProviderConfig | None = None
        self._labels: frozenset[str] = frozenset()
        #: Why this pool takes nothing new. Any thread may read it: a pass that begins later takes nothing.
        self.hold: Maintenance | None = None
        #: Labels that this pool does not serve, and why.
        self.held_labels: Mapping[str, Reason] = {}
        #: Is one of them not served because of what its nodes need?
        self.needs_held = False

    # -- constant during a pass --

    def refresh(self) -> bool:
        """Take the current configuration, provider and maintenance for a pass; False = this pool is about to stop."""
        maintenance = self.launcher.maintenance
        self.hold = maintenance.of_pool(self.provider_name, self.pool_name)
        provider = self.launcher.provider(self.provider_name)
        if provider is None or self.pool_name not in provider.provider.pools:
            return False
        config = provider.provider
        if self._config is not config:
            # First: the driver may raise, and no configuration may stand here with the labels of another one.
            self._labels = frozenset(config.getSupportedLabels(self.pool_name))
            self._config = config
        self._provider = provider
        needs = gateway.held_labels(provider, self.pool_name)
        self.needs_held = bool(needs)
        records = maintenance.of_labels()
        self.held_labels = {**needs, **{name: maintenance_effect.reason(record) for name, record in records.items()}}
        return True

    def held(self, labels: Collection[str]) -> Reason | None:
        """Why this pool takes no request for these labels now (MT-3, MT-5, MT-11)."""
        if self.hold is not None:
            return maintenance_effect.reason(self.hold)
        return next((self.held_labels[label] for label in labels if label in self.held_labels), None)

    @property
    def has_provider(self) -> bool:
        """Was there a pass already? Any thread."""
        return self._provider is not None

    @property
    def provider(self) -> Provider:
        if self._provider is None:
            raise RuntimeError(f"provider {self.provider_name} is not there")
        return self._provider

    @property
    def config(self) -> ProviderConfig:
        if self._config is None:
            raise RuntimeError(f"provider {self.provider_name} is not configured")
        return self._config

    @property
    def pool_config(self) -> ConfigPool:
        pool: ConfigPool = self.config.pools[self.pool_name]
        return pool

    @property
    def labels(self) -> frozenset[str]:
        """Labels of the pool: the same object as long as the configuration is the same."""
        return self._labels

    @property
    def max_concurrency(self) -> float:
        """0 = nothing is ever launched; below 0 = no limit. Before the first pass there is none."""
        return -1 if self._config is None else self._config.max_concurrency

    # -- as it is now --

    @property
    def zk(self) -> ZooKeeper:
        return self.launcher.zk

    @property
    def cache(self) -> NodepoolCache:
        return self.launcher.cache

    def provider_replaced(self) -> bool:
        """Did the provider of this pass end meanwhile?"""
        return self.launcher.provider(self.provider_name) is not self._provider

    def registered_pools(self) -> list[PoolInfo]:
        return self.launcher.pools.registered()

    def absent_pools(self) -> list[PoolInfo]:
        return self.launcher.pools.absent()

    def tenant_limits(self) -> Mapping[str, dict[str, float]]:
        return self.launcher.tenant_limits()

    def tenant_use(self, tenant_name: str) -> QuotaInformation:
        """What all nodes of a tenant use, of all providers."""
        return self.launcher.tenant_use(tenant_name)

    def launches_running(self) -> int:
        """Launches in progress in the provider, over all its pools (A-10)."""
        return sum(pool.own_launches() for pool in self.launcher.siblings_of(self.provider_name))

    def sibling_serves(self, request_id: str) -> bool:
        """Is another pool of this launcher about to fulfil a request with ready nodes?"""
        mine = self.launcher_id
        return any(pool.launcher_id != mine and pool.fulfils(request_id) for pool in self.launcher.siblings())

    def declines_of_others(self, request_id: str) -> dict[str, Reason | None]:
        """Why the other registered pools declined a request, by ``provider/pool``; None = not known here."""
        here = {pool.launcher_id: pool for pool in self.launcher.siblings()}
        found: dict[str, Reason | None] = {}
        for pool in self.registered_pools():
            if pool.id != self.launcher_id:
                place = f"{pool.provider_name}/{pool.name}"
                reason = (here[pool.id].declined(request_id) or IN_ITS_LINE) if pool.id in here else None
                found[place] = found.get(place) or reason
        return found

    def is_open(self, request: NodeRequest) -> bool:
        """May this pool still take or decline a request? (A-2)"""
        return request.state == states.REQUESTED and self.launcher_id not in request.declined_by

    def open_request(self, request_id: str) -> NodeRequest | None:
        """A request as the cache has it, if this pool may take or decline it."""
        request = self.cache.requests.get(request_id)
        return request if request is not None and self.is_open(request) else None
