# SPDX-License-Identifier: Apache-2.0
"""Which worker needs to know of a change in ZooKeeper?

This runs in the cache thread. So it is quick, and only leaves notes for workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.model import states
from nodepool.plan.cleanup import ANSWERED_REQUEST_STATES, Keep, judge_unlocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodepool.launcher.cleanup_worker import CleanupWorker
    from nodepool.launcher.deleted_node_worker import DeletedNodeWorker
    from nodepool.launcher.maintenance_worker import MaintenanceWorker
    from nodepool.launcher.pool.worker import PoolWorker
    from nodepool.launcher.pool_registry import PoolRegistry
    from nodepool.launcher.pool_threads import PoolThreads
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.runtime.parts import Part
    from nodepool.zk.nodepool_cache import NodepoolCache

#: What becomes of a node until it is ready, and after that until it is gone, gives its pool nothing to do: it can wait
#: until the next pass. There are some ten changes for each node of a cloud.
UNAVAILABLE_STATES: Final = frozenset(
    {states.BUILDING, states.TESTING, states.IN_USE, states.USED, states.HOLD, states.DELETING}
)


class Router:
    """Listens to the caches of one launcher.

    Its maps belong to the cache thread. It is made before the caches follow ZooKeeper, so that it misses no change.

    :param pools: the registered pools of all launchers.
    :param threads: the pool workers of this launcher.
    :param has_tenant_limits: does the configuration limit any tenant?
    :param counted: notified of every change of a node, pool or image (''), and of a request (its id); must not block.
    """

    def __init__(
        self,
        cache: NodepoolCache,
        pools: PoolRegistry,
        threads: PoolThreads,
        deletion: Part[DeletedNodeWorker],
        cleanup: Part[CleanupWorker],
        maintenance: Part[MaintenanceWorker],
        *,
        has_tenant_limits: Callable[[], bool],
        counted: Callable[[str], None],
    ) -> None:
        self._cache = cache
        self._pools = pools
        self._threads = threads
        self._deletion = deletion
        self._cleanup = cleanup
        self._maintenance = maintenance
        self._has_tenant_limits = has_tenant_limits
        self._counted = counted
        self._pool_of: dict[str, tuple[str | None, str | None]] = {}
        #: Of the records that were seen last.
        self._version_of: dict[str, int | None] = {}
        #: node id -> request that it is allocated to, and the other way round
        self._request_of: dict[str, str] = {}
        self._nodes_of: dict[str, set[str]] = {}
        self._known_pools: set[str] = set()
        cache.nodes.add_listener(self.node_changed)
        cache.requests.add_listener(self.request_changed)
        cache.pools.add_listener(self.pool_changed)
        cache.images.add_listener(self.image_changed)
        cache.maintenance.add_listener(self.maintenance_changed)

    def node_changed(self, node_id: str) -> None:
        if not node_id:
            for worker in self._threads.current():
                worker.node_changed("")
            self._deletion.current.node_changed("")
            self._counted("")
            return
        node = self._cache.nodes.get(node_id)
        self._allocated(node_id, None if node is None else node.allocated_to)
        written = self._was_written(node_id, node)
        if node is None:
            key = self._pool_of.pop(node_id, None)
            if self._cache.nodes.is_empty(node_id):
                self._deletion.current.node_changed(node_id)
        else:
            key = self._pool_of[node_id] = (node.provider, node.pool)
            if self._is_for_deletion(node_id):
                self._deletion.current.node_changed(node_id)
                if node.state == states.BUILDING:
                    # Its launcher went in the middle of it, and with it whoever served the request.
                    self._cleanup.current.reset_soon()
        if key is not None:
            owner = self._threads.get(*key)
            if node is None:
                if owner is not None:
                    owner.node_gone(node_id)
                self._room(key[0], owner)
            elif owner is not None:
                # The record of a launch that has ended is there a moment before the launch itself has.
                owner.node_changed(node_id, wake=self._is_urgent(node, written) and not owner.launches(node))
        self._counted("")

    def _was_written(self, node_id: str, node: Node | None) -> bool:
        """Is it another record than last time?"""
        if node is None:
            return self._version_of.pop(node_id, None) is not None
        before, self._version_of[node_id] = self._version_of.get(node_id), node.version
        return node.version is None or node.version != before

    def _allocated(self, node_id: str, request_id: str | None) -> None:
        old = self._request_of.get(node_id)
        if old == request_id:
            return
        if old is not None:
            nodes = self._nodes_of[old]
            nodes.discard(node_id)
            if not nodes:
                del self._nodes_of[old]
        if request_id is None:
            self._request_of.pop(node_id, None)
        else:
            self._request_of[node_id] = request_id
            self._nodes_of.setdefault(request_id, set()).add(node_id)

    def _is_urgent(self, node: Node, written: bool) -> bool:
        """May its pool have something to do?

        Of the node of a request only the end of its launch is news: a handler may wait for it that nobody else wakes.

        :param written: somebody wrote the record; False = somebody took its lock, or let go of it.
        """
        if node.state in UNAVAILABLE_STATES:
            return False
        return node.allocated_to is None or (written and node.state != states.INIT)

    def _is_for_deletion(self, node_id: str) -> bool:
        """Must the deletion worker look at a node?"""
        cache = self._cache
        node = cache.nodes.get(node_id)
        if node is None or cache.nodes.is_locked(node_id):
            return False
        return not isinstance(judge_unlocked(node, cache.requests.get), Keep)

    def _room(self, provider_name: str | None, owner: PoolWorker | None) -> None:
        """A node went: there may be room in its whole provider, and for its tenant everywhere."""
        limited = self._has_tenant_limits()
        for worker in self._threads.current():
            if worker is not owner and (limited or (worker.provider_name == provider_name and worker.handlers)):
                worker.wake()

    def request_changed(self, request_id: str) -> None:
        workers = self._threads.current()
        if not request_id:
            for worker in workers:
                worker.request_changed("")
            # The connection was lost: what was under way then may have been left half done.
            self._cleanup.current.sweep_soon()
            self._counted("")
            return
        request = self._cache.requests.get(request_id)
        # Only new work is urgent; what is taken or gone just has to leave the queues.
        awake = self._concerned(request) if request is not None and request.state == states.REQUESTED else set()
        for worker in workers:
            worker.request_changed(request_id, wake=worker in awake)
        if request is None or request.state in ANSWERED_REQUEST_STATES:
            self._request_over(request_id, gone=request is None)
        self._counted(request_id)

    def _concerned(self, request: NodeRequest) -> set[PoolWorker]:
        """Pools that may serve a request; all, if it is up to others to decline it."""
        workers = self._threads.current()
        able = {
            worker
            for worker in workers
            if worker.labels.issuperset(request.node_types) and worker.launcher_id not in request.declined_by
        }
        return able or set(workers)

    def _request_over(self, request_id: str, gone: bool) -> None:
        """A request is gone, or finished: nodes that it does not need any more are looked at (C-9, C-10)."""
        node_ids = [node_id for node_id in self._nodes_of.get(request_id, ()) if self._is_for_deletion(node_id)]
        if gone:
            self._deletion.current.request_gone(request_id, node_ids)
            return
        for node_id in node_ids:
            self._deletion.current.node_changed(node_id)

    def pool_changed(self, _name: str) -> None:
        current = set(self._cache.pools.ids())
        if self._known_pools - current:
            self._cleanup.current.launcher_went()
        self._known_pools = current
        self._pools.changed()
        for worker in self._threads.current():
            worker.wake()
        self._counted("")

    def image_changed(self, _name: str) -> None:
        """A label may be ready now whose nodes are to be kept (M-3)."""
        self._counted("")

    def maintenance_changed(self) -> None:
        """What an operator holds back, and what no longer, matters to every pool at once (MT-2)."""
        self._maintenance.current.wake()
        self.hold_changed()

    def hold_changed(self) -> None:
        """Another set of maintenance records holds: one came, went, or its end has come."""
        for worker in self._threads.current():
            worker.wake()
        self._counted("")
