# SPDX-License-Identifier: Apache-2.0
"""Keeps one ready node in ZooKeeper for each free slot of the configured hosts (rules S).

First the provider, then its requests, then the way of a returned node back to `ready`, then what checks have shown of
each host, and what the provider reports of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool import log_names
from nodepool.clock import cpu_time, monotonic, wall_time
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.interface import Done, Provider
from nodepool.driver.static.checks import HostChecker, HostKeysMissing, host_checks, is_alive
from nodepool.driver.static.registration import Quarantines, StaticRegistry, cause
from nodepool.exceptions import ZKException
from nodepool.guard import Guard, as_exception
from nodepool.model.event import short
from nodepool.model.reasons import Reason, ReasonCode, ReasonText
from nodepool.model.status import HostStatus
from nodepool.plan import static
from nodepool.plan.nodes import can_match
from nodepool.plan.static import (
    RETRY,
    TELL_AGAIN,
    HostHealth,
    HostId,
    HostSpec,
    LabelSlots,
    SlotId,
    after_failure,
    after_success,
    is_our_network,
    is_quarantined_by,
    quarantine_pause,
    too_few_slots,
    waits_for,
)
from nodepool.plan.triage import MIN_READY_REQUESTOR

if TYPE_CHECKING:
    from nodepool.driver.framework.cloud_errors import CheckResult
    from nodepool.driver.framework.handler_hooks import PoolWorkerView
    from nodepool.driver.static.config import StaticProviderConfig
    from nodepool.driver.static.registration import SlotIndex
    from nodepool.model.maintenance import Maintenance
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.plan.static import HostFacts, StaticPlan
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

    def __init__(
        self,
        provider_config: StaticProviderConfig,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = wall_time,
    ) -> None:
        self.provider: StaticProviderConfig = provider_config
        self.name = provider_config.name
        self._clock = clock
        self._hosts = provider_config.hosts()
        self.log = logging.getLogger(log_names.static_provider(self.name))
        self._idle = threading.Event()
        self._condition = threading.Condition()
        self._wanted = True
        self._results: list[tuple[HostId, Future[HostFacts]]] = []
        self._lost: list[tuple[HostId, Exception]] = []
        self._workers: set[PoolWorkerView] = set()
        self._wall = wall
        self._monitor = HostMonitor(self._hosts, self.log, wall)
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
        self._quarantines = Quarantines(zk_conn, self._hosts, self._wall)
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

    @property
    def checks_under_way(self) -> bool:
        """Has a pass started checks whose results no pass has taken yet? For tests."""
        return bool(self._checking)

    @property
    def has_results(self) -> bool:
        """Is there a result for the next pass? For tests."""
        with self._condition:
            return bool(self._results or self._lost)

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
        now = self._clock()
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
            self._wake_pools()
        return self._start_checks(plan, emptied, held, now)

    def _wake_pools(self) -> None:
        """Requests that wait there do so for another reason now."""
        with self._condition:
            workers = list(self._workers)
        for worker in workers:
            worker.wake()

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
                self._monitor.retry_now(host, forget=self._quarantines.ended_early(record))
                self.log.info("Static host %s is not quarantined any more; it is checked now", host)
        for host, record in held.items():
            # What this launcher wrote was logged when it was written.
            if host not in before and not (record.automatic and record.by == self._quarantines.by):
                self.log.info("Static host %s is quarantined: %s", host, cause(record))
        if held != before:
            self._monitor.held = held
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
            self._quarantined_since[host] = since or self._quarantines.now()
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
            self._checker.submit(task.remove, None).add_done_callback(lambda _: task.finish())
        else:
            self._checker.check(spec).add_done_callback(task.checked)
        return task

    def nodeDeletedNotification(self, node: Node) -> None:
        """Somebody else removed a node: its slot is empty now."""
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

    def slot_labels(self, pool_name: str) -> list[tuple[str, ...]]:
        """Labels of each slot of a pool, in use or not."""
        return [spec.labels for spec in self._hosts.values() if spec.pool == pool_name for _ in range(spec.slots)]

    def waitReason(self, pool_name: str, labels: Sequence[str], free: Mapping[str, int]) -> Reason:
        """How many slots with the labels are in use, and which hosts are down. No I/O."""
        return self._monitor.wait_reason(pool_name, labels, free)

    def preflight(self) -> Iterator[CheckResult]:
        """Every configured host is looked at; blocks for at most a minute and a host's timeout."""
        return host_checks(self.name, self._hosts.values())

    def hostStatus(self) -> list[HostStatus]:
        """Every configured host. No I/O."""
        return self._monitor.statuses(self._registry.index if self.zk is not None else None)

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
        """More nodes than the pool has slots (S-15); min-ready requests: their nodes are always ready (S-14)."""
        reasons = self.basic_decline_reasons()
        if not reasons:
            short = too_few_slots(self.request.node_types, self.manager.slot_labels(self.pool.name))
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
        """End, in any case with the node gone or unlocked."""
        try:
            if self._node.lock is not None:
                self._registry.unlock(self._node)
        finally:
            self.set()

    def checked(self, check: Future[HostFacts]) -> None:
        """The host's check ended: go on. Called in a thread of the pool; blocks for a round trip."""
        try:
            # A callback of a future: nobody else would hear of it. The launcher tries again.
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

    def remove(self) -> None:
        """No check: the slot is not configured any more (S-7), or the host quarantined (S-17). One round trip."""
        self._registry.recycle(self._node, None)


