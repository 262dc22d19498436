# SPDX-License-Identifier: Apache-2.0
"""Keeps one ready node in ZooKeeper for each free slot of the configured hosts (rules S).

First the provider, then its requests, then the way of a returned node back to `ready`, then its writes to ZooKeeper,
and which nodes have a slot.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, Final

from nodepool import log_names
from nodepool.clock import cpu_time, monotonic, wall_time
from nodepool.driver.framework.cloud_errors import CheckResult
from nodepool.driver.framework.handler_hooks import PoolWorkerView, node_logger
from nodepool.driver.framework.quota_support import follow
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.interface import Done, Provider
from nodepool.driver.static.checks import HostChecker, HostMonitor, Quarantines, cause, host_checks, is_alive
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.exceptions import ZKConflict, ZKException
from nodepool.guard import Guard, as_exception
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.reasons import Reason, ReasonCode, ReasonText, no_access
from nodepool.model.request import NodeRequest
from nodepool.model.status import HostStatus, Maintenance
from nodepool.plan import static
from nodepool.plan.maintenance import CLOCK_SKEW_SECONDS
from nodepool.plan.static import HostFacts, HostId, HostSpec, SlotId, StaticPlan, too_few_slots
from nodepool.plan.triage import MIN_READY_REQUESTOR, RequestKind, can_match
from nodepool.zk import paths
from nodepool.zk.cache import RecordCache
from nodepool.zk.zookeeper import ZooKeeper

#: A pass without any event, the safety net (S-10).
RESYNC_SECONDS: Final = 60.0
#: Next pass after ZooKeeper did not answer.
ZK_RETRY_SECONDS: Final = 5.0
#: Next pass while the maintenance records have not been read yet; their cache asks for one, too.
UNKNOWN_SECONDS: Final = 1.0
#: Passes may take this part of a processor: 1 in 1 + GAP_FACTOR, unless the gap gets too long.
GAP_FACTOR: Final = 4
LONGEST_GAP_SECONDS: Final = 1.0
#: Checks of the provider's own at once; the other threads of the pool are for nodes that are used or returned.
MAX_OWN_CHECKS: Final = 50
#: Threads that are there for such nodes even when there are few hosts.
SPARE_THREADS: Final = 4


def _known(result: bool) -> Future[bool]:
    future: Future[bool] = Future()
    future.set_result(result)
    return future


#: Checks of ready nodes that need none: shared, because a result that is there never changes.
_UNCHECKED: Final = _known(True)
_GONE: Final = _known(False)


class StaticProvider(Provider):
    """Hosts that exist already. It never launches.

    One thread compares configuration and nodes in passes (`run_once`): at start, every minute, when a check of a host
    ended and when a host's back-off is over. Checks run in a thread pool. Released nodes are recycled beside that.

    ``_condition`` guards ``_results``, ``_lost``, ``_wanted`` and ``_workers``; it is not held across I/O. All else
    belongs to the thread.
    """

    PAUSE_AT_QUOTA: ClassVar[bool] = False
    LAUNCHES: ClassVar[bool] = False

    def __init__(self, provider_config: StaticProviderConfig) -> None:
        self.provider: StaticProviderConfig = provider_config
        self.name = provider_config.name
        self._hosts = provider_config.hosts()
        self.log = logging.getLogger(log_names.static_provider(self.name))
        self._idle = threading.Event()
        self._condition = threading.Condition()
        self._wanted = True
        self._results: list[tuple[HostId, Future[HostFacts]]] = []
        self._lost: list[tuple[HostId, Exception]] = []
        self._workers: set[PoolWorkerView] = set()
        self._monitor = HostMonitor(self._hosts, self.log)
        self._checking: set[HostId] = set()
        self._found: dict[HostId, HostFacts] = {}
        self._failed: dict[HostId, Exception] = {}
        #: When hosts were quarantined first, in the row of failures that they are in or were in last.
        self._quarantined_since: dict[HostId, float] = {}
        # Hosts that had nodes before us are looked at again, too (S-1).
        self._unverified = {host for host, spec in self._hosts.items() if spec.check}
        self._thread: threading.Thread | None = None
        self._checker: HostChecker
        self._quarantines: Quarantines
        self._registry: StaticRegistry

    # -- life --

    def start(self, zk_conn: ZooKeeper) -> None:
        """Begin to check and register hosts in the background; does not block.

        Without a cache, in a command, nothing is registered: the provider is there to recycle one node.
        """
        self.prepare(zk_conn)
        if zk_conn.cache is None:
            return
        zk_conn.cache.maintenance.add_listener(self.wake)
        self._thread = threading.Thread(target=self._run, name=f"StaticProvider-{self.name}", daemon=True)
        self._thread.start()

    def prepare(self, zk_conn: ZooKeeper) -> None:
        """Everything that `start` does but the thread; then `run_once` may be called."""
        self.zk = zk_conn
        self._quarantines = Quarantines(zk_conn, self._hosts)
        self._registry = StaticRegistry(zk_conn, self.name, self._hosts, self._quarantines, self._idle, self.log)
        slots = sum(spec.slots for spec in self._hosts.values())
        self._checker = HostChecker(f"StaticProvider-{self.name}", slots + SPARE_THREADS)

    def idle(self) -> None:
        """Neither register nor deregister any more (S-13). Does not block."""
        self._idle.set()
        self.wake()

    def stop(self) -> None:
        """Take on no new work. Does not block; checks that run end within the hosts' timeouts."""
        self.idle()
        if self.zk is not None:
            self._checker.stop()
            if self.zk.cache is not None:
                self.zk.cache.maintenance.remove_listener(self.wake)

    def join(self) -> None:
        """Wait for the thread and the running checks; after `stop`."""
        if self._thread is not None:
            self._thread.join()
        if self.zk is not None:
            self._checker.join()

    def wake(self) -> None:
        """Ask for a pass now. Any thread; does not block."""
        with self._condition:
            self._wanted = True
            self._condition.notify()

    # -- the thread --

    def _run(self) -> None:
        while not self._idle.is_set():
            cost = cpu_time()
            delay = RESYNC_SECONDS
            # Without this thread no host is registered any more.
            with Guard(self.log, "Error while comparing hosts and nodes; trying again in %g s", RESYNC_SECONDS):
                try:
                    delay = self.run_once()
                except ZKException as error:
                    self.log.warning("ZooKeeper: %s. Trying again in %g s", error, ZK_RETRY_SECONDS)
                    delay = ZK_RETRY_SECONDS
            # Thousands of hosts that end their checks one by one must not cost a pass each.
            self._idle.wait(min(LONGEST_GAP_SECONDS, GAP_FACTOR * (cpu_time() - cost)))
            with self._condition:
                self._condition.wait_for(lambda: self._wanted or self._idle.is_set(), delay)
                self._wanted = False

    def run_once(self) -> float:
        """One pass: take the results of checks, register, update, deregister, start due checks.

        :return: seconds until the next pass is due without an event.
        :raises ZKException: it is not complete; call it again.
        """
        if not self._quarantines.known:
            return UNKNOWN_SECONDS
        now = monotonic()
        self._take_results(now)
        held = self._look_at_quarantines()
        if self._found:
            self._registry.register(self._found)
        nodes = self._registry.nodes()
        plan = self._registry.plan(nodes)
        self._apply(plan)
        emptied = self._release(plan.release) | {
            static.slot_of(node).host
            for node in nodes
            if static.is_free(node) and not self._registry.is_locked(node) and self._apply_check(node)
        }
        self._found.clear()
        self._failed.clear()
        if self._monitor.has_news():
            # Requests that wait there do so for another reason now.
            with self._condition:
                workers = list(self._workers)
            for worker in workers:
                worker.wake()
        return self._start_checks(plan, emptied, held, now)

    def _take_results(self, now: float) -> None:
        """Sort checks that ended into hosts that work (`_found`) and hosts that do not (`_failed`)."""
        with self._condition:
            results, self._results = self._results, []
            lost, self._lost = self._lost, []
        for host, future in results:
            self._checking.discard(host)
            if future.cancelled():
                continue
            error = future.exception()
            if error is not None:
                self._failed[host] = as_exception(error)
                self._monitor.failed(host, self._failed[host], now)
            else:
                self._found[host] = future.result()
                self._monitor.worked(host)
            self._unverified.discard(host)
        for host, reason in lost:
            if host in self._found or host in self._failed:
                continue
            self._failed[host] = reason
            # Of several slots that lost their nodes together one counts.
            if self._monitor.health(host).up is not False:
                self._monitor.failed(host, reason, now)

    def _look_at_quarantines(self) -> Mapping[HostId, Maintenance]:
        """Compare the records with those of the pass before; quarantine hosts that fail too often (S-16).

        :return: hosts that are out of service. One that was quarantined here is known with its record, a moment later.
        :raises ZKException: it is not done; call it again.
        """
        before, held = self._monitor.held, self._quarantines.held()
        for host, record in before.items():
            if host not in held:
                # One that would have held longer was ended by an operator. Clocks of hosts differ.
                ended_early = not record.is_over(wall_time() + CLOCK_SKEW_SECONDS)
                self._monitor.retry_now(host, forget=ended_early)
                self.log.info("Static host %s is not quarantined any more; it is checked now", host)
        for host, record in held.items():
            # What this launcher wrote was logged when it was written.
            if host not in before and not (record.automatic and record.by == self._quarantines.by):
                self.log.info("Static host %s is quarantined: %s", host, cause(record))
        self._monitor.hold(held)
        for host in self._failed:
            if host not in held:
                self._quarantine(host)
        return held

    def _quarantine(self, host: HostId) -> None:
        seconds = self._monitor.quarantine_seconds(host)
        if seconds is None:
            return
        health = self._monitor.health(host)
        checks = "check" if health.row == 1 else "checks"
        reason = f"{health.row} failed {checks} in a row, the last one: {health.text}"
        since = self._quarantined_since.get(host)
        if since is not None and since < health.since:
            since = None
        if self._quarantines.quarantine(host, reason, seconds, since=since):
            self._quarantined_since[host] = since or wall_time()
            self.log.warning("Static host %s is quarantined, and checked again in %.0f s: %s", host, seconds, reason)

    def _apply(self, plan: StaticPlan) -> None:
        for node, comment in plan.hold:
            self._registry.hold(node, comment)
        for node, changes in plan.update:
            # A host that was checked just now has more to say: `_apply_check`.
            if static.slot_of(node).host not in self._found:
                self._registry.update(node, changes)
        for node, reason in plan.deregister:
            self._registry.deregister(node, reason)

    def _release(self, nodes: list[Node]) -> set[HostId]:
        """Remove nodes on hold whose hosts are not quarantined any more (S-17); returns the hosts that lost one."""
        if not nodes:
            return set()
        over = self._quarantines.surely_over({static.slot_of(node).host for node in nodes})
        return {
            host
            for node in nodes
            if (host := static.slot_of(node).host) in over
            and self._registry.deregister(node, "its host is not quarantined any more")
        }

    def _apply_check(self, node: Node) -> bool:
        """Give a free node what the check of its host found (S-6); a host that failed loses it (S-3, S-9).

        :return: it lost it; its slot is empty now.
        """
        host = static.slot_of(node).host
        spec = self._registry.spec_of(node)
        if spec is None:
            return False
        if host in self._found:
            changes = static.changed_by_scan(spec, node, self._found[host])
            if changes:
                self._registry.update(node, changes)
        elif host in self._failed and spec.check:
            return self._registry.deregister(node, str(self._failed[host]))
        return False

    def _start_checks(self, plan: StaticPlan, emptied: set[HostId], held: Collection[HostId], now: float) -> float:
        """Start the checks that are due; returns the time until the next one is.

        :param emptied: hosts that lost nodes after the plan was made. ``held``: hosts that are not checked now.
        """
        rescan = {static.slot_of(node).host for node in plan.rescan}
        needy = (plan.register.keys() | emptied | rescan | self._unverified) - set(held)
        delay = min(RESYNC_SECONDS, self._quarantines.seconds_to_next_end())
        for host in sorted(needy - self._checking, key=self._monitor.due):
            wait = self._monitor.due(host) - now
            if wait > 0:
                delay = min(delay, wait)
                break
            if len(self._checking) >= MAX_OWN_CHECKS or self._idle.is_set():
                # The end of a check brings the next pass.
                break
            self._checking.add(host)
            self._checker.check(self._hosts[host]).add_done_callback(self._result_callback(host))
        return delay

    def _result_callback(self, host: HostId) -> Callable[[Future[HostFacts]], None]:
        def done(future: Future[HostFacts]) -> None:
            with self._condition:
                self._results.append((host, future))
            self.wake()

        return done

    def _slot_empty(self, host: HostId, error: Exception | None) -> None:
        """A slot lost its node outside of a pass. Any thread.

        :param error: the host failed a check; None = nothing is wrong with it.
        """
        if error is not None:
            with self._condition:
                self._lost.append((host, error))
        self.wake()

    # -- released nodes --

    def replacementFor(self, node: Node) -> Node | None:
        """The next node of the slot, if no other node has it (S-10). No I/O.

        Only of a host that is never contacted; or of a quarantined one, which is on hold (S-17).
        """
        if self._idle.is_set() or self.zk is None or self.zk.cache is None:
            return None
        held = self._registry.why_held(static.slot_of(node).host)
        return static.replacement(self.name, self._hosts, node, self._registry.others_in_slot(node), held)

    def startNodeCleanup(self, node: Node) -> StaticNodeCleanup:
        """Check the host of a released, locked node; then replace the node by a new one, or remove it (S-8)."""
        task = StaticNodeCleanup(self._registry, node, self._slot_empty)
        spec = self._registry.spec_of(node)
        if spec is None or self._quarantines.of(spec.id) is not None:
            # No check: the slot is not configured any more (S-7), or the host quarantined (S-17).
            removed = self._checker.submit(lambda: self._registry.recycle(node, None), False)
            removed.add_done_callback(lambda _: task.finish())
        else:
            self._checker.check(spec).add_done_callback(task.checked)
        return task

    def nodeDeletedNotification(self, node: Node) -> None:
        """Another removed a node: its slot is empty now."""
        if self._registry.spec_of(node) is not None:
            self.wake()

    def check_alive(self, node: Node) -> Future[bool]:
        """Start to check whether a ready node may be handed out (S-9, S-10, S-17); does not block.

        A node whose host does not answer, or whose slot another node has, is deregistered before the result is there.
        """
        spec = self._registry.spec_of(node)
        if spec is None:
            return _GONE
        if self._quarantines.of(spec.id) is not None:
            self.wake()
            return _GONE
        rival = self._registry.rival(node)
        if rival is not None:
            return self._checker.submit(lambda: self._refuse(node, f"node {rival.id} has the same slot", None), False)
        if not spec.check:
            return _UNCHECKED
        return self._checker.submit(lambda: self._check_alive(spec, node), False)

    def _check_alive(self, spec: HostSpec, node: Node) -> bool:
        if is_alive(spec):
            return True
        reason = f"no TCP connection within {spec.timeout_seconds:g} s"
        return self._refuse(node, reason, ConnectionError(reason))

    def _refuse(self, node: Node, reason: str, error: Exception | None) -> bool:
        """Deregister a node that must not be handed out; returns False. Blocks for two round trips.

        :param error: what is wrong with its host; None = nothing.
        """
        try:
            self._registry.deregister(node, reason)
        except ZKException as problem:
            self.log.warning("Node %s stays until the next pass: %s", node.id, problem)
        self._slot_empty(static.slot_of(node).host, error)
        return False

    # -- what the framework asks --

    def slot_labels(self, pool_name: str, kind: RequestKind | None = None) -> list[tuple[str, ...]]:
        """Labels of each slot of a pool, in use or not. :param kind: only slots for such requests; None = all."""
        hosts = [spec for spec in self._hosts.values() if spec.pool == pool_name]
        mine = [spec for spec in hosts if kind is None or kind.may_have(spec.allowed_tenants)]
        return [spec.labels for spec in mine for _ in range(spec.slots)]

    def waitReason(self, pool_name: str, labels: Sequence[str], free: Mapping[str, int]) -> Reason:
        """How many slots with the labels are in use, and which hosts are down. No I/O."""
        return self._monitor.wait_reason(pool_name, labels, free)

    def preflight(self) -> Iterator[CheckResult]:
        """Every configured host is looked at; blocks for at most a minute and a host's timeout."""
        return host_checks(self.name, self._hosts.values())

    def hostStatus(self) -> list[HostStatus]:
        """Every configured host. No I/O."""
        index = self._registry.index if self.zk is not None else None
        return self._monitor.statuses(index.nodes_in if index is not None else lambda _: [])

    def getRequestHandler(self, poolworker: PoolWorkerView, request: NodeRequest) -> StaticNodeRequestHandler:
        with self._condition:
            self._workers.add(poolworker)
        return StaticNodeRequestHandler(poolworker, request)

    def labelReady(self, name: Any) -> bool:
        """Is there a host with this label? Name or label object."""
        return getattr(name, "name", name) in self.provider.getSupportedLabels()

    def cleanupNode(self, node_id: Any) -> None:
        """A host stays as it is."""

    def waitForNodeCleanup(self, node_id: Any) -> None:
        """Nothing to wait for."""

    def cleanupLeakedResources(self) -> None:
        """There is nothing that could leak."""

    def listNodes(self) -> list[Any]:
        return []


