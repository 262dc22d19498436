# SPDX-License-Identifier: Apache-2.0
"""`KeptAddresses`: how many free floating IPs pools keep (``floating-ip-pool``, IV-13). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nodepool.driver.statemachine.metadata import POOL_KEY

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.config import IbmProviderConfig
    from nodepool.driver.ibmvpc.types import IbmFloatingIp


class KeptAddresses:
    """Of one provider, as its configuration says."""

    def __init__(self, config: IbmProviderConfig) -> None:
        self._config = config

    def of(self, floating: IbmFloatingIp) -> int:
        """How many free ones of its pool are kept."""
        pool = self._config.pools.get(floating.metadata.get(POOL_KEY, ""))
        return pool.floating_ip_pool if pool is not None and pool.public_ipv4 else 0

    def none(self, floating: IbmFloatingIp) -> bool:
        """Does its pool delete each one? Then no launcher uses again what another one freed."""
        pool = self._config.pools.get(floating.metadata.get(POOL_KEY, ""))
        return pool is not None and pool.public_ipv4 and not pool.floating_ip_pool

    def surplus(self, free: Iterable[IbmFloatingIp]) -> list[IbmFloatingIp]:
        """Of free ones those that are more than their pools keep: of all launchers the same."""
        by_group: dict[str, list[IbmFloatingIp]] = {}
        for one in sorted(free, key=lambda one: (one.created, one.id)):
            by_group.setdefault(one.group, []).append(one)
        return [one for group in by_group.values() for one in group[self.of(group[0]) :]]
