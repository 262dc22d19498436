# SPDX-License-Identifier: Apache-2.0
"""All that touches the inside of Kazoo: persistent recursive watches, and replies that are handled in order (ADR 1, 7).

Kazoo 2.11 knows neither ZooKeeper's AddWatch (opcode 106, ZooKeeper 3.6) nor a way to handle an answer before the next
event of the connection is read. Both are needed by the caches:

* one recursive watch replaces a watch per znode and never has to be set again;
* a cache must see its own writes and foreign events in the order in which the server sent them (`nodepool.zk.reply`).

So the watch function and `Reply.on_done` are called directly in the connection thread. Both must be quick, must not
block and must not wait for another reply.

First the client, then its connection, the operations that Kazoo does not know, its log, and the check whether the
installed Kazoo has what is used here. How it connects and waits is `nodepool.zk.sockets`, behind its public interface.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import math
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.exceptions import ZKConnectionError, ZKException, ZKTooLarge
from nodepool.guard import Guard
from nodepool.zk import paths
from nodepool.zk.connect_failure import ConnectFailure, ConnectStep, ServerPlace
from nodepool.zk.reply import CHANGED, CREATED, DELETED, Latency, Reply, WatchFunction

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import EXCEPTIONS, BadArgumentsError, ConnectionDropped, ConnectionLoss, NodeExistsError
    from kazoo.protocol.connection import ConnectionHandler
    from kazoo.protocol.serialization import (
        CheckVersion,
        Connect,
        Create,
        Delete,
        GetChildren,
        GetData,
        SetData,
        Sync,
        Transaction,
        Watch,
        int_struct,
        multiheader_struct,
        read_string,
        stat_struct,
        write_string,
    )
    from kazoo.protocol.states import KazooState, KeeperState, ZnodeStat
    from kazoo.retry import ForceRetryError, KazooRetry
    from kazoo.security import OPEN_ACL_UNSAFE

    from nodepool.zk.sockets import TlsHandler
except ImportError as lacking:
    raise ZKException(f"Kazoo cannot be used: {lacking}; install a release that requirements.txt allows") from None

log = logging.getLogger(log_names.ZOOKEEPER)


class WatchedClient(KazooClient):  # type: ignore[misc]
    """KazooClient with recursive watches and ordered replies.

    Watches do not survive a lost connection: whoever adds one adds it again on ``KazooState.CONNECTED``.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        #: Replaced under the lock and not changed: the connection thread walks through it.
        self._recursive: dict[str, WatchFunction] = {}
        self._watching = threading.Lock()
        #: Until when it is certain that the session lives, in monotonic seconds; and how long an answer of the leader
        #: makes it so. Counted from when something was sent that has been answered, and not from the answer: a process
        #: that was stopped for a while finds old answers when it goes on. Only what the leader had to see counts,
        #: because it is the leader that ends sessions, and a server that has lost it answers reads and pings for a
        #: while.
        self.lease_until = -math.inf
        self.lease_seconds = 0.0
        #: Of what the leader answers since this client was made: writes, and a question with each ping.
        self.latency = Latency()
        #: Server -> its address -> why the last attempt failed; empty once a session is there. Replaced as a whole.
        self.failures: dict[ServerPlace, dict[str, ConnectFailure]] = {}
        #: Makes what `call` sends; paths are without the chroot.
        self.operations = Operations(self.chroot)
        log = KazooLog(self.logger, lambda: self.state == KazooState.CONNECTED)
        self._connection = WatchConnection(self, self._conn_retry.copy(), logger=log)
        #: The last question that was only asked for `lease_until`.
        self._renewal = Reply()
        self._renewal.set()

    def is_leased(self) -> bool:
        """Is it certain that the session lives? Does not block; asks the leader when it will not be for much longer."""
        left = self.lease_until - monotonic()
        if left < self.lease_seconds / 2 and self.state == KazooState.CONNECTED and self._renewal.answered:
            self._renewal = Reply()
            self.call(Sync(self.chroot or "/"), self._renewal)
        return left > 0

    @property
    def has_died(self) -> bool:
        """Has the connection thread ended although the client was not stopped? ``start_async`` makes another one."""
        thread = self._connection._connection_routine
        return thread is not None and not thread.is_alive() and not self._stopped.is_set()

    @property
    def servers(self) -> list[ServerPlace]:
        """All servers, in the order of the configuration."""
        return [ServerPlace(host.strip(), port) for host, port in self.hosts]

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