# `StaticNodeRequestHandler`: hands out nodes that are ready, and never launches (rule S-11).

_NO_MIN_READY: Final = Reason(ReasonCode.POOL_WITHOUT_LAUNCHES, "static hosts have no min-ready", {"limit": 0})


class StaticNodeRequestHandler(NodeRequestHandler):
    """Serves a request from registered hosts. What cannot be served now is given back and waits (A-7, Q-12)."""

    manager: StaticProvider

    @property
    def alive_thread_count(self) -> int:
        """Nothing is ever launched."""
        return 0

    def imagesAvailable(self) -> bool:
        """There are no images."""
        return True

    def hasProviderQuota(self, node_types: list[str]) -> bool:
        """Are there enough hosts in the pool, if all were free? More will not come by waiting."""
        return can_match(node_types, self.manager.slot_labels(self.pool.name))

    def hasRemainingQuota(self, ntype: str) -> bool:
        """There is no room for another node: the hosts are what they are."""
        return False

    def launch(self, node: Node) -> None:
        raise NotImplementedError("static hosts are not launched")

    def launchesComplete(self) -> bool:
        return True

    def getDeclinedReasons(self) -> list[str]:
        """More nodes than the pool has slots (S-15), or slots for the tenant (A-24); min-ready requests: their nodes
        are always ready (S-14).
        """
        reasons = self.basic_decline_reasons()
        if not reasons:
            short = too_few_slots(self.request.node_types, self.manager.slot_labels(self.pool.name))
            kind = RequestKind.of(self.request)
            if short is None and not can_match(kind.labels, self.manager.slot_labels(self.pool.name, kind)):
                short = no_access(kind.tenant_name, "the hosts, of which the others are too few")
            reasons = [] if short is None else [ReasonText(short)]
        if not reasons and self.request.requestor == MIN_READY_REQUESTOR:
            reasons = [ReasonText(_NO_MIN_READY)]
        return reasons

    def checkReusableNode(self, node: Node) -> bool:
        """Does the node's host answer? Blocks for at most its timeout."""
        return self.startReusableNodeCheck(node).result()

    def startReusableNodeCheck(self, node: Node) -> Future[bool]:
        """`checkReusableNode` in a thread of the provider's pool; does not block (S-9)."""
        return self.manager.check_alive(node)


