# SPDX-License-Identifier: Apache-2.0
"""What a pass of a pool sees.

First what `plan.triage` reads of a pool and of one request (`PoolView`, `RequestView`), then where it comes from: the
pool and its configuration, free nodes, the turns of pools, and the limits of tenants.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.framework.fact import NotKnown
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.exceptions import RuntimeConfigurationException, ZKConnectionError
from nodepool.launcher.pool.desk import Desk
from nodepool.logconfig import OnBehalfOf
from nodepool.model import states
from nodepool.model.quota import QuotaInformation, first_shortage
from nodepool.model.reasons import (
    NO_READY_NODE,
    Reason,
    ReasonCode,
    joined,
    reason_of,
    tenant_limit,
    tenant_order,
)
from nodepool.plan import maintenance as plan_maintenance
from nodepool.plan.nodes import OPEN_REQUEST_STATES, ReadyNodes, is_free
from nodepool.plan.queue import RequestKind, RequestQueue
from nodepool.plan.triage import (
    PoolInfo,
    able_pools,
    first_choice,
    screen,
)

if TYPE_CHECKING:
    import logging

    from nodepool.driver.config import ConfigPool, ProviderConfig
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.driver.interface import Provider
    from nodepool.launcher.events import EventRing
    from nodepool.launcher.pool_registry import FreeCounts, MaintenanceState, PoolRegistry
    from nodepool.model.maintenance import Maintenance
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.plan.triage import Verdict
    from nodepool.zk.cache import RecordCache
    from nodepool.zk.caches import NodepoolCache
    from nodepool.zk.zookeeper import ZooKeeper

#: Seconds for which a driver is not asked again whether it could serve a kind of request.
OBJECTION_SECONDS: Final = 5.0
#: Seconds between two attempts to keep a node ready where only the refusals of the cloud tell that it is full.
PROBE_SECONDS: Final = 60.0
#: Kinds of which answers are remembered at most.
MAX_KINDS: Final = 10_000

MakeHandler = Callable[["NodeRequest"], "NodeRequestHandler"]


class PoolView:
    """`plan.triage.KindView` of a pool. Owned by the pool worker's thread.

    A kind is judged against every registered pool. With hundreds of kinds waiting (requests that combine labels) that
    would be most of a pass, although the registry changes seldom: verdicts are kept until it does.

    :param make_handler: asks the driver for the handler of a request; may raise anything.
    """

    def __init__(self, pool: PassContext, make_handler: MakeHandler) -> None:
        self.pool = pool
        self.ready = pool.free.ready
        self.desk = pool.desk
        self.tenants = TenantCheck(pool, pool.log)
        self.turns = Turns(pool.launcher.free_counts)
        self.make_handler = make_handler
        self.launches = True
        self._me: PoolInfo | None = None
        self._registered: Sequence[PoolInfo] = ()
        self._absent: Sequence[PoolInfo] = ()
        self._verdicts: dict[RequestKind, Verdict] = {}
        #: What the driver said of a kind: until when that holds, for which configuration, and what.
        self._objections: dict[RequestKind, tuple[float, object, Reason | None]] = {}
        #: Label -> when the next attempt may be made, see `may_probe` (monotonic seconds).
        self._probe_at: dict[str, float] = {}

    def begin_pass(self, labels: frozenset[str], priority: int) -> None:
        """Look at the registered pools and the provider of this pass.

        :param labels: that this pool says it has. ``priority``: that it says it has.
        """
        pool = self.pool
        # The registry gives the same object as long as it does not change.
        registered, absent = pool.registered_pools(), pool.absent_pools()
        me = PoolInfo(pool.launcher_id, pool.provider_name, labels, priority, self.desk.paused)
        same = self._registered is registered and self._me == me and list(self._absent) == list(absent)
        if not same or len(self._verdicts) > MAX_KINDS:
            self._verdicts.clear()
        self._me, self._registered, self._absent = me, registered, absent
        self.launches = pool.provider.LAUNCHES
        self.tenants.begin_pass()
        self.turns.begin_pass(pool.launcher_id, registered)

    def screened(self, kind: RequestKind) -> Verdict:
        found = self._verdicts.get(kind)
        if found is None:
            if self._me is None:
                raise RuntimeError("no pass has begun")
            found = self._verdicts[kind] = screen(kind, self._me, self._registered, self._absent)
        return found

    def held(self, kind: RequestKind) -> Reason | None:
        return self.pool.held(kind.labels)

    def driver_agreed(self, kind: RequestKind) -> bool:
        known = self._objections.get(kind)
        return known is not None and self._holds(known) and known[2] is None

    def objection(self, kind: RequestKind, handler: NodeRequestHandler) -> Reason | None:
        """Why the driver can never serve such requests; asked once in a while. May raise anything."""
        known = self._objections.get(kind)
        if known is not None and self._holds(known):
            return known[2]
        if len(self._objections) > MAX_KINDS:
            self._objections.clear()
        with OnBehalfOf(handler.log):
            found = _reason(gateway.get_declined_reasons(handler))
        self._objections[kind] = (monotonic() + OBJECTION_SECONDS, handler.provider, found)
        return found

    def ahead(self, kind: RequestKind, handler: NodeRequestHandler) -> float:
        """How many requests of a kind, the handler's included, have room for sure; 1 = that is not known."""
        if self.tenants.limits(kind):
            return 1
        with OnBehalfOf(handler.log):
            room = gateway.room_ahead(handler)
        limit = self.pool.max_concurrency
        return min(room, limit - self.pool.launches_running() if limit > 0 else math.inf)

    def may_probe(self, label: str) -> bool:
        """May a ready node of a label be tried for now, although the cloud refused one? True = it is tried."""
        now = monotonic()
        due = now >= self._probe_at.get(label, now)
        if due:
            self._probe_at[label] = now + PROBE_SECONDS
        return due

    def no_ready_node(self, labels: Sequence[str]) -> Reason:
        free = {label: self.ready.count(label) for label in labels}
        return gateway.wait_reason(self.pool.provider, self.pool.pool_name, labels, free) or NO_READY_NODE

    def _holds(self, known: tuple[float, object, Reason | None]) -> bool:
        return known[1] is self.pool.config and monotonic() < known[0]


