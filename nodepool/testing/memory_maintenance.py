# SPDX-License-Identifier: Apache-2.0
"""The maintenance records of `MemoryZooKeeper`: store and cache in one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import MappingProxyType

from nodepool.model.status import Maintenance, MaintenanceRecords
from nodepool.zk.caches import MaintenanceCache
from nodepool.zk.zookeeper import MaintenanceStore


class MemoryMaintenance(MaintenanceCache):
    """Never behind: `MemoryMaintenanceStore` writes into it."""

    def __init__(self) -> None:
        self._records: MaintenanceRecords = MappingProxyType({})
        self._listeners: list[Callable[[], None]] = []
        self.ready = threading.Event()
        self.ready.set()

    def stored(self) -> MaintenanceRecords:
        """What the store has; a test may let `snapshot` be behind."""
        return self._records

    def replace(self, records: MaintenanceRecords) -> None:
        """These are all records from now on; listeners are told."""
        self._records = MappingProxyType(dict(records))
        for listener in self._listeners:
            listener()


class MemoryMaintenanceStore(MaintenanceStore):
    """`MaintenanceStore` in memory.

    :param cache: has the records.
    """

    def __init__(self, cache: MemoryMaintenance) -> None:
        self._cache = cache
        self._lock = threading.Lock()

    def read_all(self) -> MaintenanceRecords:
        return self._cache.stored()

    def put(self, record: Maintenance) -> None:
        with self._lock:
            self._cache.replace({**self._cache.stored(), (record.kind, record.name): record})

    def put_automatic(self, record: Maintenance, now: float) -> bool:
        there = self._cache.stored().get((record.kind, record.name))
        if there is not None and not there.automatic and not there.is_over(now):
            return False
        self.put(record)
        return True

    def remove(self, kind: str, name: str) -> bool:
        with self._lock:
            records = dict(self._cache.stored())
            found = records.pop((kind, name), None)
            self._cache.replace(records)
        return found is not None

    def remove_if_over(self, record: Maintenance, now: float) -> bool:
        there = self._cache.stored().get((record.kind, record.name))
        return there is not None and there.is_over(now) and self.remove(record.kind, record.name)
