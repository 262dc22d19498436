# SPDX-License-Identifier: Apache-2.0
"""`MaintenanceCache`: the maintenance records as they are now, kept up to date by one recursive watch.

The tree is small and changes seldom: whenever anything in it changes all of it is read anew, in two packets. An event
that comes during a round of reads causes another round.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from kazoo.exceptions import KazooException, NoNodeError

from nodepool import log_names
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard
from nodepool.model.maintenance import MODES, Maintenance, MaintenanceRecords
from nodepool.model.record import InvalidRecord
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.maintenance_store import decode
from nodepool.zk.multi_read import read_for_callback
from nodepool.zk.transactions import UNKNOWN_OUTCOME

#: Called when records came, went or changed; in the connection thread, must not block.
Listener = Callable[[], None]
#: Kind and name of a znode; the name is percent-encoded.
_Znode = tuple[str, str]

NO_RECORDS: Final[MaintenanceRecords] = MappingProxyType({})


class MaintenanceCache:
    """Follows ``/nodepool/maintenance``, which need not exist. Made before or after the client is connected.

    Everything is changed in the connection thread; `snapshot` is replaced as a whole, and any thread may ask for it.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._records = NO_RECORDS
        self._listeners: list[Listener] = []
        self._guard = Guard(self.log, "Error in a listener of maintenance records")
        #: Of the connection: answers of an earlier one do not count.
        self._generation = 0
        #: Is a round under way, how many of its answers are missing, and must another one follow?
        self._reading = False
        self._missing = 0
        self._again = False
        self._found: dict[_Znode, Maintenance] = {}
        #: Znodes with a bad record that was logged, by the transaction that wrote it.
        self._bad: dict[_Znode, int] = {}
        #: Set while the cache follows ZooKeeper; clear before everything was read and without a connection.
        self.ready = threading.Event()
        client.add_session_listener(self._on_session)
        if client.connected:
            self._resync()

    # -- readers (any thread) --

    def snapshot(self) -> MaintenanceRecords:
        """All records as they were last known, also those that are over; does not block."""
        return self._records

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until everything was read, at most ``timeout`` seconds."""
        return self.ready.wait(timeout)

    def add_listener(self, listener: Listener) -> None:
        """Be told of changes; see `Listener`."""
        self._listeners = [*self._listeners, listener]

    def remove_listener(self, listener: Listener) -> None:
        """Tell a listener nothing more; one that is not there is fine."""
        self._listeners = [other for other in self._listeners if other != listener]

    # -- connection thread --

    def _on_session(self, state: str) -> None:
        if state == "connected":
            self._resync()
        else:
            self.ready.clear()
            self._generation += 1

    def _resync(self) -> None:
        self._generation += 1
        self.ready.clear()
        self._reading = False
        self._client.kazoo.watch_recursive(paths.MAINTENANCE, self._on_event, self._on_watching)
        self._begin_round()

    def _on_watching(self, _: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, UNKNOWN_OUTCOME):
            self.log.error("ZooKeeper refuses to watch %s, is it 3.6 or newer? %r", paths.MAINTENANCE, error)

    def _on_event(self, _event: int, _path: str) -> None:
        if self._reading:
            self._again = True
        else:
            self._begin_round()

    def _begin_round(self) -> None:
        self._reading, self._again = True, False
        self._found = {}
        children = self._client.kazoo.operations.children
        self._ask([(kind, children(paths.maintenance(kind))) for kind in MODES], self._on_names)

    def _ask(self, reads: list[tuple[Any, Any]], on_answers: Callable[[list[tuple[Any, Any]]], None]) -> None:
        self._missing = len(reads)
        try:
            read_for_callback(self._client, iter(reads), partial(self._take, self._generation, on_answers))
        except ZKConnectionError as closing:
            self.log.debug("Maintenance records are not read any more: %s", closing)

    def _take(
        self, generation: int, on_answers: Callable[[list[tuple[Any, Any]]], None], answers: list[tuple[Any, Any]]
    ) -> None:
        if generation == self._generation:
            self._missing -= len(answers)
            on_answers(answers)

    def _on_names(self, answers: list[tuple[str, Any]]) -> None:
        get = self._client.kazoo.operations.get
        znodes: list[_Znode] = []
        for kind, names in answers:
            if isinstance(names, KazooException):
                self._unreadable(paths.maintenance(kind), names)
            else:
                znodes += [(kind, name) for name in names]
        if znodes:
            self._ask([(znode, get(paths.maintenance(*znode))) for znode in znodes], self._on_data)
        else:
            self._end_round()

    def _on_data(self, answers: list[tuple[_Znode, Any]]) -> None:
        for znode, answer in answers:
            if isinstance(answer, KazooException):
                self._unreadable(paths.maintenance(*znode), answer)
            else:
                self._load(znode, *answer)
        if not self._missing:
            self._end_round()

    def _load(self, znode: _Znode, data: bytes, stat: Any) -> None:
        try:
            self._found[znode] = decode(*znode, data)
            self._bad.pop(znode, None)
        except InvalidRecord as problem:
            if self._bad.get(znode) != stat.mzxid:
                self._bad[znode] = stat.mzxid
                self.log.error("Ignoring %s: %s", paths.maintenance(*znode), problem)

    def _unreadable(self, path: str, error: KazooException) -> None:
        if not isinstance(error, NoNodeError):
            self.log.error("Cannot read %s: %r", path, error)

    def _end_round(self) -> None:
        if self._again:
            self._begin_round()
            return
        self._reading = False
        records = {(kind, record.name): record for (kind, _), record in self._found.items()}
        changed = records != self._records
        self._records = MappingProxyType(records)
        first = not self.ready.is_set()
        self.ready.set()
        if changed or first:
            for listener in self._listeners:
                with self._guard:
                    listener()