class RequestView:
    """`plan.triage.HeadView` of one request."""

    # Not `cached_property`: in Python 3.11 each of them takes a lock, and there is a view for each request.
    __slots__ = (
        *("_handler", "_kind", "_launches_running", "_provider_paused", "_request", "_turns", "_view"),
        *("launches", "ready"),
    )

    def __init__(self, view: PoolView, kind: RequestKind, request: NodeRequest) -> None:
        self._view = view
        self._kind = kind
        self._request = request
        self._handler: NodeRequestHandler | None = None
        self._turns: Sequence[PoolInfo] | None = None
        self._launches_running: int | None = None
        self._provider_paused: tuple[str | None] | None = None
        self.launches = view.launches
        self.ready = view.ready

    @property
    def handler(self) -> NodeRequestHandler:
        """Of a copy of the request, which it may change. The driver may raise anything."""
        if self._handler is None:
            self._handler = self._view.make_handler(self._request.copy())
        return self._handler

    @property
    def turns(self) -> Sequence[PoolInfo]:
        """Pools whose turn it is before this one."""
        if self._turns is None:
            self._turns = self._view.turns.of_others(self._kind, self._request)
        return self._turns

    @property
    def turn_of_another(self) -> bool:
        return bool(self.turns)

    @property
    def sibling_serves(self) -> bool:
        return self._view.pool.sibling_serves(self._request.key)

    @property
    def max_concurrency(self) -> float:
        return self._view.pool.max_concurrency

    @property
    def paused(self) -> bool:
        return self._view.desk.paused

    @property
    def why_paused(self) -> Reason:
        return self._view.desk.why_paused

    @property
    def launches_running(self) -> int:
        if self._launches_running is None:
            self._launches_running = self._view.pool.launches_running()
        return self._launches_running

    @property
    def provider_paused(self) -> str | None:
        if self._provider_paused is None:
            self._provider_paused = (gateway.paused_reason(self._view.pool.provider),)
        return self._provider_paused[0]

    @property
    def basic_objection(self) -> Reason | None:
        return _reason(gateway.basic_decline_reasons(self.handler))

    @property
    def objection(self) -> Reason | None:
        return self._view.objection(self._kind, self.handler)

    @property
    def tenant_limited(self) -> bool:
        return self._view.tenants.limits(self._kind)

    @property
    def tenant_order(self) -> Reason | None:
        cause = self._view.tenants.reserved_for(self._kind)
        return None if cause is None else tenant_order(self._kind.tenant_name or "", cause)

    def tenant_shortage(self, nodes: Sequence[Node] | None = None) -> Reason | None:
        return self._view.tenants.exceeded(self._kind, nodes)

    def no_ready_node(self, labels: Sequence[str]) -> Reason:
        return self._view.no_ready_node(labels)

    @property
    def shortage(self) -> Reason | None:
        handler, label = self.handler, self._request.node_types[0]
        with OnBehalfOf(handler.log):
            if gateway.has_room_now(handler, label):
                return None
            found = handler.node_set.why_no_room()
        return None if found.code is ReasonCode.ROOM_HIDDEN and self._view.may_probe(label) else found


