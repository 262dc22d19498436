# SPDX-License-Identifier: Apache-2.0
"""What a pass of a pool sees.

First what `plan.triage` reads of a pool and of one request (`PoolView`, `RequestView`), then where it comes from: the
pool and its configuration (`Pool`), free nodes, and the limits of tenants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from logging import DEBUG
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.framework.fact import NotKnown
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.exceptions import RuntimeConfigurationException, ZKConflict, ZKConnectionError
from nodepool.guard import Guard
from nodepool.launcher.pool.desk import TROUBLE, Desk, LaunchLog
from nodepool.launcher.pool.fair import PoolOrder, TenantLedger
from nodepool.launcher.pool.mixed import pending_of
from nodepool.launcher.shared import EventRing, FreeCounts, MaintenanceState, PoolRegistry, Turns
from nodepool.logconfig import OnBehalfOf
from nodepool.model import reasons, states
from nodepool.model.config_keys import FREE_ROOM
from nodepool.model.event import What, grouped
from nodepool.model.node import Node, QuotaInformation, first_shortage
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan import maintenance as plan_maintenance
from nodepool.plan.launch import OPEN_REQUEST_STATES, missing_labels
from nodepool.plan.triage import (
    MIN_READY_REQUESTOR,
    Leave,
    PoolInfo,
    ReadyNodes,
    RequestKind,
    RequestQueue,
    Verdict,
    is_free,
    judge,
    why_failed,
)
from nodepool.runtime.providers import Providers, facade_for

if TYPE_CHECKING:
    import logging

    from nodepool.compat.modules import LauncherView
    from nodepool.config.objects import Config
    from nodepool.driver.config import ConfigPool, ProviderConfig
    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.driver.interface import Provider
    from nodepool.launcher.canary import Trials
    from nodepool.model.request import NodeRequest
    from nodepool.model.status import AccessRule, Maintenance
    from nodepool.plan.promotion import Trial
    from nodepool.zk.client import ZooKeeperClient
    from nodepool.zk.nodes import NodepoolCache
    from nodepool.zk.zookeeper import ZooKeeper

#: Seconds for which a driver is not asked again whether it could serve a kind of request.
OBJECTION_SECONDS: Final = 5.0
#: Seconds between two attempts to keep a node ready where only the refusals of the cloud tell that it is full.
PROBE_SECONDS: Final = 60.0
#: Kinds of which answers are remembered at most.
MAX_KINDS: Final = 10_000


class PoolView:
    """What `plan.triage.triage_kind` reads of a pool; nothing blocks. Owned by the pool worker's thread.

    A kind is judged against every registered pool. With hundreds of kinds waiting (requests that combine labels) that
    would be most of a pass, although the registry changes seldom: verdicts are kept until it does.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.ready = pool.free.ready
        self.desk = pool.desk
        self.tenants = TenantCheck(pool)
        self.turns = Turns(pool.launcher.free_counts)
        #: Does the provider make machines?
        self.launches = True
        self._me = PoolInfo(pool.launcher_id, pool.provider_name, frozenset(), 0, False)
        self._registered: Sequence[PoolInfo] = ()
        self._absent: Sequence[PoolInfo] = ()
        self._config: Config | None = None
        self._verdicts: dict[RequestKind, Verdict] = {}
        #: Labels, and how many nodes of each are free -> what requests for them wait for, of this pass.
        self._waits: dict[tuple[object, ...], Reason] = {}
        #: What the driver stated of a kind: until when that holds, for which configuration, and what.
        self._objections: dict[RequestKind, tuple[float, object, Reason | None]] = {}
        #: Label -> when the next attempt may be made, see `may_probe` (monotonic seconds).
        self._probe_at: dict[str, float] = {}

    def begin_pass(self, labels: frozenset[str], priority: int) -> None:
        """Look at the registered pools and the provider of this pass.

        :param labels: that this pool says it has. ``priority``: that it says it has.
        """
        pool = self.pool
        # The registry gives the same object as long as it does not change.
        registered, absent, config = pool.registered_pools(), pool.absent_pools(), pool.launcher.config()
        me = PoolInfo(pool.launcher_id, pool.provider_name, labels, priority, self.desk.paused, access=pool.access)
        same = self._registered is registered and self._me == me and list(self._absent) == list(absent)
        if not same or self._config is not config or len(self._verdicts) > MAX_KINDS:
            self._verdicts.clear()
        self._me, self._registered, self._absent, self._config = me, registered, absent, config
        self._waits.clear()
        self.launches = pool.provider.LAUNCHES
        self.tenants.begin_pass()
        self.turns.begin_pass(pool.launcher_id, registered, by_room=config.placement == FREE_ROOM)

    def screened(self, kind: RequestKind) -> Verdict:
        """`plan.triage.judge` for this pool and the registered pools of now."""
        found = self._verdicts.get(kind)
        if found is None:
            mixed = self.pool.launcher.config().mixed_labels
            found = self._verdicts[kind] = judge(kind, self._me, self._registered, self._absent, mixed)
        if isinstance(found, Leave) and found.reason is reasons.SEVERAL_POOLS:
            return Leave(self.pool.launcher.tenant_excess(kind) or found.reason)
        return found

    def held(self, kind: RequestKind) -> Reason | None:
        """Which maintenance record keeps the pool from serving such requests; None = there is none."""
        return self.pool.held(kind.labels)

    def driver_agreed(self, kind: RequestKind) -> bool:
        """Did the driver say a moment ago that it could serve such requests?"""
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

    def accepted(self, kind: RequestKind) -> None:
        """A request of a kind was accepted in this pass."""
        self.tenants.add(kind)
        self.pool.order.granted(kind)

    def may_probe(self, label: str) -> bool:
        """May a ready node of a label be tried for now, although the cloud refused one? True = it is tried."""
        now = monotonic()
        due = now >= self._probe_at.get(label, now)
        if due:
            self._probe_at[label] = now + PROBE_SECONDS
        return due

    def no_ready_node(self, kind: RequestKind) -> Reason:
        """What requests of a kind wait for, in a provider that launches nothing."""
        if self.ready.could_serve(kind.labels) and not self.ready.could_serve(kind.labels, kind):
            return reasons.NODES_OF_OTHERS
        free = {label: self.ready.count(label) for label in kind.labels}
        known = (kind.labels, *free.values())
        if known not in self._waits:
            found = gateway.wait_reason(self.pool.provider, self.pool.pool_name, kind.labels, free)
            self._waits[known] = found or reasons.NO_READY_NODE
        return self._waits[known]

    def _holds(self, known: tuple[float, object, Reason | None]) -> bool:
        return known[1] is self.pool.config and monotonic() < known[0]


