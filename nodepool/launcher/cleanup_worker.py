# SPDX-License-Identifier: Apache-2.0
"""`CleanupWorker`: the periodic sweeps (rules C). `DeletedNodeWorker` deletes released nodes."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.guard import Guard
from nodepool.launcher.pool.decline import START_SECONDS
from nodepool.model import states
from nodepool.plan.assignment import declined_state
from nodepool.plan.nodes import Delete, is_of_holder, is_orphan, judge_age, reset_lost_request
from nodepool.plan.retries import SeenTwice
from nodepool.runtime.worker import Worker
from nodepool.zk import locks, paths
from nodepool.zk.transactions import TransactionFailed

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.interface import Provider
    from nodepool.launcher.pool_registry import PoolRegistry
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.runtime.providers import Providers
    from nodepool.zk.caches import NodepoolCache
    from nodepool.zk.zookeeper import ZooKeeper

#: With another look ten seconds later, what nobody knows is gone within a minute.
SWEEP_SECONDS: Final = 40.0
#: A sweep this soon after a launcher went.
SOON_SECONDS: Final = 2.0
#: A look at lost requests this soon after that: whoever waits for them should not wait for it.
LOST_SECONDS: Final = 0.2
#: Later looks: a launcher that stops may keep its locks for some time after it has left the registry.
LATER_SECONDS: Final = (5.0, 10.0, 20.0)
#: Age of a request's lock directory after which it is removed with all that is in it (C-2).
LOCK_DIR_SECONDS: Final = 8 * 3600.0


class _Looks(NamedTuple):
    """What another thread asks for, in monotonic seconds.

    :param sweep_at: of a sweep; infinite = none.
    :param lost_at: of a look at lost requests.
    :param later: of more such looks, in place of those that were asked for before; empty = those stay.
    """

    sweep_at: float
    lost_at: float
    later: list[float]


class CleanupWorker(Worker):
    """One thread per launcher.

    :param pools: the registered pools of all launchers.
    :param config: the current configuration.
    :param in_progress: ids of the requests that this launcher holds.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        cache: NodepoolCache,
        providers: Providers,
        pools: PoolRegistry,
        config: Callable[[], Config],
        in_progress: Callable[[], set[str]],
        clock: Callable[[], float] = wall_time,
    ) -> None:
        super().__init__("CleanupWorker", zk.client, logging.getLogger(log_names.CLEANUP_WORKER), SWEEP_SECONDS)
        self._zk = zk
        self._cache = cache
        self._providers = providers
        self._pools = pools
        self._config = config
        self._in_progress = in_progress
        self._clock = clock
        self._due = 0.0
        self._lost_due = math.inf
        #: When else to look at lost requests.
        self._later: list[float] = []
        #: What other threads ask for: the times above are changed by this thread only, so that none is lost.
        self._asked: deque[_Looks] = deque()
        self._begun = monotonic()
        self._leaks = LeakSweeps()
        #: Nodes that seem to be lost, as they are: id and version.
        self._orphans: SeenTwice[tuple[str, int | None]] = SeenTwice(SOON_SECONDS)
        #: When to look at these again. Of a burst of new nodes some always seem to be lost, and a sweep costs more.
        self._orphans_due = math.inf

    def launcher_went(self) -> None:
        """A launcher left the registry. Any thread."""
        self._ask(SOON_SECONDS, LATER_SECONDS)

    def sweep_soon(self) -> None:
        """Look for what a launcher that is gone has left. Any thread."""
        self._ask(SOON_SECONDS)

    def reset_soon(self) -> None:
        """The locks of a launcher are gone: the requests that it worked on are anybody's. Any thread."""
        self._ask()

    def _ask(self, sweep_seconds: float = math.inf, later_seconds: Sequence[float] = ()) -> None:
        now = monotonic()
        self._asked.append(_Looks(now + sweep_seconds, now + LOST_SECONDS, [now + each for each in later_seconds]))
        self.wake()

    def _take_asked(self) -> None:
        while self._asked:
            looks = self._asked.popleft()
            self._due = min(self._due, looks.sweep_at)
            self._lost_due = min(self._lost_due, looks.lost_at)
            self._later = looks.later or self._later

    def run_once(self) -> float | None:
        now = monotonic()
        self._take_asked()
        if not self._cache.ready:
            return 1.0
        try:
            if now >= self._due:
                self._due = now + SWEEP_SECONDS
                self.sweep()
            elif now >= self._lost_due:
                self._perform(self.reset_lost_requests)
            elif now >= self._orphans_due:
                self._perform(self.free_orphans)
        except ZKConnectionError:
            self.sweep_soon()
            raise
        self._take_asked()
        return min(self._due, self._lost_due, self._orphans_due) - monotonic()

    def sweep(self) -> None:
        """All tasks once; one that fails does not stop the others (C-1)."""
        for task in (
            self.reset_lost_requests,
            self.free_orphans,
            self.fail_refused_requests,
            self.remove_empty_nodes,
            self.remove_lock_dirs,
            self.expire_nodes,
            self.clean_leaks,
        ):
            if self.stopping:
                return
            self._perform(task)

    def _perform(self, task: Callable[[], None]) -> None:
        # Of one task, and the others have their turn all the same.
        with Guard(self.log, "Error in cleanup task %s", task.__name__, but=ZKConnectionError):
            task()

    def reset_lost_requests(self) -> None:
        """C-4: requests that are `pending` while nobody holds them go back to `requested`."""
        now = monotonic()
        self._later = [at for at in self._later if at > now]
        self._lost_due = min(self._later, default=math.inf)
        own = self._in_progress()
        pending = [request for request in self._cache.requests.values() if request.state == states.PENDING]
        lost = {request.id: request for request in pending if request.id not in own}
        nodes: dict[str | None, list[Node]] = {}
        if lost:
            for node in self._cache.nodes.values():
                if node.allocated_to in lost and not self._cache.nodes.is_locked(node.key):
                    nodes.setdefault(node.allocated_to, []).append(node.copy())
        for request in lost.values():
            self._reset(request.copy(), nodes.get(request.id, []))

    def _reset(self, request: NodeRequest, nodes: list[Node]) -> None:
        reset_lost_request(request, nodes)
        try:
            self._zk.requests.save_unlocked(request, nodes)
        except ZKConflict as conflict:
            # The usual case: another launcher holds it and works on it.
            self.log.debug("Request %s is not lost: %s", request.id, conflict)
            if isinstance(conflict, TransactionFailed) and conflict.path.startswith(f"{paths.NODES}/"):
                # One of its nodes is being deleted just now.
                self.reset_soon()
            return
        self.log.info("Reset lost request %s; freed nodes %s", request.id, [node.id for node in nodes])

    def free_orphans(self) -> None:
        """Nodes that a lost launcher had gathered for a request that somebody serves anew: nobody else knows them."""
        nodes, requests, now = self._cache.nodes, self._cache.requests, monotonic()
        # A new node is about to be locked; and launchers of old releases unlock nodes a moment too early.
        seem = {
            (node.key, node.version): node
            for node in nodes.values()
            if is_orphan(node, requests.get) and not nodes.is_locked(node.key)
        }
        certain = self._orphans.look(seem, now)
        self._orphans_due = now + SOON_SECONDS if len(seem) > len(certain) else math.inf
        for key in certain:
            self._free_orphan(seem[key].copy(), self._orphans.seen_for(key, now))

    def _free_orphan(self, node: Node, unchanged_seconds: float) -> None:
        zk, request_id = self._zk, node.allocated_to or ""
        request = zk.requests.get(request_id)
        if request is None or not is_orphan(node, lambda _: request):
            return
        held_since = locks.held_since(zk.client, paths.request_lock(request_id))
        stored = zk.nodes.get(node.key)
        if stored is None or is_of_holder(stored.mzxid, held_since, unchanged_seconds):
            self.log.debug("Node %s is not lost: whoever serves request %s has written it", node.id, request_id)
            return
        if node.state == states.INIT:
            node.state = states.DELETING
        node.free()
        tx = zk.nodes.transaction()
        # Else it might be fulfilled with this node just now.
        tx.check(paths.request(request_id), -1 if request.version is None else request.version)
        zk.nodes.add_unlocked_write(tx, node, zk.nodes.has_lock_dir(node.key))
        try:
            tx.commit()
            self.log.info("Freed node %s: request %s is served without it", node.id, request_id)
        except ZKConflict as conflict:
            self.log.debug("Node %s is not lost: %s", node.id, conflict)

    def fail_refused_requests(self) -> None:
        """A-15: a request that all pools have declined fails, too, when the last one that had not went for good."""
        registered = [pool.id for pool in self._pools.registered()]
        if not registered or monotonic() - self._begun <= START_SECONDS:
            # The pools of launchers that began together with us, and our own, may be on their way.
            return
        absent = self._pools.absent()
        for cached in self._cache.requests.values():
            if cached.state != states.REQUESTED or not cached.declined_by:
                continue
            request = cached.copy()
            request.state = declined_state(request.node_types, request.declined_by, registered, absent)
            if request.state != states.FAILED:
                continue
            try:
                self._zk.requests.save_unlocked(request)
                self.log.info("Failing node request %s: every pool that still runs declined it", request.id)
            except ZKConflict as conflict:
                self.log.debug("Request %s does not fail: %s", request.id, conflict)

    def remove_empty_nodes(self) -> None:
        """C-8: a lock on a node that was just deleted leaves a znode without data."""
        for node_id in self._cache.nodes.empty_ids():
            if self._zk.nodes.remove_empty(node_id):
                self.log.info("Removed empty node %s", node_id)

    def remove_lock_dirs(self) -> None:
        """C-2, and at once where nobody is in the directory: it does not outlive its request."""
        requests = self._zk.requests
        for request_id in requests.lock_dir_ids():
            if self._cache.requests.get(request_id) is not None:
                continue
            # The cache may be a moment behind.
            if requests.get(request_id) is not None or requests.remove_lock_dir(request_id):
                continue
            age = requests.lock_dir_age(request_id)
            if age is not None and age > LOCK_DIR_SECONDS:
                self.log.info("Removing the lock directory of request %s, which does not exist any more", request_id)
                requests.remove_lock_dir_recursive(request_id)

    def expire_nodes(self) -> None:
        """C-5, C-6: ready nodes and held nodes that are too old, of our providers only (C-7)."""
        config = self._config()
        nodes = self._cache.nodes

        def max_ready_age(label: str) -> float:
            found = config.labels.get(label)
            return 0 if found is None else found.max_ready_age

        for node in nodes.values():
            if node.provider not in config.providers or nodes.is_locked(node.key):
                continue
            action = judge_age(node, self._clock(), max_ready_age, config.max_hold_age)
            if not isinstance(action, Delete):
                continue
            expired = node.copy()
            expired.state = states.DELETING
            try:
                self._zk.nodes.save_unlocked(expired)
                self.log.info("Node %s is deleted: %s", node.id, action.reason)
            except ZKConflict as conflict:
                self.log.debug("Node %s stays for now: %s", node.id, conflict)

    def clean_leaks(self) -> None:
        """C-3: every provider looks for what nobody knows."""
        self._leaks.start(self._providers.running)

    def on_stop(self) -> None:
        """Wait shortly for providers that look for leaks."""
        self._leaks.join(2.0)