def make_client(
    hosts: str,
    *,
    timeout: float,
    longest_pause: float,
    tls: tuple[str, str, str] | None = None,
    read_only: bool = False,
) -> WatchedClient:
    """A client that is not started. Does not block.

    :param hosts: Kazoo's host list, with the chroot.
    :param timeout: session timeout in seconds.
    :param longest_pause: seconds between two rounds through all servers while none serves.
    :param tls: PEM files of the client's certificate, its key, and the CA; None = no TLS.
    :param read_only: may it be a server that has lost the others?
    :raises ZKException: the installed Kazoo lacks something that is used here.
    """
    check()
    cert, key, ca = tls or (None, None, None)
    return WatchedClient(
        hosts=hosts,
        timeout=timeout,
        connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=longest_pause, backoff=2),
        command_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=1, backoff=2),
        handler=TlsHandler(),
        read_only=read_only,
        use_ssl=tls is not None,
        certfile=cert,
        keyfile=key,
        ca=ca,
    )


# Kazoo's connection, with events in order, a lease of the session, and calls from its own thread.
#
# No error ends its thread, which Kazoo would not replace: an odd server costs its connection, and what cannot be sent
# is answered with the error.

#: Events that come so soon after the last ones are handled together, unless an answer is waited for: their records are
#: read with one packet, and to wake for each costs more than the event.
GATHER_SECONDS: Final = 0.01
#: What data raises that is not as it should be, ours or the server's.
_MISTAKES: Final = (AttributeError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError, struct.error)