class RequestView:
    """What `plan.triage.triage` reads of one request. What asks the driver is worked out when it is asked for.

    What the driver says may raise anything.
    """

    # Not `cached_property`: in Python 3.11 each of them takes a lock, and there is a view for each request.
    __slots__ = (
        *("_handler", "_kind", "_request", "_turns", "_view", "launches", "launches_running", "max_concurrency"),
        *("no_ready_node", "paused", "provider_paused", "ready", "sibling_serves", "tenant_limited"),
    )

    def __init__(self, view: PoolView, kind: RequestKind, request: NodeRequest) -> None:
        pool = view.pool
        self._view, self._kind, self._request = view, kind, request
        self._handler: NodeRequestHandler | None = None
        self._turns: Sequence[PoolInfo] | None = None
        self.launches, self.ready, self.no_ready_node = view.launches, view.ready, view.no_ready_node
        #: Is another pool of this launcher about to fulfil the request?
        self.sibling_serves = pool.sibling_serves(request.key)
        #: Launches that may run in the provider, and that do, over all of its pools; 0 = none ever, below 0 = no limit.
        self.max_concurrency = limit = pool.max_concurrency
        #: Does a request of this pool wait for room?
        self.paused = view.desk.paused and not pool.order.overtakes(kind, request.order_key)
        # While the pool is paused that does not matter, and to count them takes long.
        self.launches_running = pool.launches_running() if limit > 0 and not self.paused else 0
        #: Why the provider launches nothing now; None = it does. While the pool is paused that does not matter.
        launches_now = view.launches and not self.paused
        self.provider_paused = gateway.paused_reason(pool.provider) if launches_now else None
        #: Has the tenant of the request any limits?
        self.tenant_limited = view.tenants.limits(kind)

    @property
    def handler(self) -> NodeRequestHandler:
        """Of a copy of the request, which it may change. The driver may raise anything."""
        if self._handler is None:
            self._handler = self._view.pool.make_handler(self._request.copy())
        return self._handler

    @property
    def turns(self) -> Sequence[PoolInfo]:
        """Pools that are to try the request before this one, and have not had their turn."""
        if self._turns is None:
            self._turns = self._view.turns.of_others(self._kind, self._request)
        return self._turns

    @property
    def why_paused(self) -> Reason:
        """What the request waits for that pauses the pool."""
        return self._view.desk.why_paused

    @property
    def basic_objection(self) -> Reason | None:
        """Why the driver can never serve the request, even with ready nodes."""
        return _reason(gateway.basic_decline_reasons(self.handler))

    @property
    def objection(self) -> Reason | None:
        """Why the driver can never serve the request."""
        return self._view.objection(self._kind, self.handler)

    @property
    def tenant_order(self) -> Reason | None:
        """Another request of the tenant comes first, and waits for room in its limits."""
        cause = self._view.tenants.reserved_for(self._kind)
        return None if cause is None else reasons.tenant_order(self._kind.tenant_name or "", cause)

    def tenant_shortage(self, nodes: Sequence[Node] | None = None) -> Reason | None:
        """Why the tenant may not have the request served now.

        :param nodes: that it gets; None = new ones.
        """
        return self._view.tenants.exceeded(self._kind, nodes)

    @property
    def shortage(self) -> Reason | None:
        """What is used up that the first node of the request needs; None = only an attempt can tell."""
        handler, label = self.handler, self._request.node_types[0]
        with OnBehalfOf(handler.log):
            if gateway.has_room_now(handler, label):
                return None
            found = handler.node_set.why_no_room()
        return None if found.code is ReasonCode.ROOM_HIDDEN and self._view.may_probe(label) else found


