# SPDX-License-Identifier: Apache-2.0
"""`MaintenanceWorker`: logs maintenance records, removes those that have ended, and ends a drained launcher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.clock import wall_time
from nodepool.plan import maintenance_effect
from nodepool.plan.maintenance_effect import CLOCK_SKEW_SECONDS
from nodepool.runtime.worker import Worker
from nodepool.zk.maintenance_store import MaintenanceStore

if TYPE_CHECKING:
    from nodepool.launcher.maintenance_state import MaintenanceState
    from nodepool.launcher.pool.worker import PoolWorker
    from nodepool.model.maintenance import MaintenanceRecords
    from nodepool.zk.client import ZooKeeperClient
    from nodepool.zk.maintenance_cache import MaintenanceCache

IDLE_SECONDS: Final = 60.0
#: So often it is looked whether a launcher that is being drained has finished.
DRAIN_LOOK_SECONDS: Final = 0.5


class MaintenanceWorker(Worker):
    """One thread per launcher. It is woken when a record changes and when a record ends.

    :param cache: of the records.
    :param state: what they mean for this launcher.
    :param pools: the workers of all pools of this launcher, also of those that retire.
    :param changed: called when another set of records holds than before. Must not block.
    :param drained: called when the launcher is drained and has finished what it did. Must not block.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        cache: MaintenanceCache,
        state: MaintenanceState,
        pools: Callable[[], Sequence[PoolWorker]],
        *,
        changed: Callable[[], None],
        drained: Callable[[], None],
        clock: Callable[[], float] = wall_time,
    ) -> None:
        super().__init__("MaintenanceWorker", client, logging.getLogger(log_names.NODEPOOL), IDLE_SECONDS)
        self._cache = cache
        self._state = state
        self._pools = pools
        self._changed = changed
        self._drained = drained
        self._clock = clock
        self._store = MaintenanceStore(client)
        #: Records that held in the pass before.
        self._holding: MaintenanceRecords = {}
        #: Was it told that the launcher is being drained?
        self._drain_told = False

    def run_once(self) -> float | None:
        now, records = self._clock(), self._cache.snapshot()
        holding = {key: record for key, record in records.items() if not record.is_over(now)}
        if holding != self._holding:
            self._tell(holding)
            self._holding = holding
            self._changed()
        self._remove_ended(records, now)
        if self._state.ends_when_idle:
            self._look_at_drain()
            return DRAIN_LOOK_SECONDS
        self._drain_told = False
        end, removal = (maintenance_effect.next_end(records, now - delay) for delay in (0.0, CLOCK_SKEW_SECONDS))
        waits = [None if end is None else end - now, None if removal is None else removal + CLOCK_SKEW_SECONDS - now]
        return min((wait for wait in waits if wait is not None), default=None)

    def _tell(self, holding: MaintenanceRecords) -> None:
        for key, record in holding.items():
            if self._holding.get(key) != record:
                self.log.info("Maintenance: %s", record.text)
        for key, record in self._holding.items():
            if key not in holding:
                self.log.info("Maintenance is over: %s", record.text)

    def _remove_ended(self, records: MaintenanceRecords, now: float) -> None:
        for record in maintenance_effect.ended(records, now - CLOCK_SKEW_SECONDS):
            if self._store.remove_if_over(record, now):
                self.log.info("Removed the maintenance record of %s %s, which is over", record.kind, record.name)

    def _look_at_drain(self) -> None:
        pools = self._pools()
        busy = {pool.place: len(pool.handlers) for pool in pools if not pool.drained}
        if not busy:
            self.log.info("Drained: nothing is being served any more, ending")
            self._drained()
        elif not self._drain_told:
            self._drain_told = True
            text = ", ".join(f"{count} in {place}" for place, count in busy.items() if count) or "none"
            self.log.info("Draining: nothing new is taken; requests that are being served: %s", text)
