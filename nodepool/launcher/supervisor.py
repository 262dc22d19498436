# SPDX-License-Identifier: Apache-2.0
"""A launcher (rules G).

All parts of a launcher are made by `NodePool` and are given what they use: the connection, the caches, the providers,
one `PoolWorker` per pool of a provider, and the table of the other threads. Then which worker needs to know of a change
(`Router`), the workers of the pools (`PoolThreads`), and the threads that follow maintenance records and keep
``min-ready`` nodes.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.config.objects import Config
from nodepool.driver import gateway
from nodepool.driver.config import ProviderConfig
from nodepool.driver.framework.quota_support import NodeTally
from nodepool.driver.interface import Provider
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKLockException
from nodepool.launcher.canary import CanaryWorker, Trials
from nodepool.launcher.deletion import CleanupWorker, DeletedNodeWorker, is_for_deletion, listen
from nodepool.launcher.pool.fair import TenantLedger
from nodepool.launcher.pool.mixed import MixedWorker
from nodepool.launcher.pool.view import Launcher, Pool
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.launcher.shared import (
    EventRing,
    FreeCounts,
    MaintenanceState,
    PoolRegistry,
    RecordEvents,
    ReloadEvents,
)
from nodepool.launcher.status import StatsWorker, StatusWorker, newest
from nodepool.metrics.registry import REGISTRY, shared_client
from nodepool.model import states
from nodepool.model.event import What, grouped
from nodepool.model.node import Node, QuotaInformation
from nodepool.model.request import NodeRequest
from nodepool.model.status import MAX_EVENTS, RUNNING, LauncherComponent, LauncherStatus, MaintenanceRecords, Mode
from nodepool.plan import maintenance
from nodepool.plan.launch import ANSWERED_REQUEST_STATES, missing
from nodepool.plan.maintenance import CLOCK_SKEW_SECONDS
from nodepool.plan.triage import MIN_READY_REQUESTOR
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.runtime.providers import Providers
from nodepool.runtime.worker import CallWatch, Part, Parts, Worker, stop_all
from nodepool.version import release_string
from nodepool.zk import paths, transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.transactions import sync
from nodepool.zk.zookeeper import ZooKeeper

#: Longest time that a stop may take in all.
STOP_SECONDS: Final = 20.0
#: The part of it that the threads of the launcher get.
THREADS_STOP_SECONDS: Final = 10.0


class NodePool(ConnectedDaemon, Launcher):
    """One launcher. See the base class for who owns what, and for its first parameters.

    :param more_parts: make further threads, from the launcher that is being built and its configuration.
    """

    log = logging.getLogger(log_names.NODEPOOL)
    kind = "launcher"
    stop_seconds = STOP_SECONDS

    def __init__(
        self,
        config_path: str,
        secure_path: str | None = None,
        more_parts: Sequence[Callable[[NodePool, Config], Part[Any]]] = (),
    ) -> None:
        super().__init__(config_path, secure_path)
        self._config_path = config_path
        self._more_parts = more_parts
        #: None = no statsd server is configured.
        self.stats: Part[StatsWorker] | None = None

    def build(self, client: ZooKeeperClient) -> None:
        """Make the parts that live as long as the launcher. Nothing of it runs yet.

        :param client: not connected yet: who listens to the caches is made before they follow ZooKeeper.
        """
        version = release_string()
        self.client = client
        self.cache = NodepoolCache(client)
        self.free_counts = FreeCounts(self.cache.nodes)
        self.events = EventRing()
        self.reload_events = ReloadEvents(self.events, self._config_path)
        RecordEvents(self.cache, self.events)
        self.configuration.on_outcome = self.reload_events.ended
        self.zk = ZooKeeper(client, self.cache)
        self.providers = Providers(self.zk)
        self.pools = PoolRegistry(self.cache.pools)
        self.pool_threads = PoolThreads(lambda provider, pool: PoolWorker(self, provider, pool))
        self._registration = Registration(client, LauncherComponent(socket.gethostname(), version))
        self.maintenance = MaintenanceState(self.cache.maintenance.snapshot, [socket.gethostname(), socket.getfqdn()])
        # What the nodes of each tenant use, of all providers.
        self._tally = NodeTally(self.cache.nodes, lambda node: [node.tenant_name] if node.tenant_name else [])
        self.ledger = TenantLedger(self.cache)
        self.trials = Trials(self.cache)
        self._make_parts()
        listen(self.cache, self.deletion)
        self.cache.images.add_listener(lambda _: self.canaries.current.wake())
        self.router = Router(self)

    def _make_parts(self) -> None:
        """The table of threads beside those of the pools."""
        start = LauncherStatus(
            host=socket.gethostname(),
            pid=os.getpid(),
            version=release_string(),
            config_file=self._config_path,
            since=wall_time(),
            servers=self.client.hosts,
        )
        self.deletion = Part("DeletedNodeWorker", lambda: DeletedNodeWorker(self))
        self.cleanup = Part("CleanupWorker", lambda: CleanupWorker(self))
        self.min_ready = Part("MinReadyWorker", lambda: MinReadyWorker(self))
        mixed = (self.zk, self.cache, self.pools, self.config, self.maintenance, self.events, self.tenant_excess)
        self.mixed = Part("MixedWorker", lambda: MixedWorker(*mixed))
        canaries = (self.zk, self.cache, self.config, self.trials)
        self.canaries = Part("CanaryWorker", lambda: CanaryWorker(*canaries))
        self.maintenance_worker = Part("MaintenanceWorker", lambda: MaintenanceWorker(self))
        self.status = Part("StatusWorker", lambda: StatusWorker(self, lambda: self._status(start)))
        self.events.on_event = lambda: self.status.current.changed()
        table: list[Part[Any]] = [Part("CallWatch", CallWatch), self.status, self.deletion]
        table += [self.cleanup, self.min_ready, self.mixed, self.canaries, self.maintenance_worker]
        table += [make(self, self.config()) for make in self._more_parts]
        client = shared_client()
        if client is not None:
            self.stats = Part("StatsWorker", lambda: StatsWorker(client, REGISTRY, self))
            table.insert(0, self.stats)
        self.parts = Parts(table, self.log)

    def _status(self, start: LauncherStatus) -> LauncherStatus:
        """What the launcher reports about itself, beside its pools (rules W)."""
        events, omitted = newest(self.events.last(MAX_EVENTS))
        held = self.maintenance.launcher
        draining = held is not None and held.mode is Mode.DRAIN
        return replace(
            start,
            config=self.config().digest,
            state="draining" if draining else "running",
            maintenance=None if held is None else held.text,
            leader=self.stats is not None and self.stats.current.leads,
            pools=sorted(pool.place for pool in self.pool_threads.current()),
            absent=[provider for _, provider in sorted(self.providers.absent.items())],
            reload=self.reload_events.last,
            tenant_limits=self.tenant_limits(),
            tenant_shares=self.config().tenant_shares,
            fair_projects=self.config().fair_projects,
            mixed_labels=sorted(self.config().mixed_labels),
            candidates=self.canaries.current.statuses,
            events=events,
            omitted=omitted,
        )

    def begin(self) -> None:
        """Start everything. The connection is there; blocks for ZooKeeper and for the start of providers."""
        self._prepare_zookeeper(paths.NODES, paths.REQUESTS, paths.REQUEST_LOCKS)
        self.cache.wait_ready(30)
        self.maintenance.note_start()
        self.apply(self.config())
        self.look_again()
        self.events.add(f"launcher {socket.gethostname()}", What.STARTED, f"version {release_string()}")
        self.parts.start()

    def run_once(self) -> None:
        """One turn of the main loop: follow the configuration, keep every thread alive."""
        self.configuration.follow()
        if not self.client.connected:
            return
        self._registration.update(state=RUNNING)
        self.providers.retry_failed()
        self.pool_threads.update(self.providers.running)
        self.parts.revive()
        self.cache.nodes.refresh_stale()

    def apply(self, config: Config) -> None:
        """Make providers and pools those of a configuration."""
        # Pools that go stop before their provider does.
        self.pool_threads.retire_others(config.providers)
        self.providers.apply(config.providers)
        self.pool_threads.update(self.providers.running)

    def look_again(self) -> None:
        """All that work with the configuration look at it again. Does not block."""
        self.pool_threads.look_again()
        self.deletion.current.node_changed("")
        self.min_ready.current.changed()
        self.mixed.current.changed("")

    def end(self) -> None:
        """Stop everything; blocks at most `STOP_SECONDS`."""
        deadline = monotonic() + STOP_SECONDS
        stop_all([*self.parts.threads(), *self.pool_threads.all()], THREADS_STOP_SECONDS, self.log)
        self.providers.stop(max(1.0, deadline - monotonic()))
        self._unregister(self._registration)
        self.client.disconnect()
        self.log.info("Stopped")

    def drain(self, reason: str) -> bool:
        """Take nothing new, finish what is being served, and end then. Any thread; does not block.

        :return: False = the launcher does not serve yet, or not any more: there is nothing to finish.
        """
        if not self.ready.is_set() or self.stopping.is_set():
            return False
        self.maintenance.drain(reason)
        self.router.maintenance_changed()
        return True

    # -- what parts ask and note; any thread, nothing blocks --

    def siblings(self) -> Sequence[Pool]:
        """All configured pools of this launcher."""
        return [worker.context for worker in self.pool_threads.current()]

    def all_pools(self) -> Sequence[Pool]:
        """Also those that retire."""
        return [worker.context for worker in self.pool_threads.all()]

    def known_tenant_use(self, tenant_name: str) -> QuotaInformation:
        """What the nodes of a tenant use, of all providers, without having anything read."""
        return self._tally.used(tenant_name)[0]

    def passed(self, pool_id: str) -> None:
        """A pool has made a pass."""
        self.status.current.changed(pool_id)

    def lock_dir_lingers(self, request_id: str) -> None:
        """A request's lock directory is there although no one holds it: it must go with the request."""
        self.deletion.current.lingering_lock_dirs.add(request_id)

    def tenant_limits(self) -> Mapping[str, dict[str, float]]:
        return self.config().tenant_resource_limits

    def drained(self) -> None:
        """It has finished what it did before it was drained, and ends. Any thread; does not block."""
        self.finished = True
        self.stopping.set()

    def counted(self, request_id: str) -> None:
        """For threads that count: a node, pool or image ('') or a request (its id) changed. Does not block."""
        self.min_ready.current.changed(request_id)
        if self.stats is not None:
            self.stats.current.changed()