def _reason(texts: Sequence[str]) -> Reason | None:
    return reasons.joined([reasons.reason_of(text) for text in texts]) if texts else None


# `Pool`: who a pool is, and the provider and configuration that a pass of it works with.

#: A pool of this launcher has declined a request, and notes its reason at this moment or did so long ago.
IN_ITS_LINE: Final = Reason(ReasonCode.DECLINED_BEFORE, "declined before, its own line in this log says why")


class Pool:
    """Owned by the pool worker's thread; its other parts share it. To handlers it is `PoolWorkerView`, as ``pw``.

    :param launcher_id: of this pool among all registered pools.
    :param wake: asks for a pass; any thread.
    :param changed: called with the id of a request, and with that of a node, that is to be judged again.
    """

    def __init__(
        self,
        launcher: Launcher,
        key: tuple[str, str],
        launcher_id: str,
        log: logging.Logger,
        wake: Callable[[], None],
        changed: tuple[Callable[[str], None], Callable[[str], None]],
    ) -> None:
        self.launcher = launcher
        self.zk, self.cache = launcher.zk, launcher.cache
        self.registered_pools, self.absent_pools = launcher.pools.registered, launcher.pools.absent
        self.provider_name, self.pool_name = self.pool_key = key
        self.launcher_id, self.log, self.wake = launcher_id, log, wake
        self.request_changed, self._node_changed = changed
        self.queue = RequestQueue()
        self.desk = Desk(self.queue)
        self.launch_log = LaunchLog()
        self.free = FreeNodes(self, self._node_changed)
        self.ready_nodes, self.evict, self.set_aside = self.free.ready, self.free.evict, self.free.set_aside
        #: Requests of which a launcher that ended has left launches unfinished: looked at in the next pass.
        self.interrupted: set[str] = set()
        #: For the log, such as ``cloud-1/main``.
        self.place = f"{self.provider_name}/{self.pool_name}"
        need = partial(needed, self)
        self.order = PoolOrder(self.queue, self.desk, launcher.ledger, need, self.place, log)
        #: There from the first pass on.
        self.provider: Provider
        self.config: ProviderConfig
        #: Labels of the pool: the same object as long as the configuration is the same.
        self.labels: frozenset[str] = frozenset()
        #: Which tenants the pool serves, and the whole configuration that says so.
        self.access: tuple[AccessRule, ...] = ()
        self._whole_config: Config | None = None
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
        provider = self.launcher.providers.get(self.provider_name)
        if provider is None or self.pool_name not in provider.provider.pools:
            return False
        config = provider.provider
        whole = self.launcher.config()
        same = getattr(self, "config", None) is config
        if not same:
            # First: the driver may raise, and no configuration may stand here with the labels of another one.
            self.labels = frozenset(config.getSupportedLabels(self.pool_name))
            self.config = config
            # Those that are free may be for other tenants now.
            self._node_changed("")
        if not same or whole is not self._whole_config:
            # Labels may have changed without the provider.
            self.access = self.pool_config.access(whole.labels)
            self._whole_config = whole
        self.provider = provider
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
        return hasattr(self, "provider")

    @property
    def pool_config(self) -> ConfigPool:
        pool: ConfigPool = self.config.pools[self.pool_name]
        return pool

    @property
    def max_concurrency(self) -> float:
        """0 = nothing is ever launched; below 0 = no limit. Before the first pass there is none."""
        return self.config.max_concurrency if self.has_provider else -1

    # -- as it is now --

    def provider_replaced(self) -> bool:
        """Did the provider of this pass end meanwhile?"""
        return self.launcher.providers.get(self.provider_name) is not self.provider

    def tenant_limits(self) -> Mapping[str, dict[str, float]]:
        return self.launcher.config().tenant_resource_limits

    def tenant_use(self, tenant_name: str) -> QuotaInformation:
        """What all nodes of a tenant use, of all providers."""
        # What changed under a lock of others is read now, and counts the next time.
        self.cache.nodes.refresh_stale()
        return self.launcher.known_tenant_use(tenant_name)

    def launches(self) -> int:
        """Launches in progress for the requests of this pool. Any thread."""
        return sum(gateway.alive_thread_count(handler) for handler in self.desk.handlers())

    def launches_running(self) -> int:
        """Launches in progress in the provider, over all its pools (A-10)."""
        pools = self.launcher.all_pools()
        return sum(pool.launches() for pool in pools if pool.provider_name == self.provider_name)

    def sibling_serves(self, request_id: str) -> bool:
        """Is another pool of this launcher about to fulfil a request with ready nodes?"""
        return any(pool is not self and pool.desk.on_fast_path(request_id) for pool in self.launcher.siblings())

    def declines_of_others(self, request_id: str) -> dict[str, Reason | None]:
        """Why the other registered pools declined a request, by ``provider/pool``; None = not known here."""
        here = {pool.launcher_id: pool.desk.explanations for pool in self.launcher.siblings()}
        found: dict[str, Reason | None] = {}
        for pool in self.registered_pools():
            if pool.id != self.launcher_id:
                place = f"{pool.provider_name}/{pool.name}"
                told = here[pool.id].of_declined.get(request_id) if pool.id in here else None
                reason = told.reason if told is not None else IN_ITS_LINE if pool.id in here else None
                found[place] = found.get(place) or reason
        return found

    def note_declined(self, request: NodeRequest, reason: Reason) -> None:
        """The pool has declined a request, which may have failed with that. Does not block."""
        self.desk.explanations.declined(request.key, reason)
        events, subject = self.launcher.events, f"request {request.id}"
        if request.state == states.FAILED:
            why = why_failed({**self.declines_of_others(request.key), self.place: reason})
            text = f"every pool declined it: {why.text}"
            events.add(subject, What.FAILED, text, why.code.value, pool=self.place)
            if request.requestor == MIN_READY_REQUESTOR:
                # No job waits for such a request, and it is deleted soon: the label shows it.
                for label in request.node_types:
                    about = f"no more ready node of {label}: {text}"
                    events.add(f"label {label}", What.FAILED, about, why.code.value, pool=self.place)
        elif reason.code in TROUBLE:
            events.add(subject, What.DECLINED, reason.text, reason.code.value, pool=self.place)

    def take_interrupted(self) -> list[tuple[NodeRequest, list[Node]]]:
        """Open requests with launches that this pool can go on with, and what was made for each of them here."""
        if not self.interrupted:
            return []
        interrupted, self.interrupted = self.interrupted, set()
        theirs = (node for node in self.cache.nodes.values() if node.allocated_to in interrupted)
        mine = (node for node in theirs if (node.provider, node.pool) == self.pool_key)
        nodes = grouped(mine, lambda node: node.allocated_to)
        found: list[tuple[NodeRequest, list[Node]]] = []
        for request in map(self.cache.requests.get, interrupted):
            if request is None or request.state not in OPEN_REQUEST_STATES or self.launcher_id in request.declined_by:
                continue
            if self.held(request.node_types) is not None or self.desk.serves(request.key):
                continue
            its_nodes = nodes.get(request.id, [])
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

    # -- what handlers ask as ``pw`` --

    def make_handler(self, request: NodeRequest) -> NodeRequestHandler:
        """Ask the driver for the handler of a request; it may raise anything."""
        handler: NodeRequestHandler = gateway.get_request_handler(self.provider, self, request)
        return handler

    def getZK(self) -> ZooKeeper:
        return facade_for(self.config, self.zk)

    def getProviderManager(self) -> Provider:
        return self.provider

    def getProviderConfig(self) -> ProviderConfig:
        return self.config

    def getPoolConfig(self) -> ConfigPool:
        return self.pool_config

    @property
    def nodepool(self) -> LauncherView:
        """For drivers written for 11.0.0."""
        from nodepool.compat.modules import LauncherView

        return LauncherView(self.getZK(), self.launcher.providers.get)

    def launch_ended(self, node: Node, result: str, text: str = "") -> None:
        label = node.type[0] if node.type else None
        if result == states.READY:
            self.launch_log.ready(label, node.created_time)
        else:
            self.launch_log.failed(node.id, label, result, text)

    def keep_console(self, node: Node, text: str) -> None:
        self.launch_log.keep_console(node.key, text)

    def trial(self, label: str, image: str, request: NodeRequest) -> Trial | None:
        return self.launcher.trials.choose(self.provider_name, label, image, request)

    def trial_ended(self, node: Node, trial: Trial, error: Exception | None, seconds: float) -> None:
        self.launcher.trials.ended(node, trial, error, seconds)

    def launch_error(self, node: Node) -> str:
        return self.launch_log.error_of(node.key)

    def tenant_has_place(self, node: Node, *, reused: bool = False) -> bool:
        return has_place(node, self.tenant_limits(), self.cache, reused=reused)


