# SPDX-License-Identifier: Apache-2.0
"""Fair shares of tenants in a launcher (rules FS): what all nodes use, and in which order a pool serves requests.

The arithmetic is in `nodepool.plan.shares`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nodepool.driver.framework.quota_support import follow
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard
from nodepool.plan.shares import ONE, FairOrder, Ledger, Policy, node_project, plus
from nodepool.plan.triage import RequestKind

if TYPE_CHECKING:
    import logging

    from nodepool.config.objects import Config
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.desk import Desk
    from nodepool.model.node import QuotaInformation
    from nodepool.model.request import NodeRequest, OrderKey
    from nodepool.plan.shares import Amounts, FairKey, TenantUse
    from nodepool.plan.triage import PoolInfo, RequestQueue
    from nodepool.zk.nodes import NodepoolCache


class TenantLedger:
    """What the nodes of each tenant use, for all pools of a launcher. Any thread may ask; ``_lock`` guards all.

    :param cache: of nodes and requests. Nothing is counted before the first question.
    """

    def __init__(self, cache: NodepoolCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._changes = follow(cache.nodes, self)
        self._ledger = Ledger()

    def look(self) -> Mapping[str | None, int]:
        """Count what has changed; how often the use of each tenant has. Does not block."""
        nodes, requests = self._cache.nodes, self._cache.requests
        with self._lock:
            changed = self._changes.take()
            if "" in changed:
                changed = {*self._ledger.ids(), *nodes.ids()}
            for node_id in changed:
                node = nodes.get(node_id)
                request = None if node is None else requests.get(node.allocated_to or "")
                self._ledger.put(node_id, node, None if node is None else node_project(node, request))
            return self._ledger.versions

    def of(self, tenant: str) -> TenantUse:
        """As `Ledger.of`."""
        with self._lock:
            return self._ledger.of(tenant)

    def present(self, place: str) -> Amounts:
        """As `Ledger.present`."""
        with self._lock:
            return self._ledger.present(place)


class PoolOrder:
    """The order in which a pool serves requests. Owned by the thread of the pool.

    :param need: what nodes of some labels need here. May raise anything.
    """

    def __init__(
        self,
        queue: RequestQueue,
        desk: Desk,
        ledger: TenantLedger,
        need: Callable[[Sequence[str]], QuotaInformation],
        log: logging.Logger,
    ) -> None:
        self._queue, self._desk, self._ledger, self._needed, self._log = queue, desk, ledger, need, log
        self._config: Config | None = None
        self._policy = Policy({})
        self._needs: dict[tuple[str, ...], Amounts] = {}
        self._order = FairOrder(queue, ledger.of, ledger.present, self._need)
        #: The key of the first request that waits for room; None = it is to be found.
        self._front: FairKey | None = None

    @property
    def on(self) -> bool:
        """Are there shares?"""
        return self._order.on

    def begin_pass(self, config: Config, registered: Sequence[PoolInfo]) -> bool:
        """Look at what is now. Returns whether all requests are to be put into the queue once more."""
        again = False
        if config is not self._config:
            self._config, self._policy = config, Policy(config.tenant_shares, config.fair_projects)
            again = self._queue.by_project != config.fair_projects
            self._queue.by_project = config.fair_projects
            self._needs.clear()
        self._front = None
        self._order.begin_pass(self._policy, registered, self._ledger.look() if self._policy.tenants else {})
        return again

    def key(self, kind: RequestKind, order: OrderKey, ahead: int = 0) -> FairKey:
        """As `FairOrder.key`."""
        return self._order.key(kind, order, ahead)

    def of_handler(self, handler: NodeRequestHandler) -> FairKey:
        """The key of a request that the pool serves, as if it had no node yet."""
        request = handler.request
        if not self.on:
            return request.order_key
        rank = self._order.rank(self._kind(request), request.order_key, plus({}, _held(handler), -1))
        return (*rank, *request.order_key[1:])

    def overtakes(self, kind: RequestKind, order: OrderKey) -> bool:
        """Does a request go before all that wait for room in the pool, even when it has been granted?"""
        if not self.on:
            return False
        waiting = self._desk.waiting_for_room()
        if self._front is None:
            self._front = min(map(self.of_handler, waiting), default=())[:3]
        if self._order.key(kind, order)[:3] >= self._front:
            return False
        # What its tenant has begun already counts, too.
        more: Amounts = {}
        for handler in waiting:
            if handler.request.tenant_name == kind.tenant_name:
                more = plus(plus(more, self._need(self._kind(handler.request).labels)), _held(handler), -1)
        _, outside, _ = self._order.rank(kind, order, more)
        share = self._order.rank(kind, order, plus(more, self._need(kind.labels)))[2]
        return (order[0], outside, share) < self._front

    def granted(self, kind: RequestKind) -> None:
        """A request of a kind is served from now on. It may wait for room."""
        self._order.granted(kind)
        self._front = None

    def _kind(self, request: NodeRequest) -> RequestKind:
        return RequestKind.of(request, by_project=self._policy.by_project)

    def _need(self, labels: tuple[str, ...]) -> Amounts:
        found = self._needs.get(labels)
        if found is None:
            found = {"instances": float(len(labels))}
            # Until the next configuration: an order that is not exact delays no request.
            with Guard(self._log, "What nodes of %s need is not known", labels, but=ZKConnectionError, traceback=False):
                found = {
                    name: value for name, value in self._needed(labels).quota["compute"].items() if value > 0
                } or found
            self._needs[labels] = found
        return found


def _held(handler: NodeRequestHandler) -> Amounts:
    """What the nodes of a request use that has begun."""
    held: Amounts = {}
    for node in handler.nodeset:
        held = plus(held, node.resources or ONE)
    return held
