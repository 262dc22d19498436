# SPDX-License-Identifier: Apache-2.0
"""The handlers of the requests that a pool holds locked: run, polled and ended (`Handlers`).

Then how the latest launches of the pool ended, and the deletion of an unused node for a request that waits for room.
"""

from __future__ import annotations

import math
import statistics
import threading
import zlib
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.driver import gateway
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.guard import Guard
from nodepool.launcher.pool import desk
from nodepool.model import states
from nodepool.model.event import clipped
from nodepool.model.reasons import REQUEST_CHANGED, Reason
from nodepool.model.status import FailedLaunch, LaunchesStatus
from nodepool.plan.nodes import is_free
from nodepool.plan.request_stage import Stage

if TYPE_CHECKING:
    import logging

    from nodepool.driver.handler import NodeRequestHandler
    from nodepool.launcher.pool.desk import RequestEvents
    from nodepool.launcher.pool.view import FreeNodes, PassContext
    from nodepool.model.node import Node
    from nodepool.model.status import LaunchStatus
    from nodepool.zk.zookeeper import ZooKeeper

#: A pass at least this often while there are handlers: some wait for room, and some drivers do not call ``pw.wake()``.
POLL_SECONDS: Final = 1.0
#: The same while all of them wait for nothing but launches that wake the pool when they end.
LAUNCHES_SECONDS: Final = 10.0
#: Seconds after which a request that was given back is taken again (Q-12).
GIVEN_BACK_SECONDS: Final = 1.0


class Handlers:
    """Owned by the pool worker's thread."""

    def __init__(self, pool: PassContext, events: RequestEvents) -> None:
        self._desk = pool.desk
        self._launcher_id = pool.launcher_id
        #: Factor of pauses, from 1 to 1.5. It differs between pools: pools that collided do not collide again.
        self._slowness = 1.0 + zlib.crc32(pool.launcher_id.encode()) % 256 / 512
        self._request_changed = pool.request_changed
        self._events = events
        self.log = pool.log

    def poll(self) -> None:
        """Ask each whether its request is finished. One error affects no other (A-19).

        Requests are fulfilled together: the writes of all are sent before any answer is waited for.
        """
        with ExitStack() as ends:
            for handler in self._desk.handlers():
                # Equal to a poll, which would find that launches run.
                if handler.awaits_launches and not handler.done:
                    continue
                with self._polling(handler):
                    end = handler.begin_poll()
                    if end is not None:
                        # Called in any case.
                        ends.callback(self._end_poll, handler, end)
                    elif handler.done:
                        self._ended(handler)

    def _end_poll(self, handler: NodeRequestHandler, end: Callable[[], None]) -> None:
        with self._polling(handler):
            end()
            if handler.done:
                self._ended(handler)

    def _polling(self, handler: NodeRequestHandler) -> Guard:
        """Whatever a driver raises, the other requests go on."""
        return Guard(self.log, "Error while polling %s, trying again", handler.request, but=ZKConnectionError)

    def next_look(self, *, held: bool) -> float | None:
        """Seconds until the next pass at the latest. None = there are no handlers.

        :param held: is anything not to be served here? See `give_back_held`, which is to be called in each pass.
        """
        handlers = self._desk.handlers()
        if not handlers:
            return None
        if not held and all(handler.launching and handler.awaits_launches for handler in handlers):
            return LAUNCHES_SECONDS
        return POLL_SECONDS

    def launches(self) -> int:
        """Launches in progress. Any thread may ask."""
        return sum(gateway.alive_thread_count(handler) for handler in self._desk.handlers())

    def launching(self) -> list[LaunchStatus]:
        """The steps of launches in progress. Any thread may ask."""
        return [step for handler in self._desk.handlers() for step in handler.launch_steps()]

    def run_unfinished(self) -> None:
        """Requests that wait for room try again, in order; each unpauses alone (Q-10)."""
        for handler in sorted(self._unfinished(), key=lambda handler: handler.request.order_key):
            self.run(handler)

    def run(self, handler: NodeRequestHandler) -> None:
        """Let a handler gather; forget it when it is done with its request."""
        self._serve(handler, handler.run)

    def give_back_unfinished(self) -> None:
        """Give back what waits for room, for a pool that goes (G-6)."""
        for handler in self._unfinished():
            self._serve(handler, handler.give_back_when_launched)

    def give_back_held(self, held: Callable[[Collection[str]], Reason | None]) -> None:
        """Give back what waits for room and is not to be served here any more (MT-6).

        :param held: why requests for some labels are not; None = they are.
        """
        for handler in self._desk.handlers():
            reason = held(handler.request.node_types)
            if reason is None:
                continue
            if handler.unfinished:
                handler.log.info("Giving the request back: %s", reason.text)
                self._serve(handler, partial(handler.give_back_when_launched, reason))
            # It may have launches all the same: they are ended first.
            if not handler.unfinished and not handler.done:
                self._serve(handler, handler.stop_waiting)

    def _serve(self, handler: NodeRequestHandler, call: Callable[[], None]) -> None:
        """Call a method of a handler. One error affects no other request. Raises ZKConnectionError."""
        # A driver may raise where the request cannot even be declined for it, e.g. in launchesComplete().
        with Guard(self.log, "Error while serving %s, trying again", handler.request, but=ZKConnectionError) as guard:
            try:
                call()
            except ZKConflict as conflict:
                self.log.warning("%s: %s", handler.request, conflict)
                return
        if guard.error is None and handler.done:
            self._ended(handler)

    def release_all(self) -> None:
        """The session was lost, and with it the right to serve (A-19, L-9). Raises ZKConnectionError: call again."""
        for handler in self._desk.handlers():
            # Forgotten only when it holds nothing any more; else the next pass goes on here.
            handler.release_locks()
            handler.move(Stage.DONE)
            self._desk.close(handler.request.key)

    def hand_over(self) -> None:
        """The launcher ends: let others serve what is not finished; nodes in launch are swept later (G-14)."""
        for handler in self._desk.handlers():
            # A driver may raise anything; the other requests need not wait for the end of the session.
            with Guard(self.log, "%s is left as it is", handler.request, but=ZKConnectionError):
                handler.hand_over()
                if handler.done:
                    # Some are fulfilled just now: metrics, traces and events tell of them as of all others.
                    self._ended(handler)

    def _unfinished(self) -> list[NodeRequestHandler]:
        return [handler for handler in self._desk.handlers() if handler.unfinished]

    def _ended(self, handler: NodeRequestHandler) -> None:
        """A handler is done with its request, whatever became of that."""
        request, reason = handler.request, handler.progress.reason
        desk.note(request)
        if request.state == states.REQUESTED and self._launcher_id not in request.declined_by:
            delay = GIVEN_BACK_SECONDS * self._slowness
            self._desk.defer(request.key, reason or REQUEST_CHANGED, delay, handler.yields)
        else:
            self._desk.close(request.key)
            if self._launcher_id in request.declined_by and reason is not None:
                self._desk.explanations.declined(request.key, reason)
                self._events.declined(request, reason)
        if request.state != states.FULFILLED:
            # What it let go of may serve others. A request that is fulfilled lets go of nothing that others could use.
            self._request_changed(request.key)