class LeakSweeps:
    """One thread per provider, so that a cloud that does not answer delays neither the other sweeps nor other
    providers.
    """

    log = logging.getLogger(log_names.CLEANUP_WORKER)

    def __init__(self) -> None:
        #: Each provider object that still looks, with its thread.
        self._running: list[tuple[Provider, threading.Thread]] = []

    def start(self, providers: Mapping[str, Provider]) -> None:
        """Let providers look for leaks, except those that still do. Does not block.

        :param providers: by name; one that cannot be looked after holds up no other.
        """
        self._running = [(provider, thread) for provider, thread in self._running if thread.is_alive()]
        busy = {id(provider) for provider, _ in self._running}
        for name, provider in providers.items():
            if id(provider) in busy:
                self.log.warning("Provider %s still looks for leaked resources", name)
                continue
            clean = gateway.cleanup_leaked_resources
            thread = threading.Thread(target=clean, args=(provider,), name=f"Leaks-{name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # The system has no more threads just now.
                self.log.error("Provider %s: leaked resources are looked for in the next sweep: %s", name, error)
                continue
            self._running.append((provider, thread))

    def join(self, timeout: float) -> None:
        """Wait until all have ended, together at most ``timeout`` seconds."""
        deadline = monotonic() + timeout
        for _, thread in self._running:
            thread.join(max(0.0, deadline - monotonic()))