class Launcher:
    """What threads use of their launcher (`nodepool.launcher.supervisor.NodePool`). Any thread."""

    log: logging.Logger
    client: ZooKeeperClient
    zk: ZooKeeper
    cache: NodepoolCache
    providers: Providers
    pools: PoolRegistry
    free_counts: FreeCounts
    events: EventRing
    maintenance: MaintenanceState
    trials: Trials
    config: Callable[[], Config]
    siblings: Callable[[], Sequence[Pool]]
    all_pools: Callable[[], Sequence[Pool]]
    ledger: TenantLedger
    known_tenant_use: Callable[[str], QuotaInformation]
    passed: Callable[[str], None]
    lock_dir_lingers: Callable[[str], None]

    def tenant_excess(self, kind: RequestKind) -> Reason | None:
        """The limit of its tenant that a request over several pools is larger than; None = none is known.

        A label of other launchers only counts as one instance, if their pools publish how many nodes they can have.
        """
        name, need = kind.tenant_name or "", QuotaInformation()
        limits, pools = self.config().tenant_resource_limits.get(name), self.siblings()
        if limits is None:
            return None
        with Guard(self.log, "What a request of tenant %s needs is not known", name, level=DEBUG, traceback=False):
            for label in kind.labels:
                sizes = [needed(pool, [label]) for pool in pools if pool.has_provider and label in pool.labels]
                others = [pool.capacity for pool in self.pools.registered() if label in pool.labels]
                sizes = sizes or [QuotaInformation(instances=1 if others and all(others) else 0)]
                # They may be of different sizes, and any of the pools may make it.
                amounts = [size.quota["compute"] for size in sizes]
                need.add(QuotaInformation(**{key: min(one.get(key, 0) for one in amounts) for key in amounts[0]}))
            found = first_shortage(_limit(limits), QuotaInformation(), need)
            if found is not None:
                return reasons.tenant_limit(name, found.resource, limit=found.limit, used=0, needed=found.needed)
        return None


