# SPDX-License-Identifier: Apache-2.0
"""Which worker needs to know of a change in ZooKeeper?

Runs in the cache thread: quick, and nothing but notes for workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.model import states
from nodepool.plan.cleanup import Keep, judge_unlocked

if TYPE_CHECKING:
    from nodepool.launcher.pool_worker import PoolWorker
    from nodepool.launcher.supervisor import NodePool


class Router:
    """Listens to the caches of one launcher. ``_pool_of`` belongs to the cache thread."""

    def __init__(self, nodepool: NodePool) -> None:
        self._nodepool = nodepool
        self._pool_of: dict[str, tuple[str | None, str | None]] = {}
        self._known_pools: set[str] = set()
        cache = nodepool.cache
        cache.nodes.add_listener(self.node_changed)
        cache.requests.add_listener(self.request_changed)
        cache.pools.add_listener(self.pool_changed)

    def node_changed(self, node_id: str) -> None:
        nodepool = self._nodepool
        if not node_id:
            for worker in nodepool.workers():
                worker.node_changed("")
            nodepool.deletion.node_changed("")
            nodepool.something_changed()
            return
        node = nodepool.cache.nodes.get(node_id)
        if node is None:
            key = self._pool_of.pop(node_id, None)
        else:
            key = self._pool_of[node_id] = (node.provider, node.pool)
            if not nodepool.cache.nodes.is_locked(node_id):
                action = judge_unlocked(node, nodepool.cache.requests.get)
                if not isinstance(action, Keep):
                    nodepool.deletion.node_changed(node_id)
        if key is not None:
            owner = nodepool.worker_of(key)
            if owner is not None:
                owner.node_changed(node_id)
            if node is None:
                self._room(key[0], owner)
        nodepool.something_changed()

    def _room(self, provider_name: str | None, owner: PoolWorker | None) -> None:
        """A node went: there may be room in its whole provider, and for its tenant everywhere."""
        limited = bool(self._nodepool.config.tenant_resource_limits)
        for worker in self._nodepool.workers():
            if worker is not owner and (limited or (worker.provider_name == provider_name and worker.handlers)):
                worker.wake()

    def request_changed(self, request_id: str) -> None:
        nodepool = self._nodepool
        request = nodepool.cache.requests.get(request_id) if request_id else None
        # Only new work is urgent; what is taken or gone just has to leave the queues.
        urgent = not request_id or (request is not None and request.state == states.REQUESTED)
        for worker in nodepool.workers():
            worker.request_changed(request_id, wake=urgent)
        if request_id and request is None:
            nodepool.deletion.request_gone(request_id)
        nodepool.something_changed()

    def pool_changed(self, _name: str) -> None:
        nodepool = self._nodepool
        current = set(nodepool.cache.pools.ids())
        if self._known_pools - current:
            nodepool.cleanup.sweep_soon()
        self._known_pools = current
        nodepool.forget_pools()
        for worker in nodepool.workers():
            worker.wake()
        nodepool.something_changed()