# Which worker needs to know of a change in ZooKeeper?
#
# This runs in the cache thread. So it is quick, and only leaves notes for workers.

#: What becomes of a node until it is ready, and after that until it ends, gives its pool nothing to do: it can wait
#: until the next pass. There are some ten changes for each node of a cloud.
UNAVAILABLE_STATES: Final = frozenset(
    {states.BUILDING, states.TESTING, states.IN_USE, states.USED, states.HOLD, states.DELETING}
)


class Router:
    """Listens to the caches of one launcher.

    Its maps belong to the cache thread. It is made before the caches follow ZooKeeper, so that it misses no change.

    :param launcher: whose workers are woken.
    """

    def __init__(self, launcher: NodePool) -> None:
        self._launcher = launcher
        self._cache = cache = launcher.cache
        self._threads = launcher.pool_threads
        self._deletion, self._cleanup = launcher.deletion, launcher.cleanup
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
        # A label may be ready now whose nodes are to be kept (M-3).
        cache.images.add_listener(lambda _: launcher.counted(""))
        cache.maintenance.add_listener(self.maintenance_changed)

    def node_changed(self, node_id: str) -> None:
        if not node_id:
            for worker in self._threads.current():
                worker.node_changed("")
            self._launcher.counted("")
            return
        node = self._cache.nodes.get(node_id)
        self._allocated(node_id, None if node is None else node.allocated_to)
        written = self._was_written(node_id, node)
        if node is None:
            key = self._pool_of.pop(node_id, None)
        else:
            key = self._pool_of[node_id] = (node.provider, node.pool)
            if node.state == states.BUILDING and not self._cache.nodes.is_locked(node_id):
                # Its launcher ended in the middle of it, and with it the handler of the request.
                self._cleanup.current.reset_soon()
        if key is not None:
            owner = self._threads.get(*key)
            if node is not None and owner is not None and node.state == states.BUILDING:
                # The pool may go on with its launch.
                owner.node_changed(node_id, wake=self._cache.nodes.is_left(node_id))
            elif node is None:
                if owner is not None:
                    owner.node_gone(node_id)
                self._room(key[0], owner)
            elif owner is not None:
                # The record of a launch that has ended is there a moment before the launch itself has.
                owner.node_changed(node_id, wake=self._is_urgent(node, written) and not owner.launches(node))
        self._launcher.counted("")

    def _was_written(self, node_id: str, node: Node | None) -> bool:
        """Is it another record than last time?"""
        if node is None:
            return self._version_of.pop(node_id, None) is not None
        before, self._version_of[node_id] = self._version_of.get(node_id), node.version
        return node.version is None or node.version != before

    def _allocated(self, node_id: str, request_id: str | None) -> None:
        if self._request_of.get(node_id) == request_id:
            return
        old = self._request_of.pop(node_id, None)
        if old is not None:
            self._nodes_of[old].discard(node_id)
            if not self._nodes_of[old]:
                del self._nodes_of[old]
        if request_id is not None:
            self._request_of[node_id] = request_id
            self._nodes_of.setdefault(request_id, set()).add(node_id)

    def _is_urgent(self, node: Node, written: bool) -> bool:
        """May its pool have something to do?

        Of the node of a request only the end of its launch is news: a handler may wait for it that no one else wakes.

        :param written: someone wrote the record; False = someone took its lock, or let go of it.
        """
        if node.state in UNAVAILABLE_STATES:
            return False
        return node.allocated_to is None or (written and node.state != states.INIT)

    def _room(self, provider_name: str | None, owner: PoolWorker | None) -> None:
        """A node went: there may be room in its whole provider, and for its tenant everywhere."""
        limited = bool(self._launcher.tenant_limits())
        for worker in self._threads.current():
            if worker is not owner and (limited or (worker.provider_name == provider_name and worker.handlers)):
                worker.wake()

    def request_changed(self, request_id: str) -> None:
        workers = self._threads.current()
        self._launcher.mixed.current.changed(request_id)
        if not request_id:
            for worker in workers:
                worker.request_changed("")
            # The connection was lost: what was under way then may have been left half done.
            self._cleanup.current.sweep_soon()
            self._launcher.counted("")
            return
        request = self._cache.requests.get(request_id)
        # Only new work is urgent; what is taken or deleted just has to leave the queues.
        awake = self._concerned(request) if request is not None and request.state == states.REQUESTED else set()
        for worker in workers:
            worker.request_changed(request_id, wake=worker in awake)
        if request is None or request.state in ANSWERED_REQUEST_STATES:
            self._request_over(request_id, gone=request is None)
        self._launcher.counted(request_id)

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
        """A request is deleted, or finished: nodes that it does not need any more are looked at (C-9, C-10)."""
        node_ids = [node_id for node_id in self._nodes_of.get(request_id, ()) if is_for_deletion(self._cache, node_id)]
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
        self._launcher.pools.changed()
        for worker in self._threads.current():
            worker.wake()
        self._launcher.counted("")

    def maintenance_changed(self) -> None:
        """What an operator holds back, and what no longer, matters to every pool at once (MT-2)."""
        self._launcher.maintenance_worker.current.wake()
        self.hold_changed()

    def hold_changed(self) -> None:
        """Another set of maintenance records holds: one came, went, or its end has come."""
        for worker in self._threads.current():
            worker.wake()
        self._launcher.counted("")