class WatchConnection(ConnectionHandler):  # type: ignore[misc]
    """Gives events under a recursive watch to their function, and notes how long the session is certain to live."""

    client: WatchedClient

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: Number and time of each request without an answer that the leader had to see. Answers keep their order.
        self._sent: deque[tuple[int, float]] = deque()
        #: Calls that callbacks made while the connection broke.
        self._late_calls: deque[Reply] = deque()
        self._thread_id = 0
        #: The server, of those that we were connected to because they only read, that has found the others again.
        self._writable: tuple[str, int] | None = None

    def zk_loop(self) -> None:
        self._thread_id = threading.get_ident()
        super().zk_loop()

    @property
    def is_current_thread(self) -> bool:
        return threading.get_ident() == self._thread_id

    def call(self, request: Any, reply: Reply) -> None:
        """A call from the connection thread: never blocks, however many there are.

        When a connection breaks, Kazoo answers the calls in its queue by errors until the queue is empty. A callback
        that makes another call then would keep it from ever being so.
        """
        if self.client.connected:
            self.client._call(request, reply)
        else:
            self._late_calls.append(reply)

    def _connect_loop(self, retry: Any) -> Any:
        """A round through all servers."""
        try:
            return super()._connect_loop(retry)
        except ForceRetryError:
            raise
        except Exception as error:
            # Whatever it is, the next round may be better.
            log.exception("The connection to ZooKeeper ended by an unexpected error, connecting again")
            self.client._session_callback(KeeperState.CONNECTING)
            raise ForceRetryError(str(error)) from error

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        """Addresses of all servers, in random order; a name that is unknown is left out. Blocks."""
        found: list[tuple[str, str, int]] = []
        for name, port in self.client.hosts:
            host = name.strip()
            try:
                answers = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
            except (OSError, ValueError) as error:
                # The latter: it cannot be a name at all, e.g. because two dots follow each other.
                self.logger.warning("Cannot resolve %s: %s", host, error)
                self.client.failures = {
                    **self.client.failures,
                    ServerPlace(host, port): {"": ConnectFailure(ConnectStep.RESOLVE, error)},
                }
            else:
                found += [(host, str(answer[4][0]), int(answer[4][1])) for answer in answers]
        if self.client.randomize_hosts:
            random.shuffle(found)
        return found

    def _connect(self, host: str, address: str, port: int) -> tuple[int, int]:
        if (host, port) == self._writable:
            # Kazoo gives the address of the server that it would have tried next.
            address, self._writable = host, None
        try:
            timeouts = self._begin_session(host, address, port)
        except (ConnectionDropped, self.handler.timeout_exception) as error:
            # Kazoo makes a text of the error of the system, or of TLS, from which the kind of trouble cannot be told.
            reason = error.__context__ if isinstance(error.__context__, OSError) else error
            if isinstance(error, self.handler.timeout_exception):
                reason = TimeoutError("nothing came in time")
            server = ServerPlace(host, port)
            known = {**self.client.failures.get(server, {}), address: ConnectFailure(self.handler.stage, reason)}
            known.pop("", None)
            self.client.failures = {**self.client.failures, server: known}
            raise
        self.client.failures = {}
        return timeouts

    def _begin_session(self, *arguments: Any) -> tuple[int, int]:
        begun = monotonic()
        late = list(self._late_calls)
        self._late_calls.clear()
        for reply in late:
            # As Kazoo does with what was in its queue when the last connection broke.
            reply.set_exception(ConnectionLoss())
        self._sent.clear()
        self.handler.servers = len(self.client.hosts)
        # Kazoo's read timeout is two thirds of the session timeout that the server has granted.
        timeouts: tuple[int, int] = super()._connect(*arguments)
        self._sent.clear()
        self.client.lease_seconds = timeouts[0] / 1000
        self.client.lease_until = begun + self.client.lease_seconds
        return timeouts

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].passwd is None:
            raise ConnectionDropped("the server gave a session without a password")
        return answer

    def _server_pinger(self) -> Iterator[tuple[str, int] | None]:
        """While our server only reads: with each ping the next server is asked whether it also writes. Blocks."""
        client = self.client
        while True:
            for name, port in client.hosts:
                place = name.strip(), port
                try:
                    connection = self.handler.create_connection(
                        place,
                        hostname=place[0],
                        timeout=client._session_timeout / 3000,
                        use_ssl=client.use_ssl,
                        ca=client.ca,
                        certfile=client.certfile,
                        keyfile=client.keyfile,
                    )
                    with contextlib.closing(connection):
                        connection.send(b"isro")
                        self._writable = place if connection.recv(16) == b"rw" else None
                except (OSError, ValueError):
                    self._writable = None
                yield self._writable

    def _send_request(self, *arguments: Any) -> None:
        queue = self.client._queue
        first = queue[0] if queue else None
        try:
            super()._send_request(*arguments)
        except _MISTAKES as error:
            if first is None or not queue or queue[0] is not first:
                raise
            # It cannot be made a packet. The connection is as good as before.
            queue.popleft()
            self._read_sock.recv(1)
            first[1].set_exception(error)

    def _send_ping(self, *arguments: Any) -> None:
        super()._send_ping(*arguments)
        # A server that the leader has lost answers pings, too, and may do so for longer than the session lives.
        self.call(Sync(self.client.chroot or "/"), Reply())

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        begun = monotonic()
        # The answer is not to wait.
        self._socket.gathers_until = -math.inf
        super()._submit(request, timeout, xid)
        # Pings have negative numbers, what begins a session has none.
        if xid is not None and xid > 0 and request.type in PASSED_ON:
            self._sent.append((xid, begun))

    def _write(self, msg: bytes, timeout: float) -> None:
        size = len(msg) - int_struct.size
        if size > paths.MOST_BYTES:
            # The server would close the connection without giving a reason.
            raise ZKTooLarge(f"{size} bytes are too many for ZooKeeper, which takes {paths.MOST_BYTES} at a time")
        super()._write(msg, timeout)

    def _read_socket(self, *arguments: Any) -> Any:
        pending = self.client._pending
        # Caches read many znodes at once, and have nothing to ask after that. Others may, and soon.
        awaited = bool(pending) and not isinstance(pending[0][0], MultiRead)
        try:
            answer = super()._read_socket(*arguments)
        except _MISTAKES as error:
            # The next connection may be better.
            raise ConnectionDropped(f"an answer that makes no sense: {error}") from error
        if not (awaited or pending or self.client._queue or self._socket.pending()):
            self._socket.gathers_until = monotonic() + GATHER_SECONDS
        return answer

    def _read_response(self, header: Any, *arguments: Any) -> Any:
        if self._sent and self._sent[0][0] == header.xid:
            _, sent = self._sent.popleft()
            self.client.latency.add(monotonic() - sent)
            self.client.lease_until = max(self.client.lease_until, sent + self.client.lease_seconds)
        pending = self.client._pending
        answering = pending[0][1] if pending else None
        try:
            closed = super()._read_response(header, *arguments)
        except _MISTAKES:
            if answering is not None:
                # Kazoo has forgotten who waits for it.
                answering.set_exception(ConnectionLoss())
            raise
        if isinstance(answering, Reply) and isinstance(answering.error, _MISTAKES):
            # Kazoo has given it to the caller only. What was to be read is read anew with the next connection.
            raise ConnectionDropped(f"an answer that makes no sense: {answering.error}")
        return closed

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = Watch.deserialize(buffer, offset)
        path = self.client.unchroot(watch.path)
        function = self.client.watch_function(path)
        if function is not None and watch.type in (CREATED, DELETED, CHANGED):
            if not self.client._stopped.is_set():
                try:
                    with Guard(log, "Error while handling a ZooKeeper event for %s", path, but=ZKConnectionError):
                        function(watch.type, path)
                except ZKConnectionError as closing:
                    # As in `Reply`.
                    log.debug("Nothing more is made of a ZooKeeper event for %s: %s", path, closing)
            # A recipe (a lock that waits) may watch the same path in the ordinary way: one event for both.
            if watch.path not in self.client._data_watchers and watch.path not in self.client._child_watchers:
                return
        super()._read_watch_event(buffer, offset)


