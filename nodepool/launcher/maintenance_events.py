# SPDX-License-Identifier: Apache-2.0
"""`MaintenanceEvents`: what operators pause, drain or quarantine, and its end, as events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.clock import wall_time
from nodepool.model.event import Event, What, clipped

if TYPE_CHECKING:
    from nodepool.launcher.event_ring import EventRing
    from nodepool.model.maintenance import Maintenance, MaintenanceRecords
    from nodepool.zk.maintenance_cache import MaintenanceCache


class MaintenanceEvents:
    """Listens to the cache of maintenance records. Everything belongs to the thread of the cache.

    :param records: the cache; made before it follows ZooKeeper, so that nothing is missed.
    :param host: of the launcher.
    """

    def __init__(self, records: MaintenanceCache, ring: EventRing, host: str) -> None:
        self._cache = records
        self._ring = ring
        self._host = host
        self._known: MaintenanceRecords = {}
        records.add_listener(self._changed)

    def _changed(self) -> None:
        before, now = self._known, self._cache.snapshot()
        self._known = now
        for key, record in now.items():
            old = before.get(key)
            if old is None or (old.mode, old.since, old.reason) != (record.mode, record.since, record.reason):
                self._put(record.since or wall_time(), record, What.MAINTENANCE_BEGAN, record.text)
        for key, record in before.items():
            if key not in now:
                self._put(wall_time(), record, What.MAINTENANCE_ENDED, "")

    def _put(self, at: float, record: Maintenance, what: What, text: str) -> None:
        self._ring.put(Event(at, self._host, f"{record.kind} {record.name}", what.value, text=clipped(text)))