# `PoolThreads`: one `PoolWorker` for each pool of each provider that runs (rules G-6, G-7, G-10).


class PoolThreads:
    """Changed by the main thread only; any thread may ask.

    :param make: makes the worker of a pool from the names of provider and pool; it is not started yet.
    """

    log = logging.getLogger(log_names.NODEPOOL)

    def __init__(self, make: Callable[[str, str], PoolWorker]) -> None:
        self._make = make
        #: Replaced as a whole, never changed in place.
        self._workers: Mapping[tuple[str, str], PoolWorker] = {}
        #: Pools that are not configured any more and finish what runs. Replaced as a whole, too.
        self._retiring: list[PoolWorker] = []

    # -- any thread --

    def current(self) -> list[PoolWorker]:
        """The workers of all configured pools."""
        return list(self._workers.values())

    def all(self) -> list[PoolWorker]:
        """Also those that retire."""
        return [*self._workers.values(), *self._retiring]

    def get(self, provider_name: str | None, pool_name: str | None) -> PoolWorker | None:
        """The worker of a configured pool."""
        return self._workers.get((provider_name or "", pool_name or ""))

    # -- the main thread --

    def retire_others(self, configs: Mapping[str, ProviderConfig]) -> None:
        """Let pools that are not configured any more finish what runs; they end by themselves."""
        self._retire_all_but({(name, pool) for name, provider in configs.items() for pool in provider.pools})

    def update(self, running: Mapping[str, Provider]) -> None:
        """Make the set that of the providers that run, and replace workers that died."""
        wanted = {(name, pool) for name, provider in running.items() for pool in provider.provider.pools}
        self._retire_all_but(wanted)
        self._retiring = [worker for worker in self._retiring if worker.is_alive()]
        dead = [key for key, worker in self._workers.items() if not worker.is_alive()]
        new = [key for key in wanted if key not in self._workers] + dead
        if not new:
            return
        workers = dict(self._workers)
        for key in new:
            if key in dead:
                self.log.error("Pool worker %s died, starting another", workers[key].name)
                # Registered, but serving no one, it would keep requests from failing.
                workers[key].entry.remove()
            workers[key] = self._make(*key)
        self._workers = workers
        for key in new:
            workers[key].start()

    def look_again(self) -> None:
        """Any request and any node may have to be judged anew: the configuration changed."""
        for worker in self.current():
            worker.request_changed("")
            worker.node_changed("")

    def _retire_all_but(self, wanted: Collection[tuple[str, str]]) -> None:
        gone = [worker for key, worker in self._workers.items() if key not in wanted]
        if not gone:
            return
        self._retiring = [*self._retiring, *gone]
        self._workers = {key: worker for key, worker in self._workers.items() if key in wanted}
        for worker in gone:
            worker.retire()