def _reason(texts: Sequence[str]) -> Reason | None:
    return joined([reason_of(text) for text in texts]) if texts else None


# `PassContext`: who a pool is, and the provider and configuration that a pass of it works with.

#: A pool of this launcher has declined a request, and notes its reason at this moment or did so long ago.
IN_ITS_LINE: Final = Reason(ReasonCode.DECLINED_BEFORE, "declined before, its own line in this log says why")


class PassContext:
    """Owned by the pool worker's thread; all parts of a pool share it, with its queue, desk and free nodes.

    :param launcher: the same for all pools of the launcher.
    :param launcher_id: of this pool among all registered pools.
    :param wake: asks for a pass; any thread.
    :param request_changed: called with the id of a request that is to be judged again. ``node_changed``: of a node.
    """

    def __init__(
        self,
        launcher: PoolContext,
        provider_name: str,
        pool_name: str,
        launcher_id: str,
        log: logging.Logger,
        wake: Callable[[], None],
        request_changed: Callable[[str], None],
        node_changed: Callable[[str], None],
    ) -> None:
        self.launcher = launcher
        self.provider_name = provider_name
        self.pool_name = pool_name
        self.launcher_id = launcher_id
        self.log = log
        self.wake = wake
        self.request_changed = request_changed
        self.queue = RequestQueue()
        self.desk = Desk(self.queue)
        self.free = FreeNodes(launcher.cache.nodes, provider_name, pool_name, node_changed)
        #: Requests of which a launcher that ended has left launches unfinished: looked at in the next pass.
        self.interrupted: set[str] = set()
        #: For the log, such as ``cloud-1/main``.
        self.place = f"{provider_name}/{pool_name}"
        self._provider: Provider | None = None
        self._config: ProviderConfig | None = None
        self._labels: frozenset[str] = frozenset()
        #: Why this pool takes nothing new. Any thread may read it: a pass that begins later takes nothing.
        self.hold: Maintenance | None = None
        #: Labels that this pool does not serve, and why.
        self.held_labels: Mapping[str, Reason] = {}
        #: Is one of them not served because of what its nodes need?
        self.needs_held = False

    # -- constant during a pass --

    def refresh(self) -> bool:
        """Take the current configuration, provider and maintenance for a pass; False = this pool is about to stop."""
        maintenance = self.launcher.maintenance
        self.hold = maintenance.of_pool(self.provider_name, self.pool_name)
        provider = self.launcher.provider(self.provider_name)
        if provider is None or self.pool_name not in provider.provider.pools:
            return False
        config = provider.provider
        if self._config is not config:
            # First: the driver may raise, and no configuration may stand here with the labels of another one.
            self._labels = frozenset(config.getSupportedLabels(self.pool_name))
            self._config = config
        self._provider = provider
        needs = gateway.held_labels(provider, self.pool_name)
        self.needs_held = bool(needs)
        records = maintenance.of_labels()
        self.held_labels = {**needs, **{name: plan_maintenance.reason(record) for name, record in records.items()}}
        return True

    def held(self, labels: Collection[str]) -> Reason | None:
        """Why this pool takes no request for these labels now (MT-3, MT-5, MT-11)."""
        if self.hold is not None:
            return plan_maintenance.reason(self.hold)
        return next((self.held_labels[label] for label in labels if label in self.held_labels), None)

    @property
    def has_provider(self) -> bool:
        """Was there a pass already? Any thread."""
        return self._provider is not None

    @property
    def provider(self) -> Provider:
        if self._provider is None:
            raise RuntimeError(f"provider {self.provider_name} is not there")
        return self._provider

    @property
    def config(self) -> ProviderConfig:
        if self._config is None:
            raise RuntimeError(f"provider {self.provider_name} is not configured")
        return self._config

    @property
    def pool_config(self) -> ConfigPool:
        pool: ConfigPool = self.config.pools[self.pool_name]
        return pool

    @property
    def labels(self) -> frozenset[str]:
        """Labels of the pool: the same object as long as the configuration is the same."""
        return self._labels

    @property
    def max_concurrency(self) -> float:
        """0 = nothing is ever launched; below 0 = no limit. Before the first pass there is none."""
        return -1 if self._config is None else self._config.max_concurrency

    # -- as it is now --

    @property
    def zk(self) -> ZooKeeper:
        return self.launcher.zk

    @property
    def cache(self) -> NodepoolCache:
        return self.launcher.cache

    def provider_replaced(self) -> bool:
        """Did the provider of this pass end meanwhile?"""
        return self.launcher.provider(self.provider_name) is not self._provider

    def registered_pools(self) -> list[PoolInfo]:
        return self.launcher.pools.registered()

    def absent_pools(self) -> list[PoolInfo]:
        return self.launcher.pools.absent()

    def tenant_limits(self) -> Mapping[str, dict[str, float]]:
        return self.launcher.tenant_limits()

    def tenant_use(self, tenant_name: str) -> QuotaInformation:
        """What all nodes of a tenant use, of all providers."""
        return self.launcher.tenant_use(tenant_name)

    def launches_running(self) -> int:
        """Launches in progress in the provider, over all its pools (A-10)."""
        return sum(pool.own_launches() for pool in self.launcher.siblings_of(self.provider_name))

    def sibling_serves(self, request_id: str) -> bool:
        """Is another pool of this launcher about to fulfil a request with ready nodes?"""
        mine = self.launcher_id
        return any(pool.launcher_id != mine and pool.fulfils(request_id) for pool in self.launcher.siblings())

    def declines_of_others(self, request_id: str) -> dict[str, Reason | None]:
        """Why the other registered pools declined a request, by ``provider/pool``; None = not known here."""
        here = {pool.launcher_id: pool for pool in self.launcher.siblings()}
        found: dict[str, Reason | None] = {}
        for pool in self.registered_pools():
            if pool.id != self.launcher_id:
                place = f"{pool.provider_name}/{pool.name}"
                reason = (here[pool.id].declined(request_id) or IN_ITS_LINE) if pool.id in here else None
                found[place] = found.get(place) or reason
        return found

    def take_interrupted(self) -> list[tuple[NodeRequest, list[Node]]]:
        """Open requests with launches that this pool can go on with, and what was made for each of them here."""
        interrupted, self.interrupted = self.interrupted, set()
        nodes: dict[str | None, list[Node]] = {request_id: [] for request_id in interrupted}
        place = (self.provider_name, self.pool_name)
        for node in self.cache.nodes.values() if interrupted else ():
            if node.allocated_to in nodes and (node.provider, node.pool) == place:
                nodes[node.allocated_to].append(node)
        found: list[tuple[NodeRequest, list[Node]]] = []
        for request in map(self.cache.requests.get, interrupted):
            if request is None or request.state not in OPEN_REQUEST_STATES or self.launcher_id in request.declined_by:
                continue
            if self.held(request.node_types) is not None or self.desk.serves(request.key):
                continue
            its_nodes = nodes[request.id]
            resumed = [node for node in its_nodes if self._can_resume(node)]
            if resumed and (self.desk.keeps(request.key) or any(self._is_in_doubt(node) for node in its_nodes)):
                self.interrupted.add(request.key)
            elif resumed:
                found.append((request, resumed + [node for node in its_nodes if node.state == states.READY]))
        return sorted(found, key=lambda each: each[0].order_key)

    def _can_resume(self, node: Node) -> bool:
        is_free = node.state == states.BUILDING and not self.cache.nodes.is_locked(node.key)
        return is_free and gateway.can_resume(self.provider, node)

    def _is_in_doubt(self, node: Node) -> bool:
        """All locks go at once, but are seen to go one by one; what was written under a lock is read after that."""
        return self.cache.nodes.is_locked(node.key) or self.cache.nodes.is_reading(node.key)

    def is_open(self, request: NodeRequest) -> bool:
        """May this pool still take or decline a request? (A-2)"""
        return request.state == states.REQUESTED and self.launcher_id not in request.declined_by

    def open_request(self, request_id: str) -> NodeRequest | None:
        """A request as the cache has it, if this pool may take or decline it."""
        request = self.cache.requests.get(request_id)
        return request if request is not None and self.is_open(request) else None


