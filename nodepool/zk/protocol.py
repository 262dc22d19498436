# SPDX-License-Identifier: Apache-2.0
"""Kazoo client with persistent recursive watches and replies that are handled in order.

Kazoo 2.11 knows neither ZooKeeper's AddWatch (opcode 106, ZooKeeper 3.6) nor a way to handle an answer
before the next event of the connection is read. Both are needed by the caches:

* one recursive watch replaces a watch per znode and never has to be set again;
* a cache must see its own writes and foreign events in the order in which the server sent them. Kazoo hands
  results to a completion thread and events to a callback thread, which loses that order.

Two more things are missing. How long is it certain that the session lives? See `WatchedClient.lease_until`. And
calls from the connection thread itself: Kazoo announces each call by a byte in a socket pair that the connection
thread empties, and which holds some 280 of them; the thread would wait for itself. See `_WatchConnection.call`.

So `WatchedClient` calls the watch function and `Reply.on_done` directly in the connection thread. Both must
be quick, must not block and must not wait for another reply. Only this file and `nodepool.zk.wire.transmission` use
Kazoo's private names (``_call``, ``_queue``, ``_connection``, ``_connect``, ``_send_request``, ``_write_sock``,
``_read_header``, ``_read_watch_event``).
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, ConnectionLoss
from kazoo.protocol.connection import WATCH_XID
from kazoo.protocol.serialization import Create, Delete, SetData, Sync, Transaction, Watch, int_struct, write_string
from kazoo.protocol.states import KazooState

from nodepool.clock import monotonic
from nodepool.exceptions import ZKConnectionError
from nodepool.zk.wire.transmission import Transmission

log = logging.getLogger("nodepool.zk.ZooKeeper")

CREATED: Final = 1
DELETED: Final = 2
CHANGED: Final = 3

#: Types of the requests that a server cannot answer without the leader.
_PASSED_ON: Final = frozenset(request.type for request in (Create, Delete, SetData, Sync, Transaction))

#: Calls from the connection thread that may wait in Kazoo's queue; the others wait in ours.
_MAX_QUEUED: Final = 100

#: ``on_event(event type, path without chroot)``
WatchFunction = Callable[[int, str], None]


class AddWatch(NamedTuple):
    """AddWatchRequest: ustring path, int mode; answered by an empty body (zookeeper.jute)."""

    path: str
    mode: int = 1  # AddWatchMode.PERSISTENT_RECURSIVE

    @property
    def type(self) -> int:
        return 106

    def serialize(self) -> bytes:
        return bytes(write_string(self.path)) + bytes(int_struct.pack(self.mode))

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> bool:
        return True


class Reply:
    """The answer to one call, set by the connection thread.

    :param on_done: called in the connection thread with (result, error), before waiters wake.
    """

    __slots__ = ("_answered", "_done", "_error", "_on_done", "_result")

    def __init__(self, on_done: Callable[[Any, BaseException | None], None] | None = None) -> None:
        # A lock that is released once is the cheapest thing to wait for.
        self._done = threading.Lock()
        self._done.acquire()
        self._on_done = on_done
        self._answered = False
        self._result: Any = None
        self._error: BaseException | None = None

    def _finish(self, result: Any, error: BaseException | None) -> None:
        # Kazoo may report an error twice (queue and socket): the first answer counts.
        if self._answered:
            return
        self._answered = True
        self._result, self._error = result, error
        try:
            if self._on_done is not None:
                self._on_done(result, error)
        except ZKConnectionError as closing:
            # Somebody ends the connection at this moment: what was to be asked next is of no use to anybody.
            log.debug("Nothing more is made of a ZooKeeper reply: %s", closing)
        except Exception:
            # An error here would end Kazoo's connection loop.
            log.exception("Error while handling a ZooKeeper reply")
        finally:
            self._done.release()

    def set(self, value: Any = None) -> None:
        self._finish(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._finish(None, error)

    @property
    def answered(self) -> bool:
        return self._answered

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is an answer, at most ``timeout`` seconds; returns whether there is one."""
        if not self._done.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self._done.release()
        return True

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the answer and return it, or raise the error that came instead.

        :raises TimeoutError: no answer within ``timeout`` seconds.
        """
        if not self.wait(timeout):
            raise TimeoutError("no answer from ZooKeeper")
        if self._error is not None:
            raise self._error
        return self._result


class _WatchConnection(Transmission):
    """Gives events under a recursive watch to their function, and notes how long the session is certain to live."""

    client: WatchedClient

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: Monotonic seconds.
        self.lease_until = float("-inf")
        self.lease_seconds = 0.0
        #: When requests were sent that have no answer yet, and whether the leader had to see them. Answers come in the
        #: order of the requests.
        self._sent: deque[tuple[float, bool]] = deque()
        #: Calls from this thread that are not in Kazoo's queue yet.
        self._own_calls: deque[tuple[Any, Reply]] = deque()
        self._thread_id = 0

    def zk_loop(self) -> None:
        self._thread_id = threading.get_ident()
        super().zk_loop()

    @property
    def is_current_thread(self) -> bool:
        return threading.get_ident() == self._thread_id

    def call(self, request: Any, reply: Reply) -> None:
        """A call from the connection thread: never blocks, however many there are."""
        self._own_calls.append((request, reply))
        self._pass_on()

    def _pass_on(self) -> None:
        """Move own calls to Kazoo's queue while there is room in the socket pair; the rest goes when some were sent."""
        queue = self.client._queue
        while self._own_calls and len(queue) < _MAX_QUEUED:
            try:
                self._write_sock.send(b"\0", socket.MSG_DONTWAIT)
            except OSError:
                # Full of calls from other threads: when one of them is sent, it is our turn again.
                return
            queue.append(self._own_calls.popleft())

    def _send_request(self, *arguments: Any) -> None:
        super()._send_request(*arguments)
        self._pass_on()

    def _connect(self, *arguments: Any) -> tuple[int, int]:
        begun = monotonic()
        while self._own_calls:
            # As Kazoo does with what was in its queue when the last connection broke.
            self._own_calls.popleft()[1].set_exception(ConnectionLoss())
        self._sent.clear()
        self.handler.servers = len(self.client.hosts)
        # Kazoo's read timeout is two thirds of the session timeout that the server has granted.
        read_ms, connect_ms = super()._connect(*arguments)
        self._sent.clear()
        self.lease_seconds = read_ms / 1000
        self.lease_until = begun + self.lease_seconds
        return read_ms, connect_ms

    def _send_ping(self, *arguments: Any) -> None:
        super()._send_ping(*arguments)
        # A server that the leader has lost answers pings, too, and may do so for longer than the session lives.
        self.call(Sync(self.client.chroot or "/"), Reply())

    def _sending(self, request: Any) -> None:
        self._sent.append((monotonic(), request.type in _PASSED_ON))

    def _read_header(self, timeout: float) -> tuple[Any, bytes, int]:
        header, buffer, offset = super()._read_header(timeout)
        if header.xid != WATCH_XID and self._sent:
            sent, passed_on = self._sent.popleft()
            if passed_on:
                self.lease_until = max(self.lease_until, sent + self.lease_seconds)
        return header, buffer, offset

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = Watch.deserialize(buffer, offset)
        path = self.client.unchroot(watch.path)
        function = self.client.watch_function(path)
        if function is not None and watch.type in (CREATED, DELETED, CHANGED):
            if not self.client._stopped.is_set():
                try:
                    function(watch.type, path)
                except ZKConnectionError as closing:
                    # As in `Reply`.
                    log.debug("Nothing more is made of a ZooKeeper event for %s: %s", path, closing)
                except Exception:
                    log.exception("Error while handling a ZooKeeper event for %s", path)
            # A recipe (a lock that waits) may watch the same path in the ordinary way: one event for both.
            if watch.path not in self.client._data_watchers and watch.path not in self.client._child_watchers:
                return
        super()._read_watch_event(buffer, offset)