# What the checks of each host have shown, and when it is checked again: those that are down delay no other.

_UNKNOWN: Final = HostHealth()


#: (pool, label) -> slots
_Slots = Mapping[tuple[str, str], LabelSlots]


class HostMonitor:
    """Written by the provider's thread; any thread may read, and nothing blocks.

    Logs what is wrong with a host when that changes, and as long as it stays less and less often.

    :param hosts: the configuration.
    :param wall: seconds since the epoch.
    """

    def __init__(
        self, hosts: Mapping[HostId, HostSpec], log: logging.Logger, wall: Callable[[], float] = wall_time
    ) -> None:
        self._hosts = hosts
        self.log = log
        self._wall = wall
        self._health: dict[HostId, HostHealth] = {}
        #: When a host is checked again: by the clock of the provider, and in seconds since the epoch.
        self._next: dict[HostId, tuple[float, float]] = {}
        #: What the log has last of a host that is down, when that is logged again, and how often it was.
        self._told: dict[HostId, tuple[str, float, int]] = {}
        #: Grows when a host goes or comes.
        self.changes = 0
        #: Hosts that are out of service, as of the provider's last pass. Replaced as a whole.
        self.held: Mapping[HostId, Maintenance] = {}
        #: As `has_news` saw it last.
        self._told_before: tuple[int, Mapping[HostId, Maintenance]] = (0, self.held)
        #: What was seen of ``changes`` and of ``held``, and slots by (pool, label). Replaced as a whole.
        self._slots: tuple[int, Mapping[HostId, Maintenance] | None, _Slots] = (-1, None, {})

    def health(self, host: HostId) -> HostHealth:
        """What its checks have shown. Any thread; does not block."""
        return self._health.get(host, _UNKNOWN)

    def next_try(self, host: HostId) -> float | None:
        """When a host that is down is checked again, in seconds since the epoch. Any thread; does not block."""
        found = self._next.get(host)
        return None if found is None else found[1]

    def due(self, host: HostId) -> float:
        """Time of the next check; 0 for a host without trouble."""
        return self._next.get(host, (0.0, 0.0))[0]

    def failed(self, host: HostId, error: Exception, now: float) -> None:
        """Note that a host failed its check.

        :param now: of any clock that only goes forward, in seconds.
        """
        at = self._wall()
        text = str(error) or type(error).__name__
        health = self._set(host, after_failure(self.health(host), text, at, self._quarantine_after(host)))
        # Somebody must change something; S-3.
        pause = RETRY.longest_seconds if isinstance(error, HostKeysMissing) else RETRY.pause(health.failures)
        self._next[host] = now + pause, at + pause
        self._tell(host, health, now, at)

    def quarantine_seconds(self, host: HostId) -> float | None:
        """For how long a host that failed is quarantined now; None = it is not (S-16)."""
        health = self.health(host)
        if not is_quarantined_by(health, self._quarantine_after(host)):
            return None
        checked = [each.up for each in self._health.values() if each.up is not None]
        if is_our_network(checked.count(False), len(checked)):
            return None
        return quarantine_pause(health, self._wall())

    def retry_now(self, host: HostId, *, forget: bool) -> None:
        """The quarantine of a host is over: it is checked at once.

        :param forget: an operator released it: its failures count anew.
        """
        self._next.pop(host, None)
        if forget:
            self._health[host] = replace(self.health(host), row=0, returns=0)

    def worked(self, host: HostId) -> None:
        """Note that a host passed its check."""
        before = self.health(host)
        health = self._set(host, after_success(before, self._wall()))
        self._next.pop(host, None)
        self._told.pop(host, None)
        if before.up is False:
            seconds = short(health.since - before.since)
            self.log.info(
                "Static host %s works again after %d failed check(s); it was down for %s",
                host,
                before.failures,
                seconds,
            )

    def _quarantine_after(self, host: HostId) -> int:
        spec = self._hosts.get(host)
        return 0 if spec is None else spec.quarantine_after

    def _set(self, host: HostId, health: HostHealth) -> HostHealth:
        if health.up != self.health(host).up:
            self.changes += 1
        self._health[host] = health
        return health

    def _tell(self, host: HostId, health: HostHealth, now: float, at: float) -> None:
        text, again, times = self._told.get(host, ("", 0.0, 0))
        if text != health.text or not times:
            self._told[host] = health.text, now + TELL_AGAIN.pause(1), 1
            self.log.warning(
                "Static host %s is not registered: %s. It is tried again, at the latest every %g s",
                *(host, health.text, RETRY.longest_seconds),
            )
        elif now >= again:
            self._told[host] = text, now + TELL_AGAIN.pause(times + 1), times + 1
            self.log.warning(
                "Static host %s is still down, for %s now, after %d failed checks: %s",
                *(host, short(at - health.since), health.failures, health.text),
            )

    # -- what the provider reports of its hosts, to commands and to requests that wait for one --

    def statuses(self, index: SlotIndex | None) -> list[HostStatus]:
        """Every host, in the order of the configuration.

        :param index: of their nodes; None = they are not known.
        """
        return [self._status(spec, index) for spec in self._hosts.values()]

    def _status(self, spec: HostSpec, index: SlotIndex | None) -> HostStatus:
        health, record = self.health(spec.id), self.held.get(spec.id)
        nodes: list[str] = []
        if index is not None:
            nodes = [node.key for slot in range(spec.slots) for node in index.nodes_in(SlotId(spec.id, slot))]
        return HostStatus(
            name=str(spec.id),
            up=health.up,
            text=health.text,
            since=health.since if record is None else record.since,
            next=self.next_try(spec.id) if record is None else record.until,
            quarantine=None if record is None else cause(record),
            slots=spec.slots,
            nodes=nodes,
            pool=spec.pool,
            labels=spec.labels,
        )

    def has_news(self) -> bool:
        """Did a host go or come since the call before? Only for the provider's thread."""
        seen, self._told_before = self._told_before, (self.changes, self.held)
        return seen[0] != self._told_before[0] or seen[1] is not self._told_before[1]

    def wait_reason(self, pool_name: str, labels: Sequence[str], free: Mapping[str, int]) -> Reason:
        """What a request waits for, see `Provider.waitReason`."""
        slots = self._label_slots()
        mine = {label: slots[pool_name, label] for label in labels if (pool_name, label) in slots}
        return waits_for(labels, mine, free)

    def _label_slots(self) -> _Slots:
        """The slots of each label of each pool; worked out again when a host went or came."""
        # Read first: what changes meanwhile is seen by the next call.
        changes, held = self.changes, self.held
        seen = self._slots
        if seen[0] != changes or seen[1] is not held:
            seen = self._slots = (changes, held, self._count(held))
        return seen[2]

    def _count(self, held: Mapping[HostId, Maintenance]) -> _Slots:
        counted: dict[tuple[str, str], LabelSlots] = {}
        for spec in self._hosts.values():
            up = self.health(spec.id).up
            for label in spec.labels:
                found = counted.get((spec.pool, label), LabelSlots())
                found = replace(found, total=found.total + spec.slots)
                if spec.id in held:
                    found = replace(found, quarantined=found.quarantined.plus(str(spec.id), spec.slots))
                elif up is None:
                    found = replace(found, unchecked=found.unchecked.plus(str(spec.id), spec.slots))
                elif not up:
                    found = replace(found, down=found.down.plus(str(spec.id), spec.slots))
                counted[spec.pool, label] = found
        return counted
