# SPDX-License-Identifier: Apache-2.0
"""The thread that serves node requests for one pool of one provider (rules A).

A pass takes what changed since the last one, polls the handlers, lets `triage` judge what waits, and applies that:
at once where ready nodes are there (`FastPath`), else through a handler (`Batch`). Everything of a pool belongs to this
thread. Others only leave ids of what changed and wake it. First the worker and its pass (`PoolWorker`), then its entry
among the registered pools, and the log of what waits.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.handler import NodeRequestHandler
from nodepool.launcher.pool.intake import POLL_SECONDS, Intake
from nodepool.launcher.pool.view import Launcher, Pool
from nodepool.logconfig import get_annotated_logger
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.reasons import Reason
from nodepool.model.request import NodeRequest, described, origin_of
from nodepool.model.status import DEFAULT_PRIORITY, RUNNING, TOGETHER, PoolComponent, amounts
from nodepool.plan.triage import RequestKind
from nodepool.runtime.worker import Worker
from nodepool.tracing import spans
from nodepool.version import release_string
from nodepool.zk.components import Registration

#: A pass at least this often when nothing happens.
IDLE_SECONDS: Final = 30.0
#: The same while there are launches that may be continued soon.
RESUME_LOOK_SECONDS: Final = 0.25


class PoolWorker(Worker):
    """One thread per pool of a provider."""

    def __init__(self, launcher: Launcher, provider_name: str, pool_name: str) -> None:
        self.provider_name = provider_name
        self.pool_name = pool_name
        log = logging.getLogger(log_names.pool_worker(provider_name, pool_name))
        super().__init__(f"PoolWorker.{provider_name}-{pool_name}", launcher.zk.client, log, IDLE_SECONDS)
        self.launcher_id = f"{socket.getfqdn()}-{self.name}-{uuid.uuid4().hex}"
        self._launcher = launcher
        self._retiring = threading.Event()
        self._launches = 0
        #: Has the pool nothing to do, and nothing that waits? Not while a pass runs.
        self._at_rest = False
        self._epoch = -1
        #: What changed, as other threads report it; '' = any may have. Deque operations are atomic.
        self._changed_requests: deque[str] = deque()
        self._changed_nodes: deque[str] = deque()
        changed = self.request_changed, self.node_changed
        self.context = pool = Pool(launcher, (provider_name, pool_name), self.launcher_id, log, self.wake, changed)
        self.queue, self.desk = pool.queue, pool.desk
        #: Of this pool, such as ``cloud-1/main``.
        self.place = pool.place
        self.entry = PoolEntry(pool)
        self._intake = Intake(pool)
        self._handlers = self._intake.handlers
        self._waiting_lines = WaitingLines(pool)

    # -- other threads --

    @property
    def labels(self) -> frozenset[str]:
        """Labels of the pool."""
        return self.entry.labels

    @property
    def handlers(self) -> list[NodeRequestHandler]:
        """Handlers of the requests that this pool holds locked."""
        return self.desk.handlers()

    @property
    def drained(self) -> bool:
        """Does it take nothing new, for maintenance, and has it finished what it began?"""
        # The order counts: a pass that sees the record takes nothing any more.
        return self.context.hold is not None and not self.handlers and not self._intake.fast_path.busy

    def request_changed(self, request_id: str, *, wake: bool = True) -> None:
        """A request changed; '' = any may have.

        :param wake: False = it can wait until the next pass.
        """
        self._changed_requests.append(request_id)
        if wake:
            self.wake()

    def node_changed(self, node_id: str, *, wake: bool = True) -> None:
        """As `request_changed`, for a node of this pool."""
        self._changed_nodes.append(node_id)
        if wake:
            self.wake()

    def node_gone(self, node_id: str) -> None:
        """A node of this pool went, which makes room for what waits."""
        # Noted first: a pass that begins meanwhile either sees it, or is seen to run.
        self._changed_nodes.append(node_id)
        if not self._at_rest:
            self.wake()

    def launches(self, node: Node) -> bool:
        """Does a launch of this pool run for a node, that asks for a pass when it has ended? Any thread."""
        handler = None if node.allocated_to is None else self.desk.handler(node.allocated_to)
        return handler is not None and handler.tells_end_of(node.key)

    def retire(self) -> None:
        """The pool is not configured any more: take nothing new, finish what runs, then end. Does not block."""
        self._retiring.set()
        self.wake()

    # -- the pass --

    def _guarded_pass(self) -> float:
        wait = super()._guarded_pass()
        self._launcher.passed(self.launcher_id)
        return wait

    def run_once(self) -> float | None:
        self._at_rest = False
        if not self._launcher.cache.ready:
            self._launcher.cache.wait_ready(5.0)
            if not self._launcher.cache.ready:
                return 1.0
        self._check_session()
        if self._retiring.is_set():
            return self._wind_down()
        if not self.context.refresh():
            return 1.0
        self._update_entry()
        self._take_changes()
        # After them: the room of a tenant is that of all its requests that wait.
        if self.context.order.begin_pass(self._launcher.config(), self.context.registered_pools()):
            self.request_changed("")
        if not self.entry.sees_all(pool.launcher_id for pool in self._launcher.siblings()):
            return SIBLINGS_LOOK_SECONDS
        self._handlers.poll()
        held = self.context.hold is not None or bool(self.context.held_labels)
        if held:
            self._handlers.give_back_held(self.context.held)
        self._handlers.run_unfinished()
        more = self._intake.serve(self.labels, self.entry.priority)
        self._intake.fast_path.collect()
        self._waiting_lines.tell()
        self._update_entry()
        self._wake_siblings()
        if more:
            return 0.0
        looks = (
            self.desk.next_look(),
            self.context.free.next_look(),
            self._waiting_lines.next_look(),
            RESUME_LOOK_SECONDS if self.context.interrupted else None,
            self._handlers.next_look(held=held),
        )
        waits = [wait for wait in looks if wait is not None]
        self._at_rest = not (waits or self.queue or self._intake.fast_path.busy)
        return min(waits, default=None)

    def _take_changes(self) -> None:
        """Bring queue, desk and free nodes up to date with the caches."""
        pool, cache = self.context, self._launcher.cache
        requests = _drain(self._changed_requests)
        if "" in requests:
            pool.queue.clear()
            requests = set(cache.requests.ids())
        for request_id in requests:
            self._take_request(request_id, cache.requests.get(request_id))
        nodes = _drain(self._changed_nodes)
        if "" in nodes:
            pool.free.ready.clear()
            nodes = set(cache.nodes.ids())
        for node_id in nodes:
            node = cache.nodes.get(node_id)
            if node is not None:
                pool.free.node_seen(node)
                if node.state == states.BUILDING and node.allocated_to and cache.nodes.is_left(node_id):
                    pool.interrupted.add(node.allocated_to)
            pool.free.consider(node_id)

    def _take_request(self, request_id: str, request: NodeRequest | None) -> None:
        if request is None:
            self.queue.discard(request_id)
            self.desk.gone(request_id)
        elif not self.context.is_open(request) or self.desk.keeps(request_id):
            self.queue.discard(request_id)
        else:
            self.desk.wake(request_id)
            self.queue.put(request)

    def _update_entry(self) -> None:
        held = self.context.hold is not None or self.context.needs_held
        self.entry.update(paused=self.desk.paused or held)

    def _wind_down(self) -> float:
        """A pass of a pool that retires. No one else can finish what it holds locked (G-6, L-17)."""
        self._launcher.pools.gone_for_good(self.launcher_id)
        self.entry.remove()
        self._intake.fast_path.collect()
        self._handlers.give_back_unfinished()
        self._handlers.poll()
        self._wake_siblings()
        if not self.handlers and not self._intake.fast_path.busy:
            self.stop()
        return POLL_SECONDS

    def _check_session(self) -> None:
        """Locks of a lost session do not hold any more, and with them the right to serve (A-19, L-9)."""
        epoch = self._client.session_epoch
        if epoch == self._epoch:
            return
        handlers = self.handlers
        if self._epoch != -1 and handlers:
            self.log.warning("ZooKeeper session lost: dropping %d requests in progress", len(handlers))
            self._handlers.release_all()
        self._epoch = epoch
        self.entry.new_session()
        self.request_changed("")
        self.node_changed("")

    def _wake_siblings(self) -> None:
        """Launches of this pool that ended leave room in ``max-concurrency`` for the other pools (A-10)."""
        if self.context.max_concurrency <= 0:
            return
        before, self._launches = self._launches, self.context.launches()
        if self._launches < before:
            for sibling in self._launcher.all_pools():
                if sibling.provider_name == self.provider_name:
                    sibling.wake()

    def on_stop(self) -> None:
        """Let others serve what is not finished, and unregister."""
        if not self._client.connected:
            return
        try:
            self._handlers.hand_over()
        finally:
            self.entry.remove()


def _drain(changes: deque[str]) -> set[str]:
    """As many as there are now: others add meanwhile."""
    return {changes.popleft() for _ in range(len(changes))}


# A pool's entry among the registered pools: what others see of it, and whether it sees the others (rules A).

#: How long a new pool waits at most until the other pools of its launcher are registered too, and how often it looks.
SIBLINGS_SECONDS: Final = 5.0
SIBLINGS_LOOK_SECONDS: Final = 0.1
#: Our own entry is written once more when it was not seen in so many passes: someone may have removed it.
LOOKS_FOR_ITSELF: Final = 50
#: So often it is asked how many nodes the pool can have, in seconds.
CAPACITY_SECONDS: Final = 2.0
#: From one look at the limits to the next one, where tenants have shares.
LIMITS_SECONDS: Final = 5.0


class PoolEntry:
    """Owned by the pool worker's thread."""

    def __init__(self, pool: Pool) -> None:
        self._context = pool
        #: Labels of the pool, for other threads; replaced as a whole.
        self.labels: frozenset[str] = frozenset()
        self._sorted_labels: list[str] = []
        #: Looks for the other pools of this launcher that are left; None = all are there, or were waited for.
        self._looks: float | None = 0.0
        self._next_look = self._next_capacity = 0.0
        #: When the driver is asked for limits again.
        self._limits_due = -math.inf
        #: Passes since the own entry was seen.
        self._unseen = 0
        self._pool = PoolComponent(socket.gethostname(), release_string())
        self._pool.id = pool.launcher_id
        self._pool.name = pool.pool_name
        self._pool.provider_name = pool.provider_name
        self._registration = Registration(pool.zk.client, self._pool)

    @property
    def priority(self) -> int:
        """As configured, of the pool or else of the provider: lower is served first (A-4)."""
        # Drivers written for 11.0.0 do not give their pools that of the provider.
        for section in (self._context.pool_config, self._context.config):
            if section.priority is not None:
                return int(section.priority)
        return DEFAULT_PRIORITY

    def update(self, *, paused: bool) -> None:
        """Make the entry what the pool is now. Blocks for ZooKeeper if it was another one.

        :param paused: does a request of the pool wait for room, or did an operator pause it?
        """
        supported = self._context.labels
        if supported is not self.labels:
            self.labels = supported
            self._sorted_labels = sorted(supported)
        entry = {
            "state": RUNNING,
            "supported_labels": self._sorted_labels,
            "priority": self.priority,
            "allowed_tenants": self._context.access,
            "capacity": self._capacity(),
            # Others take over what this pool gives back or does not take.
            "paused": paused or gateway.paused_reason(self._context.provider) is not None,
            "limits": self._limits(),
        }
        if all(getattr(self._pool, name) == value for name, value in entry.items()):
            self._registration.ensure()
        else:
            self._registration.update(**entry)

    def _capacity(self) -> Mapping[str, float]:
        """What others share requests by. It is written again when it is quite different: all look at each change."""
        known = self._pool.capacity
        if monotonic() < self._next_capacity:
            return known
        self._next_capacity = monotonic() + CAPACITY_SECONDS
        # With another number, such as "without limit", no one could read the entry.
        found = amounts(gateway.pool_capacity(self._context.provider, self._context.pool_name))
        same = found.keys() == known.keys() and all(abs(found[key] - known[key]) <= known[key] / 8 for key in found)
        return known if same else found

    def _limits(self) -> dict[str, float]:
        """Of the pool and its cloud, for the shares of tenants: of each resource the smallest one."""
        if not self._context.order.on:
            return {}
        if monotonic() < self._limits_due:
            return self._pool.limits
        self._limits_due = monotonic() + LIMITS_SECONDS
        found: dict[str, float] = {}
        for one in gateway.limit_status(self._context.provider, self._context.pool_name):
            if one.limit is not None:
                found[one.resource] = min(one.limit, found.get(one.resource, one.limit))
                if one.scope == "cloud" and len(self._context.config.pools) > 1:
                    found[f"{TOGETHER}{one.resource}"] = one.limit
        return found

    def remove(self) -> None:
        """Unregister. Raises ZKException: try again, the entry may still be there."""
        self._registration.unregister()

    def new_session(self) -> None:
        """The other pools of this launcher may have to register again, too: they are waited for."""
        self._looks = SIBLINGS_SECONDS / SIBLINGS_LOOK_SECONDS

    def sees_all(self, siblings: Iterable[str]) -> bool:
        """Does the registry show us (A-17), and the other pools of this launcher?

        While a sibling is missing a request that only it can serve would be declined by all that are there, and fail.

        Does not block, but for an entry of ours that is not seen for long.

        :param siblings: ids of all pools of this launcher.
        """
        registered = {pool.id for pool in self._context.registered_pools()}
        if self._context.launcher_id not in registered:
            self._unseen += 1
            if self._unseen % LOOKS_FOR_ITSELF == 0:
                self._registration.rewrite()
            return False
        self._unseen = 0
        if self._looks is None:
            return True
        missing = any(sibling not in registered for sibling in siblings)
        if missing and self._looks > 0:
            # Looks, not time: when the whole process stood still the others have not had theirs either.
            if monotonic() >= self._next_look:
                self._looks -= 1
                self._next_look = monotonic() + SIBLINGS_LOOK_SECONDS
            return False
        self._looks = None
        return True


