# SPDX-License-Identifier: Apache-2.0
"""`MetastaticProvider`: a `StateMachineProvider` that gives ZooKeeper to its adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.driver.metastatic.adapter import MetastaticAdapter
from nodepool.driver.metastatic.allocator import SlotAllocator
from nodepool.driver.statemachine import StateMachineProvider

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nodepool.driver.metastatic.config import MetastaticProviderConfig
    from nodepool.driver.statemachine.launch import NodeLaunch
    from nodepool.model.reasons import Reason
    from nodepool.zk.zookeeper import ZooKeeper


class MetastaticProvider(StateMachineProvider):
    """Nodes on slots of nodes that other providers have made."""

    adapter: MetastaticAdapter
    provider: MetastaticProviderConfig

    def __init__(self, adapter: MetastaticAdapter, provider_config: MetastaticProviderConfig) -> None:
        super().__init__(adapter, provider_config)
        self._allocator: SlotAllocator | None = None

    def start(self, zk_conn: ZooKeeper) -> None:
        """Begin to look after backing nodes; does not block.

        Without a cache, in a command, nothing is looked after: the provider is there to delete one node.
        """
        super().start(zk_conn)
        if zk_conn.cache is not None:
            rules = self.provider.rules()
            self._allocator = SlotAllocator(
                zk_conn, self.name, rules, self.scheduler, self.log, self.wake_workers, self.lost.ended
            )
        self.adapter.begin(zk_conn, self._allocator)
        if self._allocator is not None:
            self._allocator.start()

    def idle(self) -> None:
        super().idle()
        if self._allocator is not None:
            self._allocator.idle()

    def stop(self) -> None:
        if self._allocator is not None:
            self._allocator.drain()
        super().stop()

    def heldLabels(self, pool_name: str) -> Mapping[str, Reason]:
        """T-13."""
        pool = self.provider.pools.get(pool_name)
        return {} if self._allocator is None or pool is None else self._allocator.held_labels(pool.labels.values())

    def stopWaiting(self, node_ids: Collection[str]) -> None:
        """T-13: launches that wait for a backing node that nobody has begun to make."""
        if self._allocator is not None:
            self._allocator.stop_waiting(node_ids)

    def launch_ended(self, launch: NodeLaunch) -> None:
        super().launch_ended(launch)
        if self._allocator is not None:
            self._allocator.launch_ended(launch.node.key)