# What a pool worker uses of its launcher.


class Sibling(Protocol):
    """What a pool worker sees of another one of its launcher, and of itself."""

    @property
    def launcher_id(self) -> str: ...

    def own_launches(self) -> int:
        """Launches in progress for the requests of this pool."""

    def fulfils(self, request_id: str) -> bool:
        """Is it about to fulfil a request with ready nodes?"""

    def declined(self, request_id: str) -> Reason | None:
        """Why it declined a request; None = it did not, or that is long ago."""

    def wake(self) -> None:
        """Make a pass soon. Does not block."""


@dataclass(frozen=True)
class PoolContext:
    """The same for all pools of a launcher. Any thread may call what is in here."""

    version: str
    zk: ZooKeeper
    cache: NodepoolCache
    #: The registered pools of all launchers.
    pools: PoolRegistry
    free_counts: FreeCounts
    events: EventRing
    maintenance: MaintenanceState
    #: What to do about labels that no pool has, as an addition to a sentence.
    label_hint: Callable[[Collection[str]], str]
    #: The running provider of a name; None = there is none now.
    provider: Callable[[str], Provider | None]
    #: ``tenant-resource-limits`` of the configuration.
    tenant_limits: Callable[[], Mapping[str, dict[str, float]]]
    #: What all nodes of a tenant use, of all providers.
    tenant_use: Callable[[str], QuotaInformation]
    #: The workers of all pools of this launcher.
    siblings: Callable[[], Sequence[Sibling]]
    #: Those of one provider, also of pools that retire.
    siblings_of: Callable[[str], Sequence[Sibling]]
    #: As `tenant_use`, without having anything read.
    known_tenant_use: Callable[[str], QuotaInformation]
    #: Of the configuration that is in effect.
    config_digest: Callable[[], str]
    #: Told the id of a pool after each pass of it. Does not block.
    passed: Callable[[str], None]
    #: A request's lock directory is there although nobody holds it: it must go with the request.
    lock_dir_lingers: Callable[[str], None]


