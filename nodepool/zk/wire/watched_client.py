# SPDX-License-Identifier: Apache-2.0
"""Kazoo's client with persistent recursive watches and replies that are handled in order.

Kazoo 2.11 knows neither ZooKeeper's AddWatch (opcode 106, ZooKeeper 3.6) nor a way to handle an answer
before the next event of the connection is read. Both are needed by the caches:

* one recursive watch replaces a watch per znode and never has to be set again;
* a cache must see its own writes and foreign events in the order in which the server sent them (`nodepool.zk.reply`).

So the watch function and `Reply.on_done` are called directly in the connection thread. Both must be quick, must not
block and must not wait for another reply.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, NodeExistsError
from kazoo.protocol.serialization import Sync
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from nodepool.clock import monotonic
from nodepool.zk.connect_failure import ConnectFailure, ServerPlace
from nodepool.zk.events import WatchFunction
from nodepool.zk.latency import Latency
from nodepool.zk.reply import Reply
from nodepool.zk.wire.kazoo_log import KazooLog
from nodepool.zk.wire.operations import Operations
from nodepool.zk.wire.threading_handler import TlsHandler
from nodepool.zk.wire.watch_connection import WatchConnection


class WatchedClient(KazooClient):  # type: ignore[misc]
    """KazooClient with recursive watches and ordered replies.

    Watches do not survive a lost connection: whoever adds one adds it again on ``KazooState.CONNECTED``.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        #: Replaced under the lock and not changed: the connection thread walks through it.
        self._recursive: dict[str, WatchFunction] = {}
        self._watching = threading.Lock()
        #: Makes what `call` sends; paths are without the chroot.
        self.operations = Operations(self.chroot)
        log = KazooLog(self.logger, lambda: self.state == KazooState.CONNECTED)
        self._connection = WatchConnection(self, self._conn_retry.copy(), logger=log)
        #: The last question that was only asked for `lease_until`.
        self._renewal = Reply()
        self._renewal.set()

    @property
    def lease_until(self) -> float:
        """Until when it is certain that the session lives, in monotonic seconds.

        Counted from when something was sent that has been answered, and not from the answer: a process that was
        stopped for a while finds old answers when it goes on. Only what the leader had to see counts, because it is the
        leader that ends sessions, and a server that has lost it answers reads and pings for a while.
        """
        until: float = self._connection.lease_until
        return until

    def is_leased(self) -> bool:
        """Is it certain that the session lives? Does not block; asks the leader when it will not be for much longer."""
        left = self.lease_until - monotonic()
        if left < self._connection.lease_seconds / 2 and self.state == KazooState.CONNECTED and self._renewal.answered:
            self._renewal = Reply()
            self.call(Sync(self.chroot or "/"), self._renewal)
        return left > 0

    @property
    def has_died(self) -> bool:
        """Has the connection thread ended although the client was not stopped? ``start_async`` makes another one."""
        return self._connection.has_died

    @property
    def connect_failures(self) -> dict[ServerPlace, list[ConnectFailure]]:
        """Why the last attempts to connect failed, by server; empty with a session. Any thread; does not block."""
        return {server: list(failures.values()) for server, failures in self._connection.failures.items()}

    @property
    def servers(self) -> list[ServerPlace]:
        """All servers, in the order of the configuration."""
        return [ServerPlace(host.strip(), port) for host, port in self.hosts]

    @property
    def latency(self) -> Latency:
        """Of writes and pings, since this client was made."""
        return self._connection.latency

    @property
    def queued_calls(self) -> int:
        """Calls that wait to be sent."""
        return len(self._queue)

    def call(self, request: Any, reply: Reply) -> Reply:
        """Send one of `operations`. Does not wait for an answer."""
        if self._connection.is_current_thread and self.state == KazooState.CONNECTED:
            self._connection.call(request, reply)
        else:
            self._call(request, reply)
        return reply

    def _call(self, request: Any, async_object: Any) -> Any:
        """What cannot be sent is refused here: the connection thread would end with an error, and not come back."""
        for part in getattr(request, "operations", (request,)):
            path = getattr(part, "path", "")
            try:
                path.isascii() or path.encode()
            except UnicodeEncodeError:
                async_object.set_exception(BadArgumentsError(ascii(path)))
                return False
        if self._connection.send_now(request, async_object):
            return None
        return super()._call(request, async_object)

    def make_chroot(self) -> None:
        """Create the chroot and its parents. Blocks. Raises KazooException.

        The client's own paths have the chroot in front meanwhile: caches use it already.
        """
        operations = Operations("")

        def make(path: str) -> None:
            with contextlib.suppress(NodeExistsError):
                self.call(operations.create(path), Reply()).get()

        names = self.chroot.strip("/").split("/")
        for length in range(1, len(names) + 1):
            self.retry(make, "/" + "/".join(names[:length]))

    def watch_recursive(
        self, path: str, function: WatchFunction, on_done: Callable[[Any, BaseException | None], None] | None = None
    ) -> Reply:
        """Watch a subtree until the connection is lost. Does not block.

        :param path: root of the subtree; need not exist.
        :param function: called in the connection thread for each created, deleted or changed znode.
        :param on_done: see `Reply`.
        """
        with self._watching:
            self._recursive = {**self._recursive, path: function}
        return self.call(self.operations.watch(path), Reply(on_done))

    def unwatch(self, path: str, function: WatchFunction) -> None:
        """Call the function no more; another one that was given for the path since stays. Any thread."""
        with self._watching:
            if self._recursive.get(path) == function:
                self._recursive = {root: other for root, other in self._recursive.items() if root != path}

    def watch_function(self, path: str) -> WatchFunction | None:
        for root, function in self._recursive.items():
            if path.startswith(root) and (len(path) == len(root) or path[len(root)] == "/"):
                return function
        return None


def make(
    hosts: str, *, timeout: float, longest_pause: float, tls: tuple[str, str, str] | None, read_only: bool = False
) -> WatchedClient:
    """See `nodepool.zk.wire.make_client`."""
    options: dict[str, object] = {}
    if tls is not None:
        cert, key, ca = tls
        options = {"use_ssl": True, "certfile": cert, "keyfile": key, "ca": ca}
    return WatchedClient(
        hosts=hosts,
        timeout=timeout,
        connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=longest_pause, backoff=2),
        command_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=1, backoff=2),
        handler=TlsHandler(),
        read_only=read_only,
        **options,
    )
