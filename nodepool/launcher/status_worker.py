# SPDX-License-Identifier: Apache-2.0
"""`StatusWorker`: publishes what a launcher and its pools are doing (rules W)."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.guard import Guard
from nodepool.model.event import Event
from nodepool.model.maintenance import Mode
from nodepool.model.record import as_json
from nodepool.model.status import MAX_EVENTS, AbsentProvider, LauncherStatus, ReloadStatus
from nodepool.plan.attention import pool_events
from nodepool.runtime.worker import PassThread
from nodepool.zk.status import LAUNCHER, POOL

if TYPE_CHECKING:
    from nodepool.model.maintenance import Maintenance
    from nodepool.model.status import PoolStatus
    from nodepool.zk.status import StatusWriter

#: Least time between two looks at the pools.
LOOK_SECONDS: Final = 2.0
#: All pools are looked at this often: limits, hosts and launches change without a pass of theirs.
ALL_SECONDS: Final = 10.0


class StatusMaker(Protocol):
    """Makes the status of a pool."""

    def make(self, now: float) -> PoolStatus: ...


class ReportingPool(Protocol):
    """What is used of a pool worker."""

    @property
    def launcher_id(self) -> str: ...

    @property
    def status(self) -> StatusMaker: ...


class StatusWorker(PassThread):
    """A thread that owns all of its state; `changed` and `stop` may be called from any other.

    What did not change is not given to the writer: a launcher without work writes nothing.

    :param pools: the workers of all pools of this launcher, also of those that retire.
    :param launcher: makes the status of the launcher.
    :param put_event: is given what happened to pools, see `nodepool.plan.attention`.
    """

    error_text = "Status could not be published"

    def __init__(
        self,
        pools: Callable[[], Sequence[ReportingPool]],
        launcher: SelfReport,
        writer: StatusWriter,
        put_event: Callable[[Event], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__("StatusWorker", logging.getLogger(log_names.NODEPOOL), ALL_SECONDS)
        self._pools = pools
        self._launcher = launcher
        self._writer = writer
        self._put_event = put_event
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
        changed = self._take()
        pools = {pool.launcher_id: pool for pool in self._pools()}
        for pool_id, pool in pools.items():
            if look_at_all or pool_id in changed or pool_id not in self._published:
                with Guard(self.log, "Status of pool %s could not be made", pool_id):
                    self._publish(pool)
        for pool_id in [known for known in self._published if known not in pools]:
            del self._published[pool_id]
            self._writer.remove(POOL, pool_id)
        status = self._launcher.make()
        if status != self._launcher_published:
            self._writer.set(LAUNCHER, self._launcher.name, status)
            self._launcher_published = status

    def _take(self) -> set[str]:
        """Each operation is atomic: others add meanwhile."""
        found: set[str] = set()
        while self._changed:
            found.add(self._changed.pop())
        return found

    def _publish(self, pool: ReportingPool) -> None:
        now = wall_time()
        before = self._published.get(pool.launcher_id)
        status = pool.status.make(now)
        if status == before:
            return
        self._writer.set(POOL, pool.launcher_id, status)
        self._published[pool.launcher_id] = status
        for event in pool_events(before, status, now):
            self._put_event(event)


# `SelfReport`: what a launcher reports about itself, beside its pools (rules W).

#: Most bytes of JSON of the events in the record.
EVENT_BYTES: Final = 48 * 1024


class SelfReport:
    """For one thread, that of the status worker.

    :param config_file: path. ``servers``: of ZooKeeper, as in the connection string.
    :param digest: of the configuration that is in effect.
    :param pools: ``<provider>/<pool>`` of all pools.
    :param maintenance: the record that holds for the whole launcher.
    :param leads: does it send the gauges of all nodes and requests?
    :param events: the newest events, the oldest of them first; is given how many.
    """

    def __init__(
        self,
        *,
        version: str,
        config_file: str,
        servers: str,
        digest: Callable[[], str],
        pools: Callable[[], Sequence[str]],
        absent: Callable[[], Mapping[str, AbsentProvider]],
        reload: Callable[[], ReloadStatus | None],
        tenant_limits: Callable[[], Mapping[str, Mapping[str, float]]],
        maintenance: Callable[[], Maintenance | None],
        leads: Callable[[], bool],
        events: Callable[[int], Sequence[Event]],
    ) -> None:
        self._digest = digest
        self._pools = pools
        self._absent = absent
        self._reload = reload
        self._tenant_limits = tenant_limits
        self._maintenance = maintenance
        self._leads = leads
        self._events = events
        self._start = LauncherStatus(
            host=socket.gethostname(),
            pid=os.getpid(),
            version=version,
            config_file=config_file,
            since=wall_time(),
            servers=servers,
        )
        #: Of the znode.
        self.name = f"{self._start.host}-{self._start.pid}"

    def make(self) -> LauncherStatus:
        """The status of now. Equal to the one before if nothing changed."""
        events, omitted = _newest(self._events(MAX_EVENTS))
        maintenance = self._maintenance()
        draining = maintenance is not None and maintenance.mode is Mode.DRAIN
        return replace(
            self._start,
            config=self._digest(),
            state="draining" if draining else "running",
            maintenance=None if maintenance is None else maintenance.text,
            leader=self._leads(),
            pools=sorted(self._pools()),
            absent=[provider for _, provider in sorted(self._absent().items())],
            reload=self._reload(),
            tenant_limits=self._tenant_limits(),
            events=events,
            omitted=omitted,
        )


def _newest(events: Sequence[Event]) -> tuple[Sequence[Event], int]:
    """The newest events that fit, and how many are left out."""
    room = EVENT_BYTES
    for count, event in enumerate(reversed(events)):
        room -= len(as_json(event)) + 1
        if room < 0:
            return events[len(events) - count :], len(events) - count
    return events, 0