# The way of a released node back to `ready` (rule S-8).

log = logging.getLogger("nodepool.driver.static")


class StaticNodeCleanup(Done):
    """One released node. The node keeps its slot until its successor is stored in the same write.

    :param node: locked by us.
    :param slot_empty: notified when the slot has no node now, and why if its host failed the check.
    """

    def __init__(
        self, registry: StaticRegistry, node: Node, slot_empty: Callable[[HostId, Exception | None], None]
    ) -> None:
        super().__init__()
        self._registry = registry
        self._node = node
        self._slot_empty = slot_empty

    def finish(self) -> None:
        """End, in any case with the node deleted or unlocked."""
        try:
            if self._node.lock is not None:
                self._registry.unlock(self._node)
        finally:
            self.set()

    def checked(self, check: Future[HostFacts]) -> None:
        """The host's check ended: go on. Called in a thread of the pool; blocks for a round trip."""
        try:
            # A callback of a future: no one else would hear of it. The launcher tries again.
            with Guard(log, "Node %s could not be recycled", self._node.id):
                if check.cancelled():
                    # The provider is stopped. The node stays `deleting`; the successor does this again.
                    return
                error = check.exception()
                facts = check.result() if error is None else None
                if not self._registry.recycle(self._node, facts):
                    host = static.slot_of(self._node).host
                    self._slot_empty(host, error if isinstance(error, Exception) else None)
        finally:
            self.finish()


