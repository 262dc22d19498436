# SPDX-License-Identifier: Apache-2.0
"""What a daemon is doing now, for commands and pages: one ephemeral znode, ``/nodepool/status/<kind>/<name>``."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any, Final

from kazoo.exceptions import KazooException, NoNodeError

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.guard import Guard
from nodepool.model.record import InvalidRecord
from nodepool.zk import codec, multi_read, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import translate

#: Between two writes.
PAUSE_SECONDS: Final = 2.0
#: Longest time that `StatusRecord.close` takes: a call waits for a connection that is away. The znode is ephemeral.
CLOSE_SECONDS: Final = 5.0


def path_of(kind: str, name: str) -> str:
    return f"{paths.STATUS}/{kind}/{name}"


class StatusRecord:
    """Writes the status of a daemon when it changes, at most every two seconds, in a thread of its own.

    Not a registry: nobody relies on it. The thread lives from the first `set` to `close`.

    :param kind: of the daemon, e.g. ``builder``.
    :param name: unique in ZooKeeper, e.g. ``<hostname>-<pid>``.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient, kind: str, name: str, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._client = client
        self._path = path_of(kind, name)
        self._pause = pause_seconds
        #: Guards what follows; not held while something is written.
        self._changed = threading.Condition()
        self._wanted: bytes | None = None
        self._written: bytes | None = None
        self._epoch = -1
        self._closing = False
        self._thread: threading.Thread | None = None
        client.add_session_listener(self._on_session)

    def set(self, status: dict[str, Any]) -> None:
        """Say what the daemon is doing now; does not block. Raises ValueError: JSON has no such value."""
        data = json.dumps(status, sort_keys=True, allow_nan=False).encode()
        with self._changed:
            if self._closing or data == self._wanted:
                return
            self._wanted = data
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"status {self._path}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread and remove the znode, if there is a connection. Blocks at most `CLOSE_SECONDS`."""
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
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._is_due())
                if self._closing:
                    break
                data, epoch = self._wanted, self._client.session_epoch
            with Guard(self.log, "Status %s was not written", self._path, level=logging.WARNING, traceback=False):
                self._write(data or b"{}")
                with self._changed:
                    self._written, self._epoch = data, epoch
            deadline = monotonic() + self._pause
            with self._changed:
                self._changed.wait_for(lambda: self._closing, max(0.0, deadline - monotonic()))
        if self._client.connected:
            with Guard(self.log, "Status %s was not removed", self._path, level=logging.WARNING, traceback=False):
                self._remove()

    def _is_due(self) -> bool:
        """Is there something to write, and a connection?"""
        stale = self._written != self._wanted or self._epoch != self._client.session_epoch
        return stale and self._client.connected

    def _write(self, data: bytes) -> None:
        kazoo = self._client.kazoo
        if self._epoch == self._client.session_epoch:
            try:
                kazoo.set(self._path, data)
                return
            except NoNodeError:
                self.log.warning("Status %s is gone, writing it again", self._path)
        # What an ended session left would go with it.
        self._remove()
        kazoo.create(self._path, data, ephemeral=True, makepath=True)

    def _remove(self) -> None:
        try:
            self._client.kazoo.delete(self._path)
        except NoNodeError:
            return
        except KazooException as error:
            raise translate(error) from None


def read_all(client: ZooKeeperClient, kind: str) -> dict[str, dict[str, Any]]:
    """Name -> status of all daemons of a kind; bad ones are logged and skipped. Blocks for round trips.

    :raises ZKException: ZooKeeper could not be asked.
    """
    root = f"{paths.STATUS}/{kind}"
    names = sorted(multi_read.children(client, root))
    found: dict[str, dict[str, Any]] = {}
    for name, answer in zip(names, multi_read.read_data(client, [f"{root}/{name}" for name in names]), strict=True):
        if answer is None:
            continue
        try:
            found[name] = codec.decode(answer[0])
        except InvalidRecord as problem:
            StatusRecord.log.error("Ignoring %s/%s: %s", root, name, problem)
    return found