# `FreeNodes`: which nodes may a pool hand out now? Which one is deleted for a request that waits for room?

#: A ready node that the driver refused is not asked for again for so long, unless it changes.
ASIDE_SECONDS: Final = 30.0
#: Seconds after a node of the pool went to `deleting` in which no other is evicted.
EVICTION_SECONDS: Final = 300.0
#: So often it is looked whether another pool of the provider has one to evict, at most: all nodes are looked at.
ELSEWHERE_SECONDS: Final = 10.0


class FreeNodes:
    """Owned by the pool worker's thread.

    :param changed: called with the id of a node that is to be looked at again.
    """

    def __init__(self, pool: Pool, changed: Callable[[str], None]) -> None:
        self._pool = pool
        self._nodes = pool.cache.nodes
        self._changed = changed
        self.ready = ReadyNodes()
        #: Nodes that the fast path hands out just now.
        self._reserved: set[str] = set()
        #: Ready nodes that the driver refused: version, and until when.
        self._aside: dict[str, tuple[int | None, float]] = {}
        #: When a node of the pool was last seen to go to `deleting`, or was sent there (monotonic seconds).
        self._evicted_at = -math.inf
        self._next_look_elsewhere = -math.inf

    def consider(self, node_id: str) -> None:
        """Put a node among the ready ones, or remove it, as the cache shows it."""
        node = self._nodes.get(node_id)
        if node is None or not self._is_unused(node) or node_id in self._reserved or self._is_aside(node):
            self.ready.discard(node_id)
        else:
            self.ready.put(node, self._pool.pool_config.tenantsOfNode(node))

    def _is_unused(self, node: Node) -> bool:
        return is_free(node, *self._pool.pool_key) and not self._nodes.is_locked(node.key)

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
        aside = [node for node in map(self._nodes.get, self._aside) if node and self._is_unused(node)]
        return _oldest([node for node in (*aside, self.ready.oldest()) if node is not None])

    def node_seen(self, node: Node) -> None:
        """Note a node; only those of the pool that are being deleted count."""
        if (
            (node.provider, node.pool) == self._pool.pool_key
            and node.state == states.DELETING
            and node.state_time is not None
        ):
            age = max(0.0, wall_time() - node.state_time)
            self._evicted_at = max(self._evicted_at, monotonic() - age)

    def evict(self, *, shared: bool = False) -> None:
        """Mark the oldest unused ready node of the pool `deleting`, unless one went lately.

        :param shared: the room is missing that the pools of the provider share. If this pool has no such node, another
            pool's is deleted: no other launcher would ever make room for a request that waits here.
        """
        if monotonic() - self._evicted_at < EVICTION_SECONDS:
            return
        oldest = self.oldest_unused() or (self._oldest_elsewhere() if shared else None)
        if oldest is None:
            return
        node = oldest.copy()
        node.state = states.DELETING
        self.ready.discard(node.key)
        try:
            self._pool.zk.nodes.save_unlocked(node)
        except ZKConflict as conflict:
            self._pool.log.debug("Ready node %s was not evicted: %s", node.id, conflict)
            return
        self._evicted_at = monotonic()
        self._pool.log.info("Evicting unused ready node %s: a request waits for room", node.id)

    def _oldest_elsewhere(self) -> Node | None:
        """The oldest unused ready node of the provider's other pools; None also if one of their nodes went lately."""
        provider_name, now = self._pool.pool_key[0], wall_time()
        if monotonic() < self._next_look_elsewhere:
            return None
        self._next_look_elsewhere = monotonic() + ELSEWHERE_SECONDS
        found: list[Node] = []
        for node in self._nodes.values():
            if node.provider != provider_name or node.pool is None:
                continue
            if node.state == states.DELETING and abs(now - (node.state_time or 0)) < EVICTION_SECONDS:
                return None
            if is_free(node, provider_name, node.pool) and not self._nodes.is_locked(node.key):
                found.append(node)
        return _oldest(found)


