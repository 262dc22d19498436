# SPDX-License-Identifier: Apache-2.0
"""What daemons and pools are doing now, for commands and pages: ephemeral znodes ``/nodepool/status/<kind>/<name>``.

First writes and reads of one record, then all records of a kind.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from nodepool import log_names
from nodepool.model.record import InvalidRecord, as_json
from nodepool.model.status import BuilderStatus, LauncherStatus, PoolStatus
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import records_below, translated

log = logging.getLogger(log_names.ZOOKEEPER)

#: A record with more bytes of JSON is stored compressed.
PLAIN_BYTES: Final = 1024
#: Most bytes of JSON of a record. Who makes a record leaves out what is too much; ZooKeeper itself allows 1 MiB.
MAX_BYTES: Final = 256 * 1024
#: First byte of what zlib made. No JSON object begins with it.
_ZLIB: Final = b"\x78"


def path_of(kind: str, name: str) -> str:
    return f"{paths.STATUS}/{kind}/{name}"


def encode(status: Any) -> bytes:
    """The data of a znode. Raises ValueError: JSON has no such value, or it is too long.

    :param status: a dataclass or dictionary.
    """
    data = as_json(status)
    if len(data) > MAX_BYTES:
        raise ValueError(f"a status of {len(data)} bytes, at most {MAX_BYTES} are stored")
    return data if len(data) <= PLAIN_BYTES else zlib.compress(data, 1)


def decode(data: bytes) -> dict[str, Any]:
    """The status in a znode, compressed or not. Raises InvalidRecord."""
    if data[:1] == _ZLIB:
        try:
            # Bounded: a few bytes may stand for gigabytes.
            data = zlib.decompressobj().decompress(data, 4 * MAX_BYTES)
        except zlib.error as error:
            raise InvalidRecord(f"not compressed as it should be: {error}") from None
    return paths.decode(data)


class StatusWriter:
    """Writes and removes the status records of a daemon. For one thread. Methods block for round trips.

    The records are for information only: no decision depends on them. All methods raise ZKException.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        #: Path -> what was stored last, and in which session.
        self._stored: dict[str, tuple[bytes, int]] = {}

    def set(self, kind: str, name: str, status: Any) -> None:
        """Store what a daemon or a part of it does now, unless it is what was stored last in this session.

        :param kind: of the daemon or part, e.g. ``builder``.
        :param name: unique in ZooKeeper, e.g. ``<hostname>-<pid>``.
        :param status: a dataclass or dictionary.
        :raises ValueError: see `encode`.
        """
        path, wanted = path_of(kind, name), (encode(status), self._client.session_epoch)
        before = self._stored.get(path)
        if before != wanted:
            with translated():
                self._write(path, wanted[0], new=before is None or before[1] != wanted[1])
            self._stored[path] = wanted

    def _write(self, path: str, data: bytes, *, new: bool) -> None:
        kazoo = self._client.kazoo
        if not new:
            try:
                kazoo.set(path, data)
                return
            except NoNodeError:
                log.warning("Status record %s was removed, writing it again", path)
        # What an ended session left would go with it.
        self._remove(path)
        kazoo.create(path, data, ephemeral=True, makepath=True)

    def remove(self, kind: str, name: str) -> None:
        """Remove a record; one that is not there is fine."""
        self._remove(path_of(kind, name))
        self._stored.pop(path_of(kind, name), None)

    def close(self) -> None:
        """Remove all records."""
        for path in self._stored:
            self._remove(path)
        self._stored.clear()

    def _remove(self, path: str) -> None:
        with translated(), contextlib.suppress(NoNodeError):
            self._client.kazoo.delete(path)


# Status records of pools, launchers and builders, for commands: read directly. Daemons have
# `nodepool.zk.caches.StatusCache`.

#: Kinds of status records.
POOL: Final = "pool"
LAUNCHER: Final = "launcher"
BUILDER: Final = "builder"
#: What a record of a kind is made of its JSON object by; raises InvalidRecord.
READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    POOL: PoolStatus.of_record,
    LAUNCHER: LauncherStatus.of_record,
    BUILDER: dict,
}


def read_pools(client: ZooKeeperClient) -> list[PoolStatus]:
    """What all pools of all launchers tell, by provider, pool and host; bad records are logged and left out.

    Blocks for two round trips, however many there are. Raises ZKException.
    """
    return in_order_of_pools(_read(client, POOL))


def read_launchers(client: ZooKeeperClient) -> list[LauncherStatus]:
    """What all launchers tell, by host; as `read_pools`."""
    return in_order_of_launchers(_read(client, LAUNCHER))


def builder_status(client: ZooKeeperClient) -> BuilderStatus:
    """How far all builders are; as `read_pools`."""
    return BuilderStatus.of_records(_read(client, BUILDER))


def in_order_of_pools(found: Iterable[PoolStatus]) -> list[PoolStatus]:
    return sorted(found, key=lambda pool: (pool.provider, pool.pool, pool.host, pool.id))


def in_order_of_launchers(found: Iterable[LauncherStatus]) -> list[LauncherStatus]:
    return sorted(found, key=lambda launcher: (launcher.host, launcher.pid))


def _read(client: ZooKeeperClient, kind: str) -> list[Any]:
    return records_below(client, f"{paths.STATUS}/{kind}", lambda _, data: READERS[kind](decode(data)))
