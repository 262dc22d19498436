# SPDX-License-Identifier: Apache-2.0
"""`Eviction`: an unused ready node is deleted for a request that waits for room (rules Q-8, Q-9)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.exceptions import ZKConflict
from nodepool.model import states
from nodepool.plan.node_choice import is_free

if TYPE_CHECKING:
    import logging

    from nodepool.launcher.pool.nodes import FreeNodes
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper

#: Seconds after a node of the pool went to `deleting` in which no other is evicted.
EVICTION_SECONDS: Final = 300.0
#: So often it is looked whether another pool of the provider has one, at most: all nodes are looked at.
ELSEWHERE_SECONDS: Final = 10.0


class Eviction:
    """Owned by the pool worker's thread.

    :param place: provider and name of the pool.
    :param free: the pool's nodes that nobody uses.
    :param is_locked: does somebody hold the lock of a node?
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        place: tuple[str, str],
        free: FreeNodes,
        zk: ZooKeeper,
        is_locked: Callable[[str], bool],
        log: logging.Logger,
        clock: Callable[[], float] = wall_time,
    ) -> None:
        self._place = place
        self._free = free
        self._zk = zk
        self._is_locked = is_locked
        self.log = log
        self._clock = clock
        #: When a node of the pool was last seen to go to `deleting`, or was sent there.
        self._last = -math.inf
        self._next_look_elsewhere = -math.inf

    def node_seen(self, node: Node) -> None:
        """Note a node; only those of the pool count."""
        if (node.provider, node.pool) != self._place:
            return
        if node.state == states.DELETING and node.state_time is not None:
            self._last = max(self._last, min(node.state_time, self._clock()))

    def evict(self, *, shared: bool = False) -> None:
        """Mark the oldest unused ready node of the pool `deleting`, unless one went lately.

        :param shared: the room is missing that the pools of the provider share. If this pool has no such node, another
            pool's goes: nobody else would ever make room for a request that waits here.
        """
        if self._clock() - self._last < EVICTION_SECONDS:
            return
        oldest = self._free.oldest_unused()
        if oldest is None and shared:
            oldest = self._oldest_elsewhere()
        if oldest is None:
            return
        node = oldest.copy()
        node.state = states.DELETING
        self._free.ready.discard(node.key)
        try:
            self._zk.nodes.save_unlocked(node)
        except ZKConflict as conflict:
            self.log.debug("Ready node %s was not evicted: %s", node.id, conflict)
            return
        self._last = self._clock()
        self.log.info("Evicting unused ready node %s: a request waits for room", node.id)

    def _oldest_elsewhere(self) -> Node | None:
        """The oldest unused ready node of the provider's other pools; None also if one of their nodes went lately."""
        provider_name, now = self._place[0], self._clock()
        if now < self._next_look_elsewhere:
            return None
        self._next_look_elsewhere = now + ELSEWHERE_SECONDS
        found: list[Node] = []
        for node in self._zk.nodeIterator():
            if node.provider != provider_name or node.pool is None:
                continue
            if node.state == states.DELETING and now - (node.state_time or 0) < EVICTION_SECONDS:
                return None
            if is_free(node, provider_name, node.pool) and not self._is_locked(node.key):
                found.append(node)
        return min(found, key=lambda node: node.state_time or 0, default=None)
