# SPDX-License-Identifier: Apache-2.0
"""`PoolServices`: what the handlers of a pool get as ``pw`` (`nodepool.driver.framework.worker_view`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nodepool.model import states
from nodepool.runtime.provider_start import facade_for

if TYPE_CHECKING:
    from nodepool.compat.launcher_view import LauncherView
    from nodepool.driver.config import ConfigPool, ProviderConfig
    from nodepool.driver.interface import Provider
    from nodepool.launcher.pool.eviction import Eviction
    from nodepool.launcher.pool.launch_log import LaunchLog
    from nodepool.launcher.pool.nodes import FreeNodes
    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.launcher.pool.room import Room
    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason
    from nodepool.plan.assignment import PoolInfo
    from nodepool.zk.zookeeper import ZooKeeper


class PoolServices:
    """For the pool worker's thread; `wake` for any.

    :param wake: asks for a pass.
    """

    def __init__(
        self,
        pool: PassContext,
        free: FreeNodes,
        eviction: Eviction,
        room: Room,
        launch_log: LaunchLog,
        wake: Callable[[], None],
    ) -> None:
        self.launcher_id = pool.launcher_id
        self.provider_name = pool.provider_name
        self.pool_name = pool.pool_name
        self.ready_nodes = free.ready
        self._pool = pool
        self._free = free
        self._eviction = eviction
        self._room = room
        self._launch_log = launch_log
        self._wake = wake

    def getZK(self) -> ZooKeeper:
        return facade_for(self._pool.config, self._pool.zk)

    def getProviderManager(self) -> Provider:
        return self._pool.provider

    def getProviderConfig(self) -> ProviderConfig:
        return self._pool.config

    def getPoolConfig(self) -> ConfigPool:
        return self._pool.pool_config

    @property
    def nodepool(self) -> LauncherView:
        """For drivers written for 11.0.0."""
        from nodepool.compat.launcher_view import LauncherView

        return LauncherView(self.getZK(), self._pool.launcher.provider)

    def wake(self) -> None:
        self._wake()

    def launch_ended(self, node: Node, result: str, text: str = "") -> None:
        if result == states.READY:
            self._launch_log.ready(node.type[0] if node.type else None, node.created_time)
        else:
            self._launch_log.failed(node.id, node.type[0] if node.type else None, result, text)

    def launch_error(self, node: Node) -> str:
        return self._launch_log.error_of(node.key)

    def evict(self, *, shared: bool = False) -> None:
        self._eviction.evict(shared=shared)

    def absent_pools(self) -> list[PoolInfo]:
        return self._pool.absent_pools()

    def declines_of_others(self, request_id: str) -> dict[str, Reason | None]:
        return self._pool.declines_of_others(request_id)

    def provider_replaced(self) -> bool:
        return self._pool.provider_replaced()

    def tenant_has_place(self, node: Node, *, reused: bool = False) -> bool:
        return self._room.has_place(node, reused=reused)

    def set_aside(self, node: Node) -> None:
        self._free.set_aside(node)
