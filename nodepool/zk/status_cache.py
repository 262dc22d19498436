# SPDX-License-Identifier: Apache-2.0
"""`StatusCache`: what daemons and pools report about themselves, kept up to date by one recursive watch.

A site with many pools writes many records. The connection thread only takes their bytes; whoever asks decodes those
that changed since somebody asked last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from nodepool.model.builder_status import BuilderStatus
from nodepool.model.launcher_status import LauncherStatus
from nodepool.model.pool_status import PoolStatus
from nodepool.model.record import InvalidRecord
from nodepool.zk import paths, status
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.records_by_kind import RecordsByKind
from nodepool.zk.status_records import BUILDER, LAUNCHER, POOL, in_order_of_launchers, in_order_of_pools

T = TypeVar("T")


class StatusCache(RecordsByKind["StoredStatus"]):
    """Follows ``/nodepool/status`` from `start` to `stop`. A connection has at most one of them.

    Any thread may ask; nothing here blocks. What was known stays known without a connection (``ready`` is clear then).
    Listeners are called without an argument, in the connection thread: they must not block, and ask in another one.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        super().__init__(client, paths.STATUS, (POOL, LAUNCHER, BUILDER), "Error in a listener of status records")

    def pools(self) -> list[PoolStatus]:
        """What all pools of all launchers tell, in the order of `status_records.read_pools`; without bad ones.

        A record that did not change is the same object as before.
        """
        return in_order_of_pools(self._decoded(POOL, PoolStatus.of_record))

    def launchers(self) -> list[LauncherStatus]:
        """What all launchers tell, as `pools`."""
        return in_order_of_launchers(self._decoded(LAUNCHER, LauncherStatus.of_record))

    def builders(self) -> BuilderStatus:
        """What all builders report together."""
        return BuilderStatus.of_records(self._decoded(BUILDER, dict))

    def _decoded(self, kind: str, parse: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
        for stored in list(self._entries[kind].values()):
            record = stored.decoded(parse)
            if record is not None:
                yield record

    # -- connection thread --

    def _entry(self, kind: str, name: str, data: bytes, stat: Any) -> StoredStatus:
        return StoredStatus(status.path_of(kind, name), data)


class StoredStatus:
    """The data of one znode, and what they say once somebody has asked."""

    __slots__ = ("_data", "_path", "_record")

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data: bytes | None = data
        self._record: Any = None

    def decoded(self, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
        """The record; None = a bad one, which is logged. Two threads that ask first at once both decode."""
        data = self._data
        if data is not None:
            try:
                self._record = parse(status.decode(data))
            except InvalidRecord as problem:
                StatusCache.log.error("Ignoring %s: %s", self._path, problem)
            self._data = None
        record: T | None = self._record
        return record