# `FreeNodes`: which nodes may a pool hand out now?

#: A ready node that the driver refused is not asked for again for so long, unless it changes.
ASIDE_SECONDS: Final = 30.0


class FreeNodes:
    """Owned by the pool worker's thread.

    :param nodes: the cache.
    :param changed: called with the id of a node that is to be looked at again.
    """

    def __init__(
        self, nodes: RecordCache[Node], provider_name: str, pool_name: str, changed: Callable[[str], None]
    ) -> None:
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


# `Turns`: leaves requests to the pool that is their first choice, for a moment.
#
# Each request has one owner among the pools that may take it (`first_choice`). A pool that has room prefers its own
# requests, and passes over the others. It takes another's when
#
# * no other has ready nodes for it, or this pool is the first choice of those that have (at the end of its pass, so
#   that its own come first);
# * the owner, and who came after it, did nothing for `GRACE_SECONDS` each;
# * it was passed over `MAX_PASSED` times, or there is nothing of its own among the first `WINDOW` requests.

#: How long a pool whose turn it is may take. It takes some 20 ms when the machine is not busy.
GRACE_SECONDS: Final = 0.3
#: Who had its turn is remembered for so long; a request that comes up again later begins with its owner.
TURN_SECONDS: Final = 1.5
#: What was left is forgotten after this time.
FORGET_SECONDS: Final = 60.0
#: With more of them it is looked for old ones.
MANY: Final = 1000
#: So often a pool serves others before a request that it could serve as well.
MAX_PASSED: Final = 10
#: Requests that a pool leaves in one pass before it takes one at any rate.
WINDOW: Final = 64


