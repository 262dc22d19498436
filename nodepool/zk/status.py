# SPDX-License-Identifier: Apache-2.0
"""What daemons and pools are doing now, for commands and pages: ephemeral znodes ``/nodepool/status/<kind>/<name>``.

First writes and reads of one record, then all records of a kind.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.guard import Guard
from nodepool.model.record import InvalidRecord, as_json
from nodepool.model.status import BuilderStatus, LauncherStatus, PoolStatus
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import records_below, translated

log = logging.getLogger(log_names.ZOOKEEPER)

#: Between two writes of one record.
PAUSE_SECONDS: Final = 2.0
#: Longest time that `StatusWriter.close` takes: a call waits for a connection that is away. The znodes are ephemeral.
CLOSE_SECONDS: Final = 5.0
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


@dataclass
class _Stored:
    """One znode.

    :param wanted: data that is to be stored; None = it is to be removed.
    :param written: what was stored last, in the session of ``epoch``.
    :param not_before: of the next write, monotonic seconds.
    """

    wanted: bytes | None = None
    written: bytes | None = None
    epoch: int = -1
    not_before: float = 0.0


class StatusWriter:
    """Writes the status records of a daemon when they change, each at most every two seconds, in a thread of its own.

    The records are for information only: no decision depends on them. The thread lives from the first `set` to `close`.
    """

    def __init__(self, client: ZooKeeperClient, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._client = client
        self._pause = pause_seconds
        #: Guards what follows; not held while something is written.
        self._changed = threading.Condition()
        self._entries: dict[str, _Stored] = {}
        self._closing = False
        self._thread: threading.Thread | None = None
        client.add_session_listener(self._on_session)

    def set(self, kind: str, name: str, status: Any) -> None:
        """Say what a daemon or a part of it does now; does not block. Raises ValueError: see `encode`.

        :param kind: of the daemon or part, e.g. ``builder``.
        :param name: unique in ZooKeeper, e.g. ``<hostname>-<pid>``.
        :param status: a dataclass or dictionary.
        """
        data = encode(status)
        with self._changed:
            entry = self._entries.setdefault(path_of(kind, name), _Stored())
            if self._closing or entry.wanted == data:
                return
            entry.wanted = data
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="status", daemon=True)
                # Raises RuntimeError if the system has no more threads just now; then the next call tries it again.
                thread.start()
                self._thread = thread
            self._changed.notify_all()

    def remove(self, kind: str, name: str) -> None:
        """A record is to be removed; one that is not there is fine. Does not block."""
        with self._changed:
            entry = self._entries.get(path_of(kind, name))
            if entry is not None:
                entry.wanted, entry.not_before = None, 0.0
                self._changed.notify_all()

    def close(self) -> None:
        """End the thread and remove the records, if there is a connection. Blocks at most `CLOSE_SECONDS`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS)

    def _on_session(self, state: str) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            for path in due:
                with Guard(log, "Status %s was not written", path, level=logging.WARNING, traceback=False):
                    self._store(path)
        if self._client.connected:
            for path in list(self._entries):
                with Guard(log, "Status %s was not removed", path, level=logging.WARNING, traceback=False):
                    self._remove(path)

    def _wait(self) -> list[str] | None:
        """Wait until something is to be written, and return its paths; None = it is time to end."""
        with self._changed:
            while not self._closing:
                now, epoch = monotonic(), self._client.session_epoch
                times = {
                    path: entry.not_before
                    for path, entry in self._entries.items()
                    if self._client.connected and (entry.written != entry.wanted or entry.epoch != epoch)
                }
                due = [path for path, when in times.items() if when <= now]
                if due:
                    return due
                self._changed.wait(min(times.values()) - now if times else None)
            return None

    def _store(self, path: str) -> None:
        with self._changed:
            if self._closing:
                return
            entry = self._entries[path]
            data, epoch = entry.wanted, self._client.session_epoch
            # Whatever becomes of this one: else what fails would be tried without a pause.
            entry.not_before = monotonic() + self._pause
        if data is None:
            self._remove(path)
        else:
            self._write(path, data, new=entry.epoch != epoch)
        with self._changed:
            entry.written, entry.epoch = data, epoch
            if data is None and entry.wanted is None:
                del self._entries[path]

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
