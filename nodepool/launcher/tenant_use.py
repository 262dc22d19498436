# SPDX-License-Identifier: Apache-2.0
"""What the nodes of each tenant use, of all providers (rule Q-15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.driver.framework.tally import NodeTally

if TYPE_CHECKING:
    from nodepool.model.quota import QuotaInformation
    from nodepool.zk.nodepool_cache import NodepoolCache


class TenantUse:
    """Any thread may ask."""

    def __init__(self, cache: NodepoolCache) -> None:
        self._nodes = cache.nodes
        self._tally = NodeTally(cache.nodes, lambda node: [node.tenant_name] if node.tenant_name else [])

    def known(self, tenant_name: str) -> QuotaInformation:
        """As `used`, without having anything read."""
        return self._tally.used(tenant_name)[0]

    def used(self, tenant_name: str) -> QuotaInformation:
        """What all nodes of a tenant use, as far as it is known. Does not block.

        What changed under somebody's lock is read now, and counts the next time.
        """
        self._nodes.refresh_stale()
        return self._tally.used(tenant_name)[0]
