# SPDX-License-Identifier: Apache-2.0
"""Fair shares of tenants in a launcher (rules FS): what all nodes use, and in which order a pool serves requests.

The arithmetic is in `nodepool.plan.shares`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from logging import DEBUG
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.quota_support import ChangedNodes, follow
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard
from nodepool.plan.shares import SERVED_IN, Amounts, FairKey, FairOrder, Ledger, Policy, TenantUse
from nodepool.plan.triage import PoolInfo, RequestKind, RequestQueue

if TYPE_CHECKING:
    import logging

    from nodepool.config.objects import Config
    from nodepool.launcher.pool.desk import Desk
    from nodepool.model.node import QuotaInformation
    from nodepool.model.request import NodeRequest, OrderKey
    from nodepool.zk.nodes import NodepoolCache


#: So long a request that waits for room leaves it to one that goes first, and waits for it in another launcher.
YIELD_SECONDS: Final = 0.5


class TenantLedger:
    """What the nodes of each tenant use, for all pools of a launcher. Any thread may ask; ``_lock`` guards all.

    :param cache: of nodes and requests. Nothing is counted before the first question.
    """

    def __init__(self, cache: NodepoolCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        #: What changes of nodes and of requests; None = no pass has asked: without shares none does.
        self._followed: tuple[ChangedNodes, ChangedNodes] | None = None
        self._ledger = Ledger()

    def look(self) -> Mapping[str | None, int]:
        """Count what has changed; how often the use of each tenant has. Does not block."""
        nodes, requests = self._cache.nodes, self._cache.requests
        with self._lock:
            self._followed = self._followed or (follow(nodes, self), follow(requests, self))
            changed, changed_requests = (changes.take() for changes in self._followed)
            known, known_requests = self._ledger.ids() if "" in changed | changed_requests else (set(), set())
            for request_id in {*known_requests, *requests.ids()} if "" in changed_requests else changed_requests:
                self._ledger.put_request(request_id, requests.get(request_id))
            for node_id in {*known, *nodes.ids()} if "" in changed else changed:
                node = nodes.get(node_id)
                request = None if node is None or not node.allocated_to else requests.get(node.allocated_to)
                self._ledger.put(node_id, node, request)
            return self._ledger.versions

    def waiting_in(self, place: str) -> list[NodeRequest]:
        """As `Ledger.waiting_in`."""
        with self._lock:
            found = self._ledger.waiting_in(place)
        return [request for request in map(self._cache.requests.get, found) if request is not None]

    def of(self, tenant: str) -> TenantUse:
        """As `Ledger.of`."""
        with self._lock:
            return self._ledger.of(tenant)

    def held_by(self, request_id: str) -> Amounts:
        """As `Ledger.held_by`."""
        with self._lock:
            return self._ledger.held_by(request_id)

    def present(self, place: str) -> Amounts:
        """As `Ledger.present`."""
        with self._lock:
            return self._ledger.present(place)


class PoolOrder:
    """The order in which a pool serves requests. Owned by the thread of the pool.

    :param need: what nodes of some labels need here. May raise anything. ``place``: ``provider/pool``.
    """

    def __init__(
        self,
        queue: RequestQueue,
        desk: Desk,
        ledger: TenantLedger,
        need: Callable[[Sequence[str]], QuotaInformation],
        place: str,
        log: logging.Logger,
    ) -> None:
        self._queue, self._desk, self._ledger, self._needed, self._log = queue, desk, ledger, need, log
        self._place = place
        #: Requests that leave room to others -> until when (monotonic seconds).
        self._yields: dict[str, float] = {}
        self._config: Config | None = None
        self._policy = Policy({})
        self._needs: dict[tuple[str, ...], Amounts] = {}
        self._order = FairOrder(queue, place, ledger.of, ledger.present, self._need)
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
            by_project = config.fair_projects and bool(config.tenant_shares)
            self._config, self._policy = config, Policy(config.tenant_shares, by_project)
            again = self._queue.by_project != by_project
            self._queue.by_project = by_project
            self._needs.clear()
        self._front = None
        self._yields = {key: until for key, until in self._yields.items() if self._desk.serves(key)}
        self._order.begin_pass(self._policy, registered, self._ledger.look() if self._policy.tenants else {})
        return again

    def key(self, kind: RequestKind, order: OrderKey, ahead: int = 0) -> FairKey:
        """As `FairOrder.key`."""
        return self._order.key(kind, order, ahead)

    def of_request(self, request: NodeRequest) -> FairKey:
        """The key of a request that is served, as if it had not begun."""
        order = request.order_key
        if not self.on:
            return order
        return (*self._order.rank_begun(self._kind(request), order, self._ledger.held_by(request.key)), *order[1:])

    def moved(self, kind: RequestKind) -> bool:
        """As `FairOrder.moved`."""
        return self.on and self._order.moved(kind)

    def overtakes(self, kind: RequestKind, order: OrderKey) -> bool:
        """Does a request go before all that wait for room in the pool?"""
        if not self.on:
            return False
        waiting = self._desk.waiting_for_room()
        # What it took of its room it would give back at once, and then take it again.
        if len(kind.labels) > 1 and any(one.nodeset and one.request.order_key < order for one in waiting):
            return False
        if self._front is None:
            self._front = min((self.of_request(one.request) for one in waiting), default=())[:3]
        return self._order.rank(kind, order) < self._front

    def yields(self, request: NodeRequest) -> bool:
        """Is a request to leave the next room to one that waits in another launcher for the pool? For a moment."""
        if not self.on:
            return False
        mine, now = self.of_request(request), monotonic()
        others = (other for other in self._ledger.waiting_in(self._place) if not self._desk.serves(other.key))
        behind = any(self.of_request(other) < mine for other in others)
        if behind and now < self._yields.setdefault(request.key, now + YIELD_SECONDS):
            return True
        self._yields.pop(request.key, None)
        return False

    @property
    def yielding(self) -> bool:
        """Does a request leave room to another one just now?"""
        return bool(self._yields)

    def begin(self, request: NodeRequest) -> None:
        """A request is about to be locked: all launchers are to know where, and what it needs."""
        if self.on:
            needs = self._need(self._kind(request).labels)
            request.extra = {**request.extra, SERVED_IN: {"pool": self._place, "needs": needs}}

    def granted(self, kind: RequestKind) -> None:
        """A request of a kind is served from now on. It may wait for room."""
        if self.on:
            self._order.granted(kind)
            self._front = None

    def _kind(self, request: NodeRequest) -> RequestKind:
        return RequestKind.of(request, by_project=self._policy.by_project)

    def _need(self, labels: tuple[str, ...]) -> Amounts:
        found = self._needs.get(labels)
        if found is None:
            found = {"instances": float(len(labels))}
            # An order that is not exact delays no request. When the driver knows it, that counts.
            with Guard(self._log, "What nodes of %s need is not known", labels, but=ZKConnectionError, level=DEBUG):
                amounts = self._needed(labels).quota["compute"]
                found = self._needs[labels] = {name: value for name, value in amounts.items() if value > 0} or found
        return found