# What is asked of ZooKeeper, as the packets that Kazoo sends.
#
# Two operations of ZooKeeper 3.6 are not in Kazoo: `AddWatch` and `MultiRead` (zookeeper.jute,
# org.apache.zookeeper.MultiOperationRecord and MultiResponse).

#: Types of the requests that a server cannot answer without the leader.
PASSED_ON: Final = frozenset(request.type for request in (Create, Delete, SetData, Sync, Transaction))

_ERROR: Final = -1
_END: Final = multiheader_struct.pack(-1, True, -1)
#: The head of a result, and the number behind it: length of the data, count of the names, or error.
_RESULT: Final = struct.Struct("!iBii")


class AddWatch(NamedTuple):
    """AddWatchRequest: ustring path, int mode; answered by an empty body."""

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


class MultiRead(NamedTuple):
    """MultiRequest of `GetData` and `GetChildren` without watches; answered by a list.

    An element is (data, stat), a list of names, or the `KazooException` of that read.
    """

    operations: list[Any]

    @property
    def type(self) -> int:
        return 22

    def serialize(self) -> bytes:
        parts = [multiheader_struct.pack(one.type, False, -1) + one.serialize() for one in self.operations]
        return b"".join([*parts, _END])

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        last = len(buffer) - _RESULT.size
        while offset <= last:
            # What follows the head of a result is a number in each of them. Only the end of all has none.
            kind, _, _, number = _RESULT.unpack_from(buffer, offset)
            offset += _RESULT.size
            if kind == GetData.type:
                begin, offset = offset, offset + max(number, 0)
                stat = tuple.__new__(ZnodeStat, stat_struct.unpack_from(buffer, offset))
                results.append((None if number < 0 else buffer[begin:offset], stat))
                offset += stat_struct.size
            elif kind == GetChildren.type:
                names = []
                for _ in range(number):
                    name, offset = read_string(buffer, offset)
                    names.append(name)
                results.append(names)
            elif kind == _ERROR:
                results.append(EXCEPTIONS[number]())
            else:
                raise ValueError(f"unexpected result of type {kind} in the answer to multiRead")
        if not buffer.startswith(_END, offset):
            raise ValueError("the answer to multiRead has no end")
        return results


