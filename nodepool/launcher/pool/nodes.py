# SPDX-License-Identifier: Apache-2.0
"""Which nodes may a pool hand out now? Keeps the pool worker's `ReadyNodes` up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.plan.nodeset import ReadyNodes, is_free

if TYPE_CHECKING:
    from nodepool.launcher.pool.worker import PoolWorker
    from nodepool.model.node import Node

#: A ready node that the driver refused is not asked for again for so long, unless it changes.
ASIDE_SECONDS: Final = 30.0


class FreeNodes:
    """Owned by the pool worker's thread."""

    def __init__(self, worker: PoolWorker) -> None:
        self._worker = worker
        self.ready = ReadyNodes()
        #: Ready nodes that the driver refused: version, and until when.
        self._aside: dict[str, tuple[int | None, float]] = {}

    def consider(self, node_id: str) -> None:
        """Put a node among the ready ones, or remove it, as the cache shows it."""
        worker = self._worker
        node = worker.cached_node(node_id)
        if node is None or not self._is_unused(node) or worker.instant.uses(node_id) or self._is_aside(node):
            self.ready.discard(node_id)
        else:
            self.ready.put(node)

    def _is_unused(self, node: Node) -> bool:
        worker = self._worker
        return is_free(node, worker.provider_name, worker.pool_name) and not worker.is_locked(node.key)

    def set_aside(self, node: Node) -> None:
        """The driver refused a ready node: it is left alone for a while, or until it changes."""
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
            self._worker.node_changed(node_id)
        return min((until - now for _, until in self._aside.values()), default=None)

    def oldest_unused(self) -> Node | None:
        """The node that has been ready for the longest time, also of those that are set aside."""
        found = [node for node in map(self._worker.cached_node, self._aside) if node and self._is_unused(node)]
        oldest = self.ready.oldest()
        if oldest is not None:
            found.append(oldest)
        return min(found, key=lambda node: node.state_time or 0, default=None)