class _PassedOver(NamedTuple):
    """A request that was left to another pool.

    :param times: how often. ``asked``: pools whose turn it was.
    """

    times: int
    when: float
    asked: tuple[str, ...]


class Turns:
    """Owned by the pool worker's thread.

    :param free: counts of free nodes of all pools.
    """

    def __init__(self, free: FreeCounts, clock: Callable[[], float] = monotonic) -> None:
        self._free = free
        self._clock = clock
        self._me = ""
        self._registered: Sequence[PoolInfo] = ()
        self._able: dict[RequestKind, list[PoolInfo]] = {}
        self._left: dict[str, _PassedOver] = {}
        self._many = MANY
        self._passed_over = 0
        #: Requests whose owner has no node for them, while this pool has: passed over in this pass, or to be taken.
        self._ours_next: list[str] = []
        self._ours: set[str] = set()

    def begin_pass(self, me: str, registered: Sequence[PoolInfo]) -> None:
        """:param registered: the same object as long as the registry does not change."""
        if self._registered is not registered or len(self._able) > 10_000:
            self._able.clear()
        self._me, self._registered = me, registered
        self._passed_over = 0
        self._ours_next.clear()
        if len(self._left) > self._many:
            old = self._clock() - FORGET_SECONDS
            self._left = {request_id: left for request_id, left in self._left.items() if left.when > old}
            # Most may be young: not all of them are looked at in each pass.
            self._many = max(MANY, 2 * len(self._left))

    def of_others(self, kind: RequestKind, request: NodeRequest) -> Sequence[PoolInfo]:
        """The pools whose turn it is before this one; empty = it is this pool's turn.

        To be asked only when this pool could serve the request now. Changes nothing; see `pass_over`.
        """
        able = self._able.get(kind)
        if able is None:
            able = self._able[kind] = able_pools(kind, self._registered)
        request_id, now = request.key, self._clock()
        if len(able) < 2 or request_id in self._ours or self._passed_over >= WINDOW:
            return ()
        before = self._left.get(request_id, _PassedOver(0, now, ()))
        if before.times >= MAX_PASSED:
            return ()
        asked = before.asked if now < before.when + TURN_SECONDS else ()
        turns = self._turns([pool for pool in able if pool.id not in asked], request)
        if not turns or turns[0].id == self._me:
            return ()
        return turns

    def pass_over(self, request: NodeRequest, turns: Sequence[PoolInfo]) -> None:
        """Note that a request is left to others; look again after `GRACE_SECONDS`.

        :param turns: the answer of `of_others`.
        """
        request_id, now = request.key, self._clock()
        before = self._left.get(request_id, _PassedOver(0, now, ()))
        asked = before.asked if now < before.when + TURN_SECONDS else ()
        if turns[-1].id == self._me:
            self._ours_next.append(request_id)
        self._left[request_id] = _PassedOver(before.times + 1, now, (*asked, *(pool.id for pool in turns)))
        self._passed_over += 1

    def _turns(self, pools: list[PoolInfo], request: NodeRequest) -> list[PoolInfo]:
        """Whose turn it is: the owner; and if only others have ready nodes, one of these."""
        request_id = request.key
        ready = [pool for pool in pools if self._free.could_serve(pool, request.node_types)] if request.reuse else []
        owner = first_choice(request_id, [pool for pool in pools if not pool.paused] or pools)
        turns = [owner, None if owner in ready else first_choice(request_id, ready)]
        return [pool for pool in turns if pool is not None]

    def end_pass(self) -> list[str]:
        """Requests that were passed over, but may be taken if there is still room after this pool's own."""
        self._ours = set(self._ours_next)
        return list(self._ours_next)