class Operations:
    """Makes operations. What they are made of is of no concern to the caller: it passes them on.

    :param chroot: put in front of each path; "" = none.
    """

    def __init__(self, chroot: str) -> None:
        self._chroot = chroot

    def create(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        """:param flags: 1 = ephemeral, 2 = with a sequence number."""
        return Create(self._chroot + path, data, OPEN_ACL_UNSAFE, flags)

    def delete(self, path: str, version: int = -1) -> Any:
        """:param version: of the data; -1 = any."""
        return Delete(self._chroot + path, version)

    def check(self, path: str, version: int = -1) -> Any:
        """Only in a `transaction`: fails unless the znode exists with this version of the data (-1 = any)."""
        return CheckVersion(self._chroot + path, version)

    def set(self, path: str, data: bytes, version: int) -> Any:
        return SetData(self._chroot + path, data, version)

    def get(self, path: str) -> Any:
        """Answered by (data, stat)."""
        return GetData(self._chroot + path, None)

    def children(self, path: str) -> Any:
        """Answered by a list of names."""
        return GetChildren(self._chroot + path, None)

    def sync(self, path: str) -> Any:
        """The server catches up with the leader."""
        return Sync(self._chroot + path)

    def watch(self, path: str) -> Any:
        """Events of this znode and of all below, until the connection is lost."""
        return AddWatch(self._chroot + path)

    def transaction(self, operations: list[Any]) -> Any:
        """All or none of some writes and checks; answered by a list of results."""
        return Transaction(operations)

    def reads(self, operations: list[Any]) -> Any:
        """Some of `get` and `children` in one packet, each for itself; see `MultiRead`."""
        return MultiRead(operations)


# `KazooLog`: the logger of a connection of Kazoo (rule J-4).

#: How warnings about one attempt to connect begin.
ATTEMPTS: Final = ("Connection dropped", "Connection time-out", "Cannot resolve")


class KazooLog(logging.LoggerAdapter[logging.Logger]):
    """Without a connection Kazoo warns of each attempt to get one, about once a second and without the server.

    `nodepool.zk.client.ZooKeeperClient` logs the cause, once a minute; the attempts are for DEBUG.

    :param connected: is there a session?
    """

    def __init__(self, logger: logging.Logger, connected: Callable[[], bool]) -> None:
        super().__init__(logger, {})
        self._connected = connected

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a warning, or what is less than one."""
        attempt = str(msg).startswith(ATTEMPTS) and not self._connected()
        self.log(logging.DEBUG if attempt else logging.WARNING, msg, *args, **kwargs)


# Does the installed Kazoo have what is used of its inside?

#: Methods that ours call or replace, by the number of their arguments.
_METHODS: Final[Mapping[type, Mapping[int, tuple[str, ...]]]] = {
    KazooClient: {1: ("_session_callback", "unchroot"), 2: ("_call",)},
    ConnectionHandler: {
        0: ("zk_loop", "_expand_client_hosts", "_server_pinger"),
        1: ("_connect_loop", "_read_socket", "_send_ping"),
        2: ("_read_watch_event", "_send_request", "_write"),
        3: ("_connect", "_invoke", "_read_response", "_submit"),
    },
}
#: What a client has before it is started, what its connection has, and a lock of it before it is taken.
_CLIENT_FIELDS: Final = (
    *("_child_watchers", "_conn_retry", "_connection", "_data_watchers", "_pending", "_queue"),
    *("_session_timeout", "_stopped", "ca", "certfile", "chroot", "connected", "hosts", "keyfile"),
    *("randomize_hosts", "state", "use_ssl"),
)
_CONNECTION_FIELDS: Final = ("_connection_routine", "_read_sock", "handler", "logger")
_LOCK_FIELDS: Final = ("create_path", "node")


def missing() -> list[str]:
    """What is used of Kazoo's inside and is not there."""
    lacking = [
        f"{owner.__name__}.{method}"
        for owner, methods in _METHODS.items()
        for count, names in methods.items()
        for method in names
        if not _accepts(owner, method, count)
    ]
    client = KazooClient()
    for name, thing, fields in (
        ("KazooClient", client, _CLIENT_FIELDS),
        ("ConnectionHandler", getattr(client, "_connection", None), _CONNECTION_FIELDS),
        ("Lock", client.Lock("/lock"), _LOCK_FIELDS),
    ):
        lacking += [f"{name}.{field}" for field in fields if not hasattr(thing, field)]
    return lacking


def _accepts(owner: Any, method: str, count: int) -> bool:
    """Can a method be called with so many arguments?"""
    try:
        inspect.signature(getattr(owner, method)).bind(owner, *range(count))
    except (AttributeError, TypeError):
        return False
    return True


@functools.cache
def check() -> None:
    """:raises ZKException: something is missing; the text names it."""
    lacking = missing()
    if lacking:
        raise ZKException(
            f"Kazoo cannot be used, it lacks {', '.join(lacking)}; install a release that requirements.txt allows"
        )