# `StaticRegistry`: the writes. Every change of a static node in ZooKeeper happens here.


class StaticRegistry:
    """The nodes of one static provider. Thread-safe: it has no state of its own but ``idle`` and the index of slots.

    :param zk: with or without a cache.
    :param hosts: the configuration.
    :param quarantines: hosts that are not registered now.
    :param idle: set = write nothing more; the successor of this provider does (S-13).
    """

    def __init__(
        self,
        zk: ZooKeeper,
        provider_name: str,
        hosts: Mapping[HostId, HostSpec],
        quarantines: Quarantines,
        idle: threading.Event,
        log: logging.Logger,
    ) -> None:
        self._zk = zk
        self._provider_name = provider_name
        self._hosts = hosts
        self._quarantines = quarantines
        self._idle = idle
        #: Nodes of each slot; None = there is no cache.
        self.index = SlotIndex(zk.cache.nodes, self._known_slot) if zk.cache is not None else None
        self.log = log

    def spec_of(self, node: Node) -> HostSpec | None:
        """The host of a node; None if the host or the slot is not configured (any more)."""
        slot = static.slot_of(node)
        spec = self._hosts.get(slot.host)
        return spec if spec is not None and slot.slot < spec.slots else None

    def why_held(self, host: HostId) -> str | None:
        """Why a host is quarantined; None = it is not. Does not block."""
        record = self._quarantines.of(host)
        return None if record is None else cause(record)

    def is_locked(self, node: Node) -> bool:
        """Does anybody hold or wait for the node's lock?"""
        return self._zk.isNodeLocked(node)

    def nodes(self) -> list[Node]:
        """This provider's nodes from the cache; do not change them."""
        return [node for node in self._zk.nodeIterator() if node.provider == self._provider_name]

    def _known_slot(self, node: Node) -> SlotId | None:
        """The configured slot that a node of this provider tells."""
        spec = self.spec_of(node) if node.provider == self._provider_name else None
        return static.slot_of(node) if spec is not None and static.knows_slot(spec, node) else None

    def others_in_slot(self, node: Node) -> list[Node]:
        """Other nodes that tell the same slot, in any state: others may register what we would not (S-10).

        Does not block; without a cache it reads all nodes.
        """
        slot = static.slot_of(node)
        if self.index is not None:
            found = self.index.nodes_in(slot)
        else:
            found = [other for other in self.nodes() if self._known_slot(other) == slot]
        return [other for other in found if other.id != node.id]

    def rival(self, node: Node) -> Node | None:
        """The node that has a better claim to the slot of this one; None = there is none. Blocks like `others_in_slot`.

        Of two nodes the older one is known to everybody who knows the younger one. So two launchers give away one.
        """
        others = self.others_in_slot(node)
        if not others:
            return None
        first = static.by_claim([node, *others], self._zk.isNodeLocked)[0]
        return None if first.id == node.id else first

    def plan(self, nodes: Iterable[Node]) -> StaticPlan:
        quarantined = {host: cause(record) for host, record in self._quarantines.held().items()}
        return static.decide(self._hosts, nodes, self._zk.isNodeLocked, quarantined)

    def register(self, found: Mapping[HostId, HostFacts]) -> int:
        """Store a node for each empty slot of these hosts; returns how many. Blocks for some round trips.

        Another launcher with the same provider does the same. So the slots are compared with what ZooKeeper has
        now, while a lock keeps the others out (S-10).

        :raises ZKException: it is not done or not complete; call it again.
        """
        count = 0
        with self._zk.providerMutex(self._provider_name) as mutex:
            empty = self.plan(self._nodes_now()).register
            for host, slot in [(h, slot) for h, slots in empty.items() if h in found for slot in slots]:
                if self._idle.is_set():
                    break
                node = static.new_node(self._provider_name, self._hosts[host], slot, found[host])
                # Who stood still until the session was over would fill slots that others have filled since.
                self._zk.nodes.create(node, under=mutex)
                self.log.info("Registered static host %s, slot %d, as node %s", host, slot, node.id)
                count += 1
        return count

    def _nodes_now(self) -> list[Node]:
        """This provider's nodes, with all that exist at this moment.

        Host and slot of a node hardly change, so a record from the cache will do; only nodes that the cache does not
        know yet are read, and those that a client wrote without their slot: another launcher may have given them one.
        One that is deleted by then may have given its slot to another one, which is not in the list.
        """
        while True:
            known = {node.id: node for node in self._zk.nodeIterator() if not self._lacks_slot(node)}
            listed = self._zk.getNodes()
            found = {node_id: known.get(node_id) or self._zk.getNode(node_id) for node_id in listed}
            # What is there and cannot be read, or has a name that no one asks for, is no node of ours.
            missing = {node_id for node_id, node in found.items() if node is None and paths.is_name(node_id)}
            if missing == self._zk.nodes.existing(missing):
                return [node for node in found.values() if node is not None and node.provider == self._provider_name]

    def _lacks_slot(self, node: Node) -> bool:
        spec = self.spec_of(node) if node.provider == self._provider_name else None
        return spec is not None and not static.knows_slot(spec, node)

    def update(self, node: Node, changes: Mapping[str, Any]) -> bool:
        """Change fields of a free node in place (S-6); False = it was not free any more. One round trip."""
        changed = self._change(node, changes)
        if changed:
            self.log.info("Updated node %s in place: %s", node.id, ", ".join(sorted(changes)))
        return changed

    def hold(self, node: Node, comment: str) -> bool:
        """Put a free node on hold (S-17); False = it was not free any more. One round trip."""
        held = self._change(node, {"state": states.HOLD, "comment": comment})
        if held:
            self.log.info("Node %s of static host %s is on hold: %s", node.id, static.slot_of(node).host, comment)
        return held

    def _change(self, node: Node, changes: Mapping[str, Any]) -> bool:
        if self._idle.is_set():
            return False
        changed = node.copy()
        for name, value in changes.items():
            setattr(changed, name, value)
        try:
            self._zk.nodes.save_unlocked(changed)
        except ZKConflict as conflict:
            self.log.debug("Node %s is not changed now: %s", node.id, conflict)
            return False
        return True

    def deregister(self, node: Node, reason: str) -> bool:
        """Remove a free node; False = it was not free any more. Two round trips."""
        if self._idle.is_set():
            return False
        doomed = node.copy()
        doomed.state = states.DELETING
        try:
            self._zk.nodes.lock_and_save(doomed)
        except ZKConflict as conflict:
            self.log.debug("Node %s is not deregistered now: %s", node.id, conflict)
            return False
        self.log.info("Deregistering node %s of static host %s: %s", node.id, static.slot_of(node).host, reason)
        try:
            self._zk.deleteNode(doomed)
        except ZKException:
            # It is `deleting`: who looks after released nodes finishes this.
            self.unlock(doomed)
            raise
        return True

    def recycle(self, node: Node, facts: HostFacts | None) -> bool:
        """Remove a released node that we hold locked; ends with the node deleted or unlocked. One round trip.

        :param facts: register the slot again in the same write, unless another node has it; None = only remove. The
            node of a quarantined host is followed by one on hold.
        :return: has the slot a node again?
        """
        log = node_logger(self.log, node)
        spec = self.spec_of(node)
        if self._idle.is_set():
            self.unlock(node)
            return False
        new = None
        try:
            if spec is not None:
                others = self.others_in_slot(node)
                new = static.successor(self._provider_name, spec, node, others, facts, self.why_held(spec.id))
            try:
                self._zk.replaceNode(node, new)
            except ZKConflict:
                if new is None:
                    raise
                # Someone waits for the lock. The slot is registered again by the next pass.
                new = None
                self._zk.replaceNode(node, None)
        except ZKException as error:
            log.error("Removing the node failed, it will be tried again: %s", error)
            self.unlock(node)
            return False
        log.info("Removed node; %s", f"its slot is node {new.id} now" if new is not None else "it has no successor")
        return new is not None

    def unlock(self, node: Node) -> None:
        """Give a node's lock back; errors are logged."""
        if node.lock is None:
            return
        try:
            self._zk.unlockNode(node)
        except ZKException as error:
            self.log.error("Unlocking node %s failed: %s", node.id, error)


