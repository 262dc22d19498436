# SPDX-License-Identifier: Apache-2.0
"""`StatusWorker`: publishes what a launcher and its pools are doing (rules W)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.guard import Guard
from nodepool.plan.status_events import pool_events
from nodepool.runtime.worker import PassThread
from nodepool.zk.status_records import LAUNCHER, POOL

if TYPE_CHECKING:
    from nodepool.launcher.self_report import SelfReport
    from nodepool.model.event import Event
    from nodepool.model.launcher_status import LauncherStatus
    from nodepool.model.pool_status import PoolStatus
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
    :param put_event: is given what happened to pools, see `nodepool.plan.status_events`.
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
