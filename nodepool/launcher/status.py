# SPDX-License-Identifier: Apache-2.0
"""What a launcher publishes about itself: status records (rules W), then gauges (reference/metrics 1, 2, 5)."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.guard import Guard
from nodepool.metrics import reports
from nodepool.model.event import Event
from nodepool.model.record import as_json
from nodepool.model.status import LauncherStatus
from nodepool.plan.attention import pool_events
from nodepool.runtime.worker import PassThread
from nodepool.zk.locks import Election
from nodepool.zk.status import LAUNCHER, POOL

if TYPE_CHECKING:
    from nodepool.launcher.events import EventRing
    from nodepool.launcher.pool.view import Launcher
    from nodepool.launcher.pool.worker import PoolWorker
    from nodepool.metrics.registry import Registry
    from nodepool.metrics.statsd import StatsdClient
    from nodepool.model.status import PoolStatus
    from nodepool.zk.status import StatusWriter

#: Least time between two looks at the pools.
LOOK_SECONDS: Final = 2.0
#: All pools are looked at this often: limits, hosts and launches change without a pass of theirs.
ALL_SECONDS: Final = 10.0


class StatusWorker(PassThread):
    """A thread that owns all of its state; `changed` and `stop` may be called from any other.

    What did not change is not given to the writer: a launcher without work writes nothing.

    :param pools: the workers of all pools of this launcher, also of those that retire.
    :param launcher: makes the status of the launcher.
    :param events: get what happened to pools, see `nodepool.plan.attention`.
    """

    error_text = "Status could not be published"

    def __init__(
        self,
        pools: Callable[[], Sequence[PoolWorker]],
        launcher: Callable[[], LauncherStatus],
        writer: StatusWriter,
        events: EventRing,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__("StatusWorker", logging.getLogger(log_names.NODEPOOL), ALL_SECONDS)
        self._pools = pools
        self._launcher = launcher
        self._writer = writer
        self._events = events
        self._clock = clock
        self._changed: set[str] = set()
        self._all_at = -math.inf
        #: What was published last.
        self._published: dict[str, PoolStatus] = {}
        self._launcher_published: LauncherStatus | None = None

    def changed(self, pool_id: str = "") -> None:
        """A pool has made a pass; '' = there is an event. Cheap, does not block."""
        self._changed.add(pool_id)
        self.wake()

    def run(self) -> None:
        while not self.stopping:
            self._guarded_pass()
            # What changes meanwhile is seen then.
            self._stopping.wait(LOOK_SECONDS)
            if not self.stopping:
                self._event.wait(ALL_SECONDS)

    def run_once(self) -> None:
        """Look at the pools that made a pass, or at all of them, and publish what changed."""
        now = self._clock()
        look_at_all = now >= self._all_at + ALL_SECONDS
        if look_at_all:
            self._all_at = now
        # As many as there are now; each operation is atomic, and others add meanwhile.
        changed = {self._changed.pop() for _ in range(len(self._changed))}
        pools = {pool.launcher_id: pool for pool in self._pools()}
        for pool_id, pool in pools.items():
            if look_at_all or pool_id in changed or pool_id not in self._published:
                with Guard(self.log, "Status of pool %s could not be made", pool_id):
                    self._publish(pool)
        for pool_id in [known for known in self._published if known not in pools]:
            del self._published[pool_id]
            self._writer.remove(POOL, pool_id)
        status = self._launcher()
        if status != self._launcher_published:
            self._writer.set(LAUNCHER, f"{status.host}-{status.pid}", status)
            self._launcher_published = status

    def _publish(self, pool: PoolWorker) -> None:
        now = wall_time()
        before = self._published.get(pool.launcher_id)
        status = pool.status.make(now)
        if status == before:
            return
        self._writer.set(POOL, pool.launcher_id, status)
        self._published[pool.launcher_id] = status
        for event in pool_events(before, status, now):
            self._events.put(event)


#: Most bytes of JSON of the events in the record.
EVENT_BYTES: Final = 48 * 1024


def newest(events: Sequence[Event]) -> tuple[Sequence[Event], int]:
    """The newest events that fit in a record, and how many are left out."""
    room = EVENT_BYTES
    for count, event in enumerate(reversed(events)):
        room -= len(as_json(event)) + 1
        if room < 0:
            return events[len(events) - count :], len(events) - count
    return events, 0


# `StatsWorker`: sends the gauges of a launcher (reference/metrics 1, 2, 5).
#
# One launcher of the system, the leader, sends what concerns all of them: nodes and requests. Every launcher sends its
# own limits and internals.

#: Node gauges are sent at most this often, however many changes there are.
CHANGES_SECONDS: Final = 1.0
#: Limits are sent this often: the released launcher sends them with each pass of a pool.
LIMITS_SECONDS: Final = 1.0
#: Internals are sent this often; a launcher that does not lead asks this often whether the leader has ended.
INTERNALS_SECONDS: Final = 10.0
#: The leader sends node gauges at least this often: a datagram may get lost, a statsd server be restarted.
REFRESH_SECONDS: Final = 60.0
#: Groups of gauges: two of this launcher, one of the whole system.
LIMITS: Final = "limits"
INTERNALS: Final = "internals"
SYSTEM: Final = "system"


class StatsWorker(PassThread):
    """A thread that owns all of its state; `changed` and `stop` may be called from any other.

    :param statsd: its address is looked up here.
    :param registry: gets all gauges, and sends them to statsd.
    :param clock: monotonic seconds.
    """

    error_text = "Metrics could not be sent"

    def __init__(
        self,
        statsd: StatsdClient,
        registry: Registry,
        launcher: Launcher,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__("StatsWorker", logging.getLogger(log_names.STATS_WORKER), LIMITS_SECONDS)
        self._statsd = statsd
        self._registry = registry
        self._launcher = launcher
        self._cache = launcher.cache
        self._clock = clock
        self._hostname = socket.gethostname()
        self._election = Election(launcher.zk.client, "stats", f"{self._hostname}-{os.getpid()}")
        self._changed = threading.Event()
        self._leading = False
        self._group_at = {LIMITS: -math.inf, INTERNALS: -math.inf}
        self._election_at = -math.inf
        self._sent_at = -math.inf

    @property
    def leading(self) -> bool:
        """Does this launcher send the gauges of all nodes and requests? Any thread."""
        return self._leading

    def changed(self, record_id: str = "") -> None:
        """A node, request or pool changed. For cache listeners: thread-safe, cheap, does not block.

        :param record_id: not looked at.
        """
        self._changed.set()

    def run_once(self) -> float:
        """One pass: send what is due.

        :return: seconds until the next pass.
        """
        now = self._clock()
        self._statsd.resolve()
        for group, seconds, make in (
            (LIMITS, LIMITS_SECONDS, self._limits),
            (INTERNALS, INTERNALS_SECONDS, self._internals),
        ):
            if now >= self._group_at[group] + seconds:
                self._group_at[group] = now
                # A mistake in one group of gauges must not end the others.
                with Guard(self.log, "Gauges of %s could not be sent", group):
                    self._registry.replace(group, make())
        if self._lead(now) and self._due(now):
            self.emit_once()
            self._sent_at = now
        return max(0.0, self._group_at[LIMITS] + LIMITS_SECONDS - now)

    def emit_once(self) -> None:
        """Send all node and request gauges now, whoever leads."""
        # Before the reading: what changes meanwhile is sent in the next pass.
        self._changed.clear()
        pools = list(self._cache.pools.values())
        values = reports.node_gauges(self._cache.nodes.values(), pools)
        values.update(reports.request_gauges(self._cache.requests.values(), pools))
        self._registry.replace(SYSTEM, values)

    def _limits(self) -> reports.Gauges:
        """Of this launcher."""
        config = self._launcher.config()
        max_servers = {
            name: [math.inf if pool.max_servers is None else pool.max_servers for pool in provider.pools.values()]
            for name, provider in config.providers.items()
        }
        return reports.limit_gauges(max_servers, config.tenant_resource_limits)

    def _internals(self) -> reports.Gauges:
        """Of this launcher: its connection to ZooKeeper, its caches and providers (reference/metrics 5)."""
        running = self._launcher.providers.running
        is_open = {name: gateway.paused_reason(provider) is not None for name, provider in running.items()}
        # There is no cache of images, and no cache plays back what it missed: 0, so that dashboards find these gauges.
        reads = {"node": self._cache.nodes.pending_reads, "request": self._cache.requests.pending_reads, "image": 0}
        caches = {name: (count, 0) for name, count in reads.items()}
        queued = reports.internal_gauges(self._hostname, self._launcher.zk.client.queued_calls, caches)
        return {**reports.circuit_gauges(self._hostname, is_open), **queued}

    def _lead(self, now: float) -> bool:
        """Ask at each pass while we lead (costs nothing), and seldom while we do not."""
        if not self._leading and now < self._election_at + INTERNALS_SECONDS:
            self._changed.clear()
            return False
        self._election_at = now
        was_leading, self._leading = self._leading, self._election.is_leader()
        if self._leading and not was_leading:
            self._sent_at = -math.inf
        elif was_leading and not self._leading:
            self._registry.forget(SYSTEM)
        return self._leading

    def _due(self, now: float) -> bool:
        if now >= self._sent_at + REFRESH_SECONDS:
            return True
        return self._changed.is_set() and now >= self._sent_at + CHANGES_SECONDS