# `MaintenanceWorker`: logs maintenance records, removes those that have ended, and ends a drained launcher.

#: A look at all maintenance records at least this often.
IDLE_SECONDS: Final = 60.0
#: So often it is looked whether a launcher that is being drained has finished.
DRAIN_LOOK_SECONDS: Final = 0.5


class MaintenanceWorker(Worker):
    """One thread per launcher. It is woken when a record changes and when a record ends."""

    def __init__(self, launcher: NodePool) -> None:
        super().__init__("MaintenanceWorker", launcher.client, launcher.log, IDLE_SECONDS)
        self._launcher = launcher
        self._store = launcher.zk.maintenance
        #: Records that held in the pass before.
        self._holding: MaintenanceRecords = {}
        #: Was it logged that the launcher is being drained?
        self._drain_logged = False

    def run_once(self) -> float | None:
        now, records = wall_time(), self._launcher.cache.maintenance.snapshot()
        holding = {key: record for key, record in records.items() if not record.is_over(now)}
        if holding != self._holding:
            self._log_changes(holding)
            self._holding = holding
            self._launcher.router.hold_changed()
        self._remove_ended(records, now)
        if self._launcher.maintenance.ends_when_idle:
            self._look_at_drain()
            return DRAIN_LOOK_SECONDS
        self._drain_logged = False
        end, removal = (maintenance.next_end(records, now - delay) for delay in (0.0, CLOCK_SKEW_SECONDS))
        waits = [None if end is None else end - now, None if removal is None else removal + CLOCK_SKEW_SECONDS - now]
        return min((wait for wait in waits if wait is not None), default=None)

    def _log_changes(self, holding: MaintenanceRecords) -> None:
        for key, record in holding.items():
            if self._holding.get(key) != record:
                self.log.info("Maintenance: %s", record.text)
        for key, record in self._holding.items():
            if key not in holding:
                self.log.info("Maintenance is over: %s", record.text)

    def _remove_ended(self, records: MaintenanceRecords, now: float) -> None:
        for record in maintenance.ended(records, now - CLOCK_SKEW_SECONDS):
            if self._store.remove_if_over(record, now):
                self.log.info("Removed the maintenance record of %s %s, which is over", record.kind, record.name)

    def _look_at_drain(self) -> None:
        pools = self._launcher.pool_threads.all()
        busy = {pool.place: len(pool.handlers) for pool in pools if not pool.drained}
        if not busy:
            self.log.info("Drained: nothing is being served any more, ending")
            self._launcher.drained()
        elif not self._drain_logged:
            self._drain_logged = True
            text = ", ".join(f"{count} in {place}" for place, count in busy.items() if count) or "none"
            self.log.info("Draining: nothing new is taken; requests that are being served: %s", text)