# `WaitingLines`: logs which requests wait, and for what (rule J-6).

#: Requests that wait for a shorter time are not logged, in seconds.
FIRST_SECONDS: Final = 2.0
#: From one line about the requests of a kind to the next one, in seconds.
AGAIN_SECONDS: Final = 600.0
#: Seconds between two looks at the waiting requests.
LOOK_SECONDS: Final = 1.0
#: The most lines that one look logs.
MAX_LINES: Final = 20


class WaitingLines:
    """Owned by the pool worker's thread. There is one line for all requests of a kind."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.log = pool.log
        #: When the requests of a kind are logged next, if they wait then.
        self._due: dict[RequestKind, float] = {}
        #: When the first of those is due that wait now; None = none waits.
        self._next_due: float | None = None
        self._next_look = 0.0

    def tell(self) -> None:
        """Log what is due. For the end of a pass; does not block."""
        now = monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        reasons = self._pool.desk.explanations.told()
        # What waits again before its next time was logged not long ago.
        self._due = {kind: when for kind, when in self._due.items() if kind in reasons or when > now}
        due = [kind for kind in reasons if self._due.setdefault(kind, now + FIRST_SECONDS) <= now]
        self._due.update(dict.fromkeys(due, now + AGAIN_SECONDS))
        self._next_due = min((self._due[kind] for kind in reasons), default=None)
        for kind in due[:MAX_LINES]:
            self._tell_kind(kind, reasons[kind])
        if len(due) > MAX_LINES:
            self.log.info("Waiting: requests of %d more kinds", len(due) - MAX_LINES)

    def next_look(self) -> float | None:
        """Seconds until `tell` may have something to log; None = no request waits."""
        due = self._next_look if self._pool.desk.explanations.fresh else self._next_due
        return None if due is None else max(0.0, max(due, self._next_look) - monotonic())

    def _tell_kind(self, kind: RequestKind, reason: Reason) -> None:
        bucket_size = self._pool.queue.count(kind)
        request = self._pool.cache.requests.get(self._pool.queue.oldest(kind) or "")
        if request is None:
            # Taken or deleted since the pass.
            return
        log = get_annotated_logger(
            self.log, event_id=request.event_id, node_request_id=request.id, trace_id=spans.log_id(request)
        )
        waited = "" if request.created_time is None else f" for {max(0.0, wall_time() - request.created_time):.0f} s"
        others = f" with {bucket_size - 1} later ones" if bucket_size > 1 else ""
        extra = {"code": reason.code.value, **origin_of(request)}
        log.info("Waiting%s%s: %s (%s)", waited, others, reason.text, described(request), extra=extra)