# `LaunchLog`: how the latest launches of a pool ended.

#: Launches that ended longer ago are not counted.
AGE_SECONDS: Final = 900.0
#: Nodes whose errors are remembered.
MAX_ERRORS: Final = 1000
#: Ready launches of a label of which the usual time follows, and how many it takes at least.
USUAL_OF: Final = 20
USUAL_LEAST: Final = 3
#: They are counted by spans of so many seconds.
SPAN_SECONDS: Final = 15.0


class LaunchLog:
    """Any thread; nothing blocks. ``_lock`` guards all.

    :param clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = wall_time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Begin of each span, launches that were ready, and attempts that failed.
        self._spans: deque[tuple[float, int, int]] = deque()
        self._last_error: FailedLaunch | None = None
        #: Node -> why its last attempt failed, of the last nodes.
        self._errors: dict[str, str] = {}
        #: Label -> seconds that its last launches took.
        self._seconds: dict[str, deque[float]] = {}

    def ready(self, label: str | None = None, begun: float | None = None) -> None:
        """A node is ready.

        :param begun: when its launch began, in seconds since the epoch; None = not known.
        """
        with self._lock:
            now = self._clock()
            self._count(now, 1, 0)
            if label is not None and begun is not None:
                self._seconds.setdefault(label, deque(maxlen=USUAL_OF)).append(max(0.0, now - begun))

    def usual(self, label: str) -> float | None:
        """How long a launch of a label takes, in seconds; None = too few were ready since the start."""
        with self._lock:
            known = self._seconds.get(label, ())
            return round(statistics.median(known), 1) if len(known) >= USUAL_LEAST else None

    def failed(self, node_id: str | None, label: str | None, result: str, text: str) -> None:
        """An attempt failed.

        :param result: as in metrics, e.g. ``error.quota``.
        """
        with self._lock:
            now = self._clock()
            self._count(now, 0, 1)
            self._last_error = FailedLaunch(result, clipped(text), now, node_id, label)
            self._errors.pop(node_id or "", None)
            while len(self._errors) >= MAX_ERRORS:
                del self._errors[next(iter(self._errors))]
            self._errors[node_id or ""] = clipped(text)

    def error_of(self, node_id: str) -> str:
        """Why the last attempt to launch a node failed; empty = that is not known, or long ago."""
        with self._lock:
            return self._errors.get(node_id, "")

    def status(self, running: int) -> LaunchesStatus:
        """What is counted now; the last error is told as long as it is counted.

        :param running: launches in progress.
        """
        with self._lock:
            oldest = self._clock() - AGE_SECONDS
            while self._spans and self._spans[0][0] < oldest:
                self._spans.popleft()
            if self._last_error is not None and self._last_error.at < oldest:
                self._last_error = None
            ready = sum(ready for _, ready, _ in self._spans)
            failed = sum(failed for _, _, failed in self._spans)
            return LaunchesStatus(running, ready, failed, self._last_error)

    def _count(self, now: float, ready: int, failed: int) -> None:
        """Call with ``_lock`` held."""
        if not self._spans or not 0 <= now - self._spans[-1][0] < SPAN_SECONDS:
            self._spans.append((now, 0, 0))
        begun, more_ready, more_failed = self._spans[-1]
        self._spans[-1] = (begun, more_ready + ready, more_failed + failed)


# `Eviction`: an unused ready node is deleted for a request that waits for room (rules ).

#: Seconds after a node of the pool went to `deleting` in which no other is evicted.
EVICTION_SECONDS: Final = 300.0
#: So often it is looked whether another pool of the provider has one, at most: all nodes are looked at.
ELSEWHERE_SECONDS: Final = 10.0


class Eviction:
    """Owned by the pool worker's thread.

    :param place: provider and name of the pool.
    :param free: the pool's nodes that nobody uses.
    :param is_locked: does somebody hold the lock of a node?
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        place: tuple[str, str],
        free: FreeNodes,
        zk: ZooKeeper,
        is_locked: Callable[[str], bool],
        log: logging.Logger,
        clock: Callable[[], float] = wall_time,
    ) -> None:
        self._place = place
        self._free = free
        self._zk = zk
        self._is_locked = is_locked
        self.log = log
        self._clock = clock
        #: When a node of the pool was last seen to go to `deleting`, or was sent there.
        self._last = -math.inf
        self._next_look_elsewhere = -math.inf

    def node_seen(self, node: Node) -> None:
        """Note a node; only those of the pool count."""
        if (node.provider, node.pool) != self._place:
            return
        if node.state == states.DELETING and node.state_time is not None:
            self._last = max(self._last, min(node.state_time, self._clock()))

    def evict(self, *, shared: bool = False) -> None:
        """Mark the oldest unused ready node of the pool `deleting`, unless one went lately.

        :param shared: the room is missing that the pools of the provider share. If this pool has no such node, another
            pool's goes: nobody else would ever make room for a request that waits here.
        """
        if self._clock() - self._last < EVICTION_SECONDS:
            return
        oldest = self._free.oldest_unused()
        if oldest is None and shared:
            oldest = self._oldest_elsewhere()
        if oldest is None:
            return
        node = oldest.copy()
        node.state = states.DELETING
        self._free.ready.discard(node.key)
        try:
            self._zk.nodes.save_unlocked(node)
        except ZKConflict as conflict:
            self.log.debug("Ready node %s was not evicted: %s", node.id, conflict)
            return
        self._last = self._clock()
        self.log.info("Evicting unused ready node %s: a request waits for room", node.id)

    def _oldest_elsewhere(self) -> Node | None:
        """The oldest unused ready node of the provider's other pools; None also if one of their nodes went lately."""
        provider_name, now = self._place[0], self._clock()
        if now < self._next_look_elsewhere:
            return None
        self._next_look_elsewhere = now + ELSEWHERE_SECONDS
        found: list[Node] = []
        for node in self._zk.nodeIterator():
            if node.provider != provider_name or node.pool is None:
                continue
            if node.state == states.DELETING and now - (node.state_time or 0) < EVICTION_SECONDS:
                return None
            if is_free(node, provider_name, node.pool) and not self._is_locked(node.key):
                found.append(node)
        return min(found, key=lambda node: node.state_time or 0, default=None)