def _oldest(nodes: Iterable[Node]) -> Node | None:
    return min(nodes, key=lambda node: node.state_time or 0, default=None)


# Tenant resource limits (rules ).

#: Longest wait for the cache to have read what was reported to it.
SETTLE_SECONDS: Final = 5.0


class TenantCheck:
    """Compares what each limited tenant uses with its limits. Owned by the pool worker's thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        #: tenant -> use at its first check in this pass, and what was accepted since
        self._used: dict[str, QuotaInformation] = {}
        #: Tenants whose first request waits for room in the limits, in this pass, and what it waits for.
        self._reserved: dict[str, Reason] = {}
        #: tenant -> what was logged of the last error
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
        return reasons.tenant_limit(name, found.resource, limit=found.limit, used=found.used, needed=found.needed)

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
        pending = pending_of(name, self._pool.cache.requests.values())
        nodes = grouped(self._nodes(name) if pending else (), lambda node: node.allocated_to)
        total = QuotaInformation()
        for request in pending:
            total.add(self._need(missing_labels(request, nodes.get(request.id, ())).elements()))
        return total

    def _nodes(self, tenant: str) -> list[Node]:
        return [node for node in self._pool.cache.nodes.values() if node.tenant_name == tenant]

    def _report(self, tenant: str, error: Exception) -> None:
        """Once for each error, not at each look; with a traceback if no one expected it."""
        text = f"{type(error).__name__}: {error}"
        if self._errors.get(tenant) == text:
            return
        self._errors[tenant] = text
        expected = isinstance(error, RuntimeConfigurationException | NotKnown | ZKConnectionError)
        self._pool.log.warning(
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
        return needed(self._pool, labels)


def needed(pool: Pool, labels: Iterable[str]) -> QuotaInformation:
    """What nodes of some labels need; labels that are not in this pool are not counted. May raise anything."""
    need, provider = QuotaInformation(), pool.provider
    if isinstance(provider, QuotaSupport):
        for label in labels:
            if label in pool.labels:
                need.add(gateway.quota_needed_by_label(provider, label, pool.pool_config))
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
    # A ready node that someone took is under his lock, where changes are not read otherwise.
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
