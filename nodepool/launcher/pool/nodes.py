# SPDX-License-Identifier: Apache-2.0
"""`FreeNodes`: which nodes may a pool hand out now?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from nodepool.clock import monotonic
from nodepool.plan.node_choice import ReadyNodes, is_free

if TYPE_CHECKING:
    from nodepool.model.node import Node

#: A ready node that the driver refused is not asked for again for so long, unless it changes.
ASIDE_SECONDS: Final = 30.0


class NodeCache(Protocol):
    """What is read of the cache of nodes."""

    def get(self, record_id: str) -> Node | None: ...

    def is_locked(self, record_id: str) -> bool: ...


class FreeNodes:
    """Owned by the pool worker's thread.

    :param nodes: the cache.
    :param changed: called with the id of a node that is to be looked at again.
    """

    def __init__(self, nodes: NodeCache, provider_name: str, pool_name: str, changed: Callable[[str], None]) -> None:
        self._nodes = nodes
        self._place = (provider_name, pool_name)
        self._changed = changed
        self.ready = ReadyNodes()
        #: Nodes that the fast path hands out just now.
        self._reserved: set[str] = set()
        #: Ready nodes that the driver refused: version, and until when.
        self._aside: dict[str, tuple[int | None, float]] = {}

    def consider(self, node_id: str) -> None:
        """Put a node among the ready ones, or remove it, as the cache shows it."""
        node = self._nodes.get(node_id)
        if node is None or not self._is_unused(node) or node_id in self._reserved or self._is_aside(node):
            self.ready.discard(node_id)
        else:
            self.ready.put(node)

    def _is_unused(self, node: Node) -> bool:
        return is_free(node, *self._place) and not self._nodes.is_locked(node.key)

    def reserve(self, node_id: str) -> None:
        """A node is handed out just now."""
        self._reserved.add(node_id)
        self.ready.discard(node_id)

    def release(self, node_id: str) -> None:
        """It is not any more; `consider` decides what it is."""
        self._reserved.discard(node_id)

    def set_aside(self, node: Node) -> None:
        """The driver refused a ready node: it is not offered for a while, or until it changes."""
        self._aside[node.key] = (node.version, monotonic() + ASIDE_SECONDS)
        self.ready.discard(node.key)

    def _is_aside(self, node: Node) -> bool:
        version, until = self._aside.get(node.key, (None, 0.0))
        if version == node.version and monotonic() < until:
            return True
        self._aside.pop(node.key, None)
        return False

    def next_look(self) -> float | None:
        """Take nodes back that were set aside for long enough; seconds until the next one."""
        now = monotonic()
        for node_id in [node_id for node_id, (_, until) in self._aside.items() if until <= now]:
            del self._aside[node_id]
            self._changed(node_id)
        return min((until - now for _, until in self._aside.values()), default=None)

    def oldest_unused(self) -> Node | None:
        """The node that has been ready for the longest time, also of those that are set aside."""
        found = [node for node in map(self._nodes.get, self._aside) if node and self._is_unused(node)]
        oldest = self.ready.oldest()
        if oldest is not None:
            found.append(oldest)
        return min(found, key=lambda node: node.state_time or 0, default=None)