# Which nodes have a slot? A look costs no more than what has changed since the last one.


class SlotIndex:
    """The nodes of each slot of a provider's hosts.

    Any thread may ask. ``_lock`` guards the two maps; it is held for dictionary work only.

    :param nodes: the cache of nodes; it lets go of the index when no one else holds it.
    :param slot_of: the slot of a node; None = it is in none. Must not block.
    """

    def __init__(self, nodes: RecordCache[Node], slot_of: Callable[[Node], SlotId | None]) -> None:
        self._nodes = nodes
        self._slot_of = slot_of
        self._lock = threading.Lock()
        self._changes = follow(nodes, self)
        self._slots: dict[str, SlotId] = {}
        self._ids: dict[SlotId, set[str]] = {}

    def nodes_in(self, slot: SlotId) -> list[Node]:
        """The nodes that have a slot, in any state; do not change them. Does not block."""
        with self._lock:
            self._update()
            found = list(self._ids.get(slot, ()))
        return [node for node in map(self._nodes.get, found) if node is not None]

    def _update(self) -> None:
        changed = self._changes.take()
        if "" in changed:
            changed = {*self._slots, *self._nodes.ids()}
        for node_id in changed:
            node = self._nodes.get(node_id)
            self._place(node_id, None if node is None else self._slot_of(node))

    def _place(self, node_id: str, slot: SlotId | None) -> None:
        old = self._slots.get(node_id)
        if old == slot:
            return
        if old is not None:
            del self._slots[node_id]
            self._ids[old].discard(node_id)
            if not self._ids[old]:
                del self._ids[old]
        if slot is not None:
            self._slots[node_id] = slot
            self._ids.setdefault(slot, set()).add(node_id)