# `MinReadyWorker`: keeps the configured number of ready nodes of each label (rules M).

#: Of the requests: all others come first.
MIN_READY_PRIORITY: Final = "900"
#: A count at least this often, in case an event was missed.
COUNT_SECONDS: Final = 30.0
#: Shortest time between two counts: nodes change often, the need seldom.
PACE_SECONDS: Final = 1.0
#: Seconds after a failed request for a label before the next.
FAILED_SECONDS: Final = 5.0
#: Seconds from the end of a request until it is deleted. Kazoo's TreeCache, which Zuul uses, may keep a znode for ever
#: that is deleted while the cache still reads its last change.
LINGER_SECONDS: Final = 1.0
#: Longest wait for the cache to have read what was reported to it.
SETTLE_SECONDS: Final = 5.0


class MinReadyWorker(Worker):
    """One thread per launcher.

    A lock lets one launcher at a time count and submit, so that launchers together do not submit too many requests
    (M-6).
    """

    def __init__(self, launcher: Launcher) -> None:
        log = logging.getLogger(log_names.MIN_READY_WORKER)
        super().__init__("MinReadyWorker", launcher.zk.client, log, COUNT_SECONDS)
        self._zk, self._cache, self._providers = launcher.zk, launcher.cache, launcher.providers
        self._config, self._held = launcher.config, launcher.maintenance.holds
        self._own: dict[str, NodeRequest] = {}
        #: request id -> when it was seen to have ended (monotonic seconds)
        self._ended: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        #: ``event_id`` of requests whose creation gave no answer: they may be there.
        self._unsure: set[str] = set()
        self._last_count = -math.inf
        #: Count at this time even if nothing changed (monotonic seconds).
        self._count_by = -math.inf
        self._changed = True

    def changed(self, request_id: str = "") -> None:
        """Nodes or requests changed, so the need may have. Any thread; does not block.

        A thread that wakes at each of a thousand changes a second would do little else.

        :param request_id: if it is one of ours it is looked at right away.
        """
        self._changed = True
        if request_id in self._own or monotonic() >= self._last_count + PACE_SECONDS:
            self.wake()

    def run_once(self) -> float | None:
        if not self._cache.ready:
            return 1.0
        self._find_unsure()
        self._finish_requests()
        now = monotonic()
        if now < self._last_count + PACE_SECONDS:
            return self._last_count + PACE_SECONDS - now
        if not self._changed and now < self._count_by:
            return min([self._count_by, *(ended + LINGER_SECONDS for ended in self._ended.values())]) - now
        self._changed = False
        self._last_count = now
        wanted = self._wanted(now)
        if self._to_do(wanted) and not self._correct(wanted):
            self._changed = True
        self._count_by = min([now + COUNT_SECONDS, *(when for when in self._not_before.values() if when > now)])
        # What changes until then wakes no one.
        return PACE_SECONDS

    def _wanted(self, now: float) -> dict[str, int]:
        """Labels with a min-ready that some pool here can build (M-3, M-5), unless it is held (MT-7, MT-11)."""
        soon = {label_name for label_name, when in self._not_before.items() if when > now}
        labels = self._config().labels.values()
        wanted = {one.name: one.min_ready for one in labels if one.min_ready > 0 and one.name not in soon}
        found: set[str] = set()
        # Pools of a driver need not know their provider, see reference/driver 5.
        for name, settings in self._config().providers.items():
            provider = self._providers.get(name)
            if provider is None or not provider.LAUNCHES:
                continue
            for pool_name, pool in settings.pools.items():
                open_ones = [one for one in wanted if one not in found and one in pool.labels]
                open_ones = [one for one in open_ones if not self._held(provider.name, pool_name, one)]
                # Asked once of each pool: a driver looks at all its labels.
                held = gateway.held_labels(provider, pool_name) if open_ones else ()
                for label_name in open_ones:
                    label = pool.labels[label_name] if isinstance(pool.labels, dict) else label_name
                    if label_name not in held and gateway.label_ready(provider, label):
                        found.add(label_name)
        return {label_name: count for label_name, count in wanted.items() if label_name in found}

    def _to_do(self, wanted: dict[str, int]) -> tuple[dict[str, int], list[NodeRequest]] | None:
        """Label -> requests to submit, and requests to withdraw (M-8); None = nothing is to be done."""
        open_ones = self._open()
        labels = self._config().labels
        # A label that is held back, or tried again later, keeps the requests that it has.
        kept = {name: labels[name].min_ready if name in labels else 0 for name in open_ones} | wanted
        if not kept:
            return None
        cache = self._cache
        found = missing(kept, cache.nodes.values(), cache.requests.values())
        more = {label: count for label, count in found.items() if count > 0 and label in wanted}
        surplus = [request for label, own in open_ones.items() for request in own[: max(0, -found.get(label, 0))]]
        return (more, surplus) if more or surplus else None

    def _open(self) -> dict[str, list[NodeRequest]]:
        """Requests of ours that no pool has begun to serve, by label; the newest first."""
        own = map(self._cache.requests.get, reversed(self._own))
        waiting = (one for one in own if one is not None and one.state == states.REQUESTED)
        return grouped(waiting, lambda request: request.node_types[0])

    def _correct(self, wanted: dict[str, int]) -> bool:
        """Count again with the other launchers kept out, submit what is missing and withdraw what is too much.

        :return: False = not now, another time.
        """
        try:
            lock = transactions.acquire(self._client, paths.election("min-ready"), blocking=False)
        except ZKLockException:
            return False
        try:
            # All that the last holder wrote was announced to us before the lock was ours; now it is also read.
            if not self._cache.wait_settled(SETTLE_SECONDS):
                return False
            more, surplus = self._to_do(wanted) or ({}, [])
            for label, count in more.items():
                self.log.info("Requesting %d more ready node(s) of label %s", count, label)
                for _ in range(count):
                    self._submit(label)
            for request in surplus:
                self.log.info("Request %s is withdrawn: no more ready node is missing", request.id)
                self._zk.deleteNodeRequest(request)
                self._forget(request.key)
        finally:
            transactions.release(self._client, lock)
        return True

    def _submit(self, label: str) -> None:
        request = NodeRequest()
        request.state = states.REQUESTED
        request.node_types = [label]
        request.reuse = False
        request.requestor = MIN_READY_REQUESTOR
        request.event_id = event_id = uuid.uuid4().hex
        # Known before it is there: without an owner it would keep its nodes for as long as our session lives.
        self._unsure.add(event_id)
        try:
            self._zk.storeNodeRequest(request, MIN_READY_PRIORITY)
        except ZKConflict:
            self._unsure.discard(event_id)
            raise
        self._unsure.discard(event_id)
        self._own[request.key] = request

    def _find_unsure(self) -> None:
        """Take on requests of ours whose creation gave no answer. One that is not there now never will be."""
        if not self._unsure:
            return
        sync(self._client, paths.REQUESTS)
        cache = self._cache
        if not cache.wait_settled(SETTLE_SECONDS):
            raise ZKConnectionError("requests are not read in time")
        for request in cache.requests.values():
            if request.requestor == MIN_READY_REQUESTOR and request.event_id in self._unsure:
                self._own[request.key] = request
        self._unsure.clear()

    def _finish_requests(self) -> None:
        """M-4: nodes of a fulfilled request go to everybody at once; a failed one is tried again later."""
        now = monotonic()
        for request_id in list(self._own):
            current = self._cache.requests.get(request_id)
            if current is None:
                if self._zk.getNodeRequest(request_id) is None:
                    self._forget(request_id)
                continue
            if current.state == states.FAILED:
                for label in current.node_types:
                    self._not_before[label] = monotonic() + FAILED_SECONDS
            elif current.state != states.FULFILLED:
                continue
            else:
                self._free_nodes(current)
            if self._ended.setdefault(request_id, now) + LINGER_SECONDS > now:
                continue
            self._zk.deleteNodeRequest(current)
            self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        del self._own[request_id]
        self._ended.pop(request_id, None)

    def _free_nodes(self, request: NodeRequest) -> None:
        zk = self._zk
        for node_id in request.nodes:
            cached = self._cache.nodes.get(node_id)
            if cached is None or cached.allocated_to != request.id:
                continue
            node = cached.copy()
            node.free()
            try:
                zk.nodes.save_unlocked(node)
            except ZKConnectionError:
                raise
            except ZKConflict as conflict:
                # The request goes, so the deletion worker gives the node back (C-9).
                self.log.debug("Node %s: %s", node_id, conflict)

    def on_stop(self) -> None:
        """Take back our requests; they would vanish with the session anyway."""
        if not self._client.connected:
            return
        for request in self._own.values():
            try:
                self._zk.deleteNodeRequest(request)
            except ZKException as error:
                self.log.debug("Request %s: %s", request.id, error)
