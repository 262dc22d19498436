# SPDX-License-Identifier: Apache-2.0
"""`StaticNodeRequestHandler`: hands out nodes that are ready, and never launches (rule S-11)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Protocol

from nodepool.driver.framework.worker_view import ProviderView
from nodepool.driver.handler import NodeRequestHandler
from nodepool.model.reasons import Reason, ReasonCode, ReasonText
from nodepool.plan.node_choice import can_match
from nodepool.plan.queue import MIN_READY_REQUESTOR
from nodepool.plan.static_room import too_few_slots

if TYPE_CHECKING:
    from nodepool.model.node import Node


_NO_MIN_READY: Final = Reason(ReasonCode.POOL_WITHOUT_LAUNCHES, "static hosts have no min-ready", {"limit": 0})


class HostProvider(ProviderView, Protocol):
    """What the handler asks of the provider."""

    def slot_labels(self, pool_name: str) -> list[tuple[str, ...]]:
        """Labels of each slot of a pool, in use or not."""
        ...

    def check_alive(self, node: Node) -> Future[bool]:
        """Start to check whether a ready node may be handed out (S-9); does not block."""
        ...


class StaticNodeRequestHandler(NodeRequestHandler):
    """Serves a request from registered hosts. What cannot be served now is given back and waits (A-7, Q-12)."""

    manager: HostProvider

    @property
    def alive_thread_count(self) -> int:
        """Nothing is ever launched."""
        return 0

    def imagesAvailable(self) -> bool:
        """There are no images."""
        return True

    def hasProviderQuota(self, node_types: list[str]) -> bool:
        """Are there enough hosts in the pool, if all were free? More will not come by waiting."""
        return can_match(node_types, self.manager.slot_labels(self.pool.name))

    def hasRemainingQuota(self, ntype: str) -> bool:
        """There is no room for another node: the hosts are what they are."""
        return False

    def launch(self, node: Node) -> None:
        raise NotImplementedError("static hosts are not launched")

    def launchesComplete(self) -> bool:
        return True

    def getDeclinedReasons(self) -> list[str]:
        """More nodes than the pool has slots (S-15); min-ready requests: their nodes are always ready (S-14)."""
        reasons = self.basic_decline_reasons()
        if not reasons:
            short = too_few_slots(self.request.node_types, self.manager.slot_labels(self.pool.name))
            reasons = [] if short is None else [ReasonText(short)]
        if not reasons and self.request.requestor == MIN_READY_REQUESTOR:
            reasons = [ReasonText(_NO_MIN_READY)]
        return reasons

    def checkReusableNode(self, node: Node) -> bool:
        """Does the node's host answer? Blocks for at most its timeout."""
        return self.startReusableNodeCheck(node).result()

    def startReusableNodeCheck(self, node: Node) -> Future[bool]:
        """`checkReusableNode` in a thread of the provider's pool; does not block (S-9)."""
        return self.manager.check_alive(node)
