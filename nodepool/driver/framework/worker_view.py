# SPDX-License-Identifier: Apache-2.0
"""`PoolWorkerView`, `ProviderView`: what the handler of a request sees of the launcher and of its provider.

Providers make handlers, so the files of handlers know no provider: a driver says in a `Protocol` of its own what its
handler asks of the provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from nodepool.driver.config import ConfigPool, ProviderConfig
    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason
    from nodepool.plan.assignment import PoolInfo
    from nodepool.plan.node_choice import ReadyNodes
    from nodepool.zk.zookeeper import ZooKeeper


class ProviderView(Protocol):
    """What every handler sees of its provider, see `nodepool.driver.interface.Provider`."""

    PAUSE_AT_QUOTA: ClassVar[bool]
    LAUNCHES: ClassVar[bool]
    name: str


class PoolWorkerView(Protocol):
    """What a handler sees of its pool worker."""

    launcher_id: str
    ready_nodes: ReadyNodes

    def getZK(self) -> ZooKeeper: ...

    def getProviderManager(self) -> ProviderView: ...

    def getProviderConfig(self) -> ProviderConfig: ...

    def getPoolConfig(self) -> ConfigPool: ...

    def wake(self) -> None:
        """Ask for a pass soon: a launch ended, room may be there. Any thread; does not block."""
        ...

    def launch_ended(self, node: Node, result: str, text: str = "") -> None:
        """An attempt to launch a node ended. Any thread; does not block.

        :param result: as in metrics: ``ready`` or ``error.<class>``. ``text``: why it failed.
        """
        ...

    def launch_error(self, node: Node) -> str:
        """Why the last attempt to launch a node failed; empty = that is not known."""
        ...

    def evict(self, *, shared: bool = False) -> None:
        """Delete the oldest unused ready node, because a request waits for room (Q-8).

        :param shared: for room that all pools of the provider share: it may be a node of any of them.
        """
        ...

    def absent_pools(self) -> Sequence[PoolInfo]:
        """Pools that went a moment ago; their launchers may be on their way back."""
        ...

    def declines_of_others(self, request_id: str) -> Mapping[str, Reason | None]:
        """Why the other registered pools declined a request, by ``provider/pool``; None = not known here."""
        ...

    def provider_replaced(self) -> bool:
        """Was the provider stopped after this pass began? Then it launches nothing any more."""
        ...

    def tenant_has_place(self, node: Node, *, reused: bool = False) -> bool:
        """Is there room in the limits of its tenant for a node that is stored, counting all that were stored before?

        Blocks until what ZooKeeper announced has been read, if there are limits.

        :param reused: it was there before it was the tenant's: all others count.
        """
        ...

    def set_aside(self, node: Node) -> None:
        """The driver refused a ready node: do not offer it again for a while."""
        ...
