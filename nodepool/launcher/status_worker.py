# SPDX-License-Identifier: Apache-2.0
"""`StatusWorker`: publishes what the pools of a launcher are doing (rules P)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.guard import Guard
from nodepool.runtime.worker import PassThread

if TYPE_CHECKING:
    from nodepool.launcher.pool.worker import PoolWorker
    from nodepool.model.pool_status import PoolStatus
    from nodepool.zk.status import StatusWriter

#: Least time between two looks at the pools.
LOOK_SECONDS: Final = 2.0
#: All pools are looked at this often: limits, hosts and launches change without a pass of theirs.
ALL_SECONDS: Final = 10.0
#: Kind of the records.
POOL: Final = "pool"


class StatusWorker(PassThread):
    """A thread that owns all of its state; `changed` and `stop` may be called from any other.

    What did not change is not given to the writer: a launcher without work writes nothing.

    :param pools: the workers of all pools of this launcher, also of those that retire.
    """

    error_text = "Status could not be published"

    def __init__(self, pools: Callable[[], Sequence[PoolWorker]], writer: StatusWriter) -> None:
        super().__init__("StatusWorker", logging.getLogger(log_names.NODEPOOL), ALL_SECONDS)
        self._pools = pools
        self._writer = writer
        self._changed: set[str] = set()
        self._all_at = -math.inf
        #: What was published last.
        self._published: dict[str, PoolStatus] = {}

    def changed(self, pool_id: str) -> None:
        """A pool has made a pass. Cheap, does not block."""
        self._changed.add(pool_id)
        self.wake()

    def run(self) -> None:
        while not self.stopping:
            self._guarded_pass()
            # Whoever wakes us meanwhile is seen then.
            self._stopping.wait(LOOK_SECONDS)
            if not self.stopping:
                self._event.wait(ALL_SECONDS)

    def run_once(self) -> None:
        """Look at the pools that made a pass, or at all of them, and publish what changed."""
        now = monotonic()
        look_at_all = now >= self._all_at + ALL_SECONDS
        if look_at_all:
            self._all_at = now
        changed = self._take()
        pools = {pool.launcher_id: pool for pool in self._pools()}
        for pool_id, pool in pools.items():
            if look_at_all or pool_id in changed or pool_id not in self._published:
                with Guard(self.log, "Status of pool %s could not be made", pool.name):
                    self._publish(pool)
        for pool_id in [known for known in self._published if known not in pools]:
            del self._published[pool_id]
            self._writer.remove(POOL, pool_id)

    def _take(self) -> set[str]:
        """Each operation is atomic: others add meanwhile."""
        found: set[str] = set()
        while self._changed:
            found.add(self._changed.pop())
        return found

    def _publish(self, pool: PoolWorker) -> None:
        status = pool.status.make(wall_time())
        if status != self._published.get(pool.launcher_id):
            self._writer.set(POOL, pool.launcher_id, status.to_dict())
            self._published[pool.launcher_id] = status