class WatchedClient(KazooClient):  # type: ignore[misc]
    """KazooClient with recursive watches and ordered replies.

    Watches do not survive a lost connection: whoever adds one adds it again on ``KazooState.CONNECTED``.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._recursive: dict[str, WatchFunction] = {}
        self._connection = _WatchConnection(self, self._conn_retry.copy(), logger=self.logger)
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
    def queued_calls(self) -> int:
        """Calls that wait to be sent."""
        return len(self._queue) + len(self._connection._own_calls)

    def call(self, request: Any, reply: Reply) -> Reply:
        """Send one request object; paths in it have the chroot already. Does not wait for an answer."""
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
        return super()._call(request, async_object)

    def chrooted(self, path: str) -> str:
        return f"{self.chroot}{path}" if self.chroot else path

    def watch_recursive(
        self, path: str, function: WatchFunction, on_done: Callable[[Any, BaseException | None], None] | None = None
    ) -> Reply:
        """Watch a subtree until the connection is lost. Does not block.

        :param path: root of the subtree; need not exist.
        :param function: called in the connection thread for each created, deleted or changed znode.
        :param on_done: see `Reply`.
        """
        self._recursive[path] = function
        return self.call(AddWatch(self.chrooted(path)), Reply(on_done))

    def watch_function(self, path: str) -> WatchFunction | None:
        for root, function in self._recursive.items():
            if path.startswith(root) and (len(path) == len(root) or path[len(root)] == "/"):
                return function
        return None


CONNECTED: Final = KazooState.CONNECTED
SUSPENDED: Final = KazooState.SUSPENDED
LOST: Final = KazooState.LOST
