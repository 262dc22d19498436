# SPDX-License-Identifier: Apache-2.0
"""`Changes`: what other threads say has changed, until a pass of the pool takes it into queue, desk and free nodes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nodepool.clock import monotonic

if TYPE_CHECKING:
    from nodepool.launcher.pool.desk import Desk
    from nodepool.launcher.pool.eviction import Eviction
    from nodepool.launcher.pool.nodes import FreeNodes
    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.plan.queue import RequestQueue


class Changes:
    """Any thread may call `request` and `node`: deque operations are atomic. `take` is for the pool worker's thread."""

    def __init__(self, pool: PassContext, queue: RequestQueue, desk: Desk, free: FreeNodes, eviction: Eviction) -> None:
        self._pool = pool
        self._queue = queue
        self._desk = desk
        self._free = free
        self._eviction = eviction
        self._requests: deque[str] = deque()
        self._nodes: deque[str] = deque()

    def request(self, request_id: str) -> None:
        """A request changed; '' = any may have."""
        self._requests.append(request_id)

    def node(self, node_id: str) -> None:
        """A node changed; '' = any may have."""
        self._nodes.append(node_id)

    def take(self) -> None:
        """Bring queue, desk and free nodes up to date with the caches."""
        cache = self._pool.cache
        requests = _drain(self._requests)
        if "" in requests:
            self._queue.clear()
            requests = set(cache.requests.ids())
        for request_id in requests:
            self._take_request(request_id)
        nodes = _drain(self._nodes)
        if "" in nodes:
            self._free.ready.clear()
            nodes = set(cache.nodes.ids())
        for node_id in nodes:
            node = cache.nodes.get(node_id)
            if node is not None:
                self._eviction.node_seen(node)
            self._free.consider(node_id)

    def _take_request(self, request_id: str) -> None:
        request = self._pool.cache.requests.get(request_id)
        if request is None:
            self._queue.discard(request_id)
            self._desk.gone(request_id)
        elif not self._pool.is_open(request) or self._desk.keeps(request_id):
            self._queue.discard(request_id)
        else:
            self._desk.wake(request_id)
            self._queue.put(request)


def _drain(changes: deque[str]) -> set[str]:
    found = set()
    start = monotonic()
    while changes:
        found.add(changes.popleft())
        # Someone may add as fast as we take.
        if len(found) % 1000 == 0 and monotonic() - start > 1:
            break
    return found
