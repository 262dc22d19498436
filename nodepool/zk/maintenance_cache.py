# SPDX-License-Identifier: Apache-2.0
"""`MaintenanceCache`: the maintenance records as they are now, kept up to date by one recursive watch."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from nodepool.model.maintenance import MODES, Maintenance, MaintenanceRecords
from nodepool.model.record import InvalidRecord
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.maintenance_store import decode
from nodepool.zk.records_by_kind import RecordsByKind

#: Called when records came, went or changed; in the connection thread, must not block.
Listener = Callable[[], None]

NO_RECORDS: Final[MaintenanceRecords] = MappingProxyType({})


class MaintenanceCache(RecordsByKind[Maintenance | InvalidRecord]):
    """Follows ``/nodepool/maintenance``, which need not exist. Made before or after the client is connected.

    Everything is changed in the connection thread; `snapshot` is replaced as a whole, and any thread may ask for it.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        super().__init__(client, paths.MAINTENANCE, MODES, "Error in a listener of maintenance records")
        self._records = NO_RECORDS
        #: Bad records that were logged, by path: the transaction that wrote it.
        self._told: dict[str, int] = {}
        self.start()

    def snapshot(self) -> MaintenanceRecords:
        """All records as they were last known, also those that are over; does not block."""
        return self._records

    # -- connection thread --

    def _entry(self, kind: str, name: str, data: bytes, stat: Any) -> Maintenance | InvalidRecord:
        path = paths.maintenance(kind, name)
        try:
            record = decode(kind, name, data)
        except InvalidRecord as problem:
            if self._told.get(path) != stat.mzxid:
                self._told[path] = stat.mzxid
                self.log.error("Ignoring %s: %s", path, problem)
            return problem
        self._told.pop(path, None)
        return record

    def _renew(self) -> bool:
        records = {
            (kind, record.name): record
            for kind, entries in self._entries.items()
            for record in entries.values()
            if isinstance(record, Maintenance)
        }
        changed = records != self._records
        self._records = MappingProxyType(records)
        return changed