# Tenant resource limits (rules ).

#: Longest wait for the cache to have read what it was told of.
SETTLE_SECONDS: Final = 5.0


class TenantCheck:
    """Compares what each limited tenant uses with its limits. Owned by the pool worker's thread."""

    def __init__(self, pool: PassContext, log: logging.Logger) -> None:
        self._pool = pool
        self.log = log
        #: tenant -> use at its first check in this pass, and what was accepted since
        self._used: dict[str, QuotaInformation] = {}
        #: Tenants whose first request waits for room in the limits, in this pass, and what it waits for.
        self._reserved: dict[str, Reason] = {}
        #: tenant -> what was said of the last error
        self._errors: dict[str, str] = {}

    def begin_pass(self) -> None:
        """Forget what tenants used in the pass before."""
        self._used.clear()
        self._reserved.clear()

    def limits(self, kind: RequestKind) -> bool:
        """Has the tenant of such requests any limits?"""
        return bool(kind.tenant_name) and kind.tenant_name in self._pool.tenant_limits()

    def exceeded(self, kind: RequestKind, ready: Iterable[Node] | None = None) -> Reason | None:
        """Why one more request of this kind would not stay within its tenant's limits; None = it would.

        :param ready: the nodes that it gets; None = new ones.
        """
        name = kind.tenant_name
        limits = self._pool.tenant_limits()
        if not name or name not in limits:
            return None
        try:
            if name not in self._used:
                self._used[name] = self._pool.tenant_use(name)
                self._used[name].add(self._expected(name))
            need = self._need(kind.labels) if ready is None else _size(ready)
            found = first_shortage(_limit(limits[name]), self._used[name], need)
        except Exception as error:  # noqa: BLE001 - reported with its traceback unless it is an expected one
            self._report(name, error)
            return Reason(ReasonCode.WAIT_TENANT_UNKNOWN, f"the limits of tenant {name} could not be checked")
        self._errors.pop(name, None)
        if found is None:
            return None
        return tenant_limit(name, found.resource, limit=found.limit, used=found.used, needed=found.needed)

    def reserved_for(self, kind: RequestKind) -> Reason | None:
        """What another request of the tenant waits for that comes first; None = there is none.

        Those that need less would always be faster otherwise.
        """
        return self._reserved.get(kind.tenant_name or "")

    def reserve(self, kind: RequestKind, cause: Reason) -> None:
        """A request waits for room in its tenant's limits. What comes after it in this pass is to wait, too.

        Not for one that would need more than all that is not on hold, which may be for days.
        """
        name = kind.tenant_name or ""
        limits = self._pool.tenant_limits().get(name)
        # A new configuration comes at any time, and may have none.
        if limits is None or name in self._errors:
            return
        left = _limit(limits)
        left.subtract(self._need(kind.labels))
        left.subtract(_size(node for node in self._nodes(name) if node.state == states.HOLD))
        if left.non_negative():
            self._reserved[name] = cause

    def _expected(self, name: str) -> QuotaInformation:
        """What requests of a tenant that some launcher works on will need beyond the nodes that they have."""
        requests = [r for r in self._pool.cache.requests.values() if r.tenant_name == name]
        missing = {r.id: Counter(r.node_types) for r in requests if r.state == states.PENDING}
        for node in self._nodes(name) if missing else ():
            labels = missing.get(node.allocated_to)
            label = None if labels is None else next((label for label in node.type if labels[label] > 0), None)
            if labels is not None and label is not None:
                labels[label] -= 1
        total = QuotaInformation()
        for labels in missing.values():
            total.add(self._need(labels.elements()))
        return total

    def _nodes(self, tenant: str) -> list[Node]:
        return [node for node in self._pool.cache.nodes.values() if node.tenant_name == tenant]

    def _report(self, tenant: str, error: Exception) -> None:
        """Once for each error, not at each look; with a traceback if nobody expected it."""
        text = f"{type(error).__name__}: {error}"
        if self._errors.get(tenant) == text:
            return
        self._errors[tenant] = text
        expected = isinstance(error, RuntimeConfigurationException | NotKnown | ZKConnectionError)
        self.log.warning(
            "Limits of tenant %s could not be checked, its requests wait: %s",
            *(tenant, text),
            exc_info=None if expected else error,
        )

    def add(self, kind: RequestKind) -> None:
        """Count a request that was accepted in this pass."""
        name = kind.tenant_name or ""
        if name in self._used:
            self._used[name].add(self._need(kind.labels))

    def _need(self, labels: Iterable[str]) -> QuotaInformation:
        """What nodes of some labels need; labels that are not in this pool are not counted."""
        need = QuotaInformation()
        provider = self._pool.provider
        if isinstance(provider, QuotaSupport):
            pool, supported = self._pool.pool_config, self._pool.labels
            for label in labels:
                if label in supported:
                    need.add(gateway.quota_needed_by_label(provider, label, pool))
        return need


def has_place(
    node: Node, limits: Mapping[str, dict[str, float]], cache: NodepoolCache, *, reused: bool = False
) -> bool:
    """Is there room for a node that is stored already, counting those of its tenant that were stored before it?

    Several launchers may see the same room and fill it. Ids of nodes grow, so of those who did the first has its place.
    Blocks until what ZooKeeper announced has been read.

    :param reused: it was there before it was the tenant's. Its id says nothing, so all others count: one that was
        stored later may have been found in order already. Two that are reused may both be given back.
    """
    name = node.tenant_name
    if not name or name not in limits:
        return True
    # A ready node that somebody took is under his lock, where changes are not read otherwise.
    cache.nodes.refresh_stale()
    if not cache.nodes.wait_settled(SETTLE_SECONDS):
        return False
    left = _limit(limits[name])
    for other in cache.nodes.values():
        before = reused or other.key < node.key
        if other.tenant_name == name and other.id != node.id and before:
            left.subtract(QuotaInformation.from_resources(other.resources or {}))
    left.subtract(QuotaInformation.from_resources(node.resources or {}))
    return left.non_negative()


def _size(nodes: Iterable[Node]) -> QuotaInformation:
    total = QuotaInformation()
    for node in nodes:
        total.add(QuotaInformation.from_resources(node.resources or {}))
    return total


def _limit(configured: dict[str, float]) -> QuotaInformation:
    quota = QuotaInformation(default=math.inf)
    quota.quota["compute"].update(configured)
    return quota
