# SPDX-License-Identifier: Apache-2.0
"""All that touches the inside of Kazoo: persistent recursive watches, and replies that are handled in order (ADR 1, 7).

Kazoo 2.11 knows neither ZooKeeper's AddWatch (opcode 106, ZooKeeper 3.6) nor a way to handle an answer before the next
event of the connection is read. Both are needed by the caches:

* one recursive watch replaces a watch per znode and never has to be set again;
* a cache must see its own writes and foreign events in the order in which the server sent them (`Reply`).

So the watch function and `Reply.on_done` are called directly in the connection thread. Both must be quick, must not
block and must not wait for another reply.

First the client, then its connection, the operations that Kazoo does not know, its sockets, and the check whether the
installed Kazoo has what is used here.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import logging
import math
import os
import random
import select
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.exceptions import ZKConnectionError, ZKException, ZKTooLarge
from nodepool.guard import Guard, OnError
from nodepool.zk import paths
from nodepool.zk.connection import (
    EVENTS,
    ConnectFailure,
    ConnectStep,
    KazooLog,
    Latency,
    Reply,
    ServerPlace,
    TlsFiles,
    WatchFunction,
    tls_context,
)

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import EXCEPTIONS, BadArgumentsError, ConnectionDropped, ConnectionLoss, NodeExistsError
    from kazoo.handlers.threading import SequentialThreadingHandler
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
except ImportError as lacking:
    raise ZKException(f"Kazoo cannot be used: {lacking}; install a release that requirements.txt allows") from None

log = logging.getLogger(log_names.ZOOKEEPER)


class WatchedClient(KazooClient):  # type: ignore[misc]
    """KazooClient with recursive watches and ordered replies. It is made without being started.

    Watches do not survive a lost connection: who adds one adds it again on ``KazooState.CONNECTED``.

    :param hosts: Kazoo's host list, with the chroot.
    :param timeout: session timeout in seconds.
    :param longest_pause: seconds between two rounds through all servers while none serves.
    :param tls: PEM files of the client's certificate, its key, and the CA; None = no TLS.
    :param read_only: may it be a server that has lost the others?
    :raises ZKException: the installed Kazoo lacks something that is used here.
    """

    def __init__(
        self,
        hosts: str,
        *,
        timeout: float,
        longest_pause: float,
        tls: tuple[str, str, str] | None = None,
        read_only: bool = False,
    ) -> None:
        check()
        cert, key, ca = tls or (None, None, None)
        super().__init__(
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

        for path in itertools.accumulate(self.chroot.strip("/").split("/"), "{}/{}".format):
            self.retry(make, f"/{path}")

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
        self._late_calls: list[Reply] = []
        self._thread_id = 0

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
        try:
            timeouts = self._begin_session(host, address, port)
        except (ConnectionDropped, self.handler.timeout_exception) as error:
            # Kazoo makes a text of the error of the system, or of TLS, from which the kind of trouble cannot be seen.
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
        late, self._late_calls = self._late_calls, []
        for reply in late:
            # As Kazoo does with what was in its queue when the last connection broke.
            reply.set_exception(ConnectionLoss())
        self._sent.clear()
        self.handler.servers = len(self.client.hosts)
        # Kazoo's read timeout is two thirds of the session timeout that the server has granted.
        timeouts: tuple[int, int] = super()._connect(*arguments)
        self.client.lease_seconds = timeouts[0] / 1000
        self.client.lease_until = begun + self.client.lease_seconds
        return timeouts

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].passwd is None:
            raise ConnectionDropped("the server gave a session without a password")
        return answer

    def _server_pinger(self) -> Iterator[None]:
        """A server that only reads is kept until it ends the connection. Kazoo would ask others, without TLS."""
        return itertools.repeat(None)

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
        if function is not None and watch.type in EVENTS:
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

_END: Final = multiheader_struct.pack(-1, True, -1)
#: The head of a result, and the number behind it: length of the data, count of the names, or error.
_RESULT: Final = struct.Struct("!iBii")


class AddWatch(NamedTuple):
    """AddWatchRequest: ustring path, int mode (1 = PERSISTENT_RECURSIVE); answered by an empty body."""

    path: str

    @property
    def type(self) -> int:
        return 106

    def serialize(self) -> bytes:
        return bytes(write_string(self.path)) + bytes(int_struct.pack(1))

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
            elif kind == -1:
                # The error of this read.
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


# How Kazoo connects, wakes its connection thread, and waits: its public interface for handlers (ADR 7).
#
# Kazoo 2.11 forgets to close the socket of an attempt over TLS that fails, so every attempt while ZooKeeper is down
# costs a file descriptor until the garbage collector comes. It reads the system's certificates each time, and trusts
# them. It waits for a silent server as long as the session lives, so that the session is over before the next one is
# tried. It waits for sockets more often than there is anything to wait for, each time with an epoll object of its own,
# and also for data that TLS has read already.


def _milliseconds(seconds: float) -> int | None:
    """For poll(). None = without an end."""
    return None if seconds == math.inf else max(0, math.ceil(seconds * 1000))


#: So much is read at once.
READ_BYTES: Final = 65_536
#: What a TLS record holds at most.
_RECORD_BYTES: Final = 16_384


class BufferedSocket:
    """A connection that reads what has come at once; for one thread.

    Kazoo reads the length of a packet, then the packet, and waits before each. Packets come in groups. And a TLS record
    that has come in part is nothing to read.

    :param connection: is connected.
    :param timeout: seconds for which `send` waits for room.
    """

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        self._socket = connection
        self._timeout = timeout
        #: What was read, and is not asked for yet. `_position`: where it begins.
        self._data = b""
        self._position = 0
        #: Why nothing more can be read: b"" = the other end closed the connection.
        self._end: bytes | Exception | None = None
        #: Until this time, in monotonic seconds, what comes is left to the system, so that more can come.
        self.gathers_until = -math.inf
        #: Is it waited for?
        self.asleep = False

    def readable(self) -> bool:
        """Does `recv` return, or raise, something without asking the system?"""
        return self._position < len(self._data) or self._end is not None

    def pending(self) -> int:
        """Bytes that can be read without asking the system: Kazoo waits for others only."""
        return len(self._data) - self._position

    def recv(self, buflen: int, flags: int = 0) -> bytes:
        """:raises ssl.SSLWantReadError: nothing has come (the name under which Kazoo knows this)."""
        if not self.readable():
            self.fill()
            # A record of TLS that has nothing for us, or a part of one, may be all that has come.
            while not self.readable() and self._socket.gettimeout() != 0:
                self.fill()
        begin, self._position = self._position, min(self._position + buflen, len(self._data))
        if begin < self._position:
            return self._data[begin : self._position]
        if self._end is None:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "nothing to read")
        if isinstance(self._end, Exception):
            raise self._end
        return self._end

    def fill(self) -> None:
        """Take what has come. Blocks only if the socket does. An error is kept until what came before it is read."""
        try:
            received = self._socket.recv(READ_BYTES)
            data = self._decode(received) if received else b""
        except BlockingIOError:
            return
        except OSError as error:
            self._end = error
            return
        if data:
            self._data = self._data[self._position :] + data
            self._position = 0
        if not received and self._end is None:
            self._end = b""

    def _decode(self, received: bytes) -> bytes:
        return received

    def send(self, data: Any, flags: int = 0) -> int:
        """Sends all. Waits for room. Raises OSError."""
        self._send_all(self._encode(data))
        return len(data)

    def _encode(self, data: Any) -> Any:
        return data

    def _send_all(self, data: Any) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                if not poll.poll(_milliseconds(self._timeout)):
                    raise TimeoutError(errno.ETIMEDOUT, "the server takes nothing any more") from None

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(bool(flag))

    def close(self) -> None:
        self._socket.close()


class TlsSocket(BufferedSocket):
    """A connection with TLS. TLS itself works in memory: one read takes all records that have come.

    :param server_hostname: for the server.
    :param timeout: seconds for the handshake, which the constructor makes. It raises OSError.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, server_hostname: str | None, timeout: float
    ) -> None:
        super().__init__(connection, timeout)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._shake_hands(monotonic() + timeout)
        connection.settimeout(timeout)

    def _shake_hands(self, deadline: float) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    # The server gets the reason, too.
                    self._socket.sendall(self._outgoing.read())
                raise
            else:
                done = True
            left = deadline - monotonic()
            if left <= 0:
                raise TimeoutError("the TLS handshake took too long")
            self._socket.settimeout(left)
            self._socket.sendall(self._outgoing.read())
            if done:
                return
            received = self._socket.recv(READ_BYTES)
            if not received:
                raise ConnectionResetError("connection closed during the TLS handshake")
            self._incoming.write(received)

    def _decode(self, received: bytes) -> bytes:
        self._incoming.write(received)
        parts = []
        try:
            while self._incoming.pending:
                part = self._tls.read(_RECORD_BYTES)
                if not part:
                    # TLS says that nothing more comes.
                    self._end = b""
                    break
                parts.append(part)
        except ssl.SSLError as error:
            # The beginning of a record is no end.
            if not isinstance(error, ssl.SSLWantReadError):
                self._end = error
        if self._outgoing.pending:
            # TLS has something to send of its own, e.g. new keys.
            self._send_all(self._outgoing.read())
        return b"".join(parts)

    def _encode(self, data: bytes) -> bytes:
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]
        return self._outgoing.read()


class Wake:
    """What wakes the connection thread: both ends.

    For each request Kazoo sends a byte through a pair of sockets. Such a pair holds some 280 bytes: a thread that sends
    one more waits until the connection thread has read some, which that thread itself can never do. So bytes are
    counted, and one goes through the sockets only if the connection thread sleeps.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        #: One for each byte that was sent and not read; operations of a deque are atomic.
        self._sent: deque[None] = deque()
        #: Is the connection thread about to wait for sockets, or waiting? It looks at ``_sent`` after setting this.
        self.asleep = False

    def readable(self) -> bool:
        """Was a byte sent?"""
        return bool(self._sent)

    def recv(self, buflen: int = 1, flags: int = 0) -> bytes:
        """Reads one byte; of the connection thread. :raises BlockingIOError: none was sent."""
        try:
            self._sent.popleft()
        except IndexError:
            raise BlockingIOError("nothing was sent") from None
        return b"\0"

    def send(self, data: bytes, flags: int = 0) -> int:
        """Sends one byte; of any other thread; does not block. :raises OSError: it is closed."""
        if self._writer.fileno() < 0:
            raise OSError("closed")
        self._sent.append(None)
        if self.asleep:
            self.asleep = False
            # A full socket wakes it all the same.
            with contextlib.suppress(BlockingIOError):
                self._writer.send(b"\0")
        return 1

    def fill(self) -> None:
        """Take what came through the socket. Does not block."""
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(4096)

    def fileno(self) -> int:
        return self._reader.fileno()

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Used by Kazoo to connect, to wake its connection thread, and to wait; the rest is Kazoo's."""

    def __init__(self) -> None:
        super().__init__()
        #: How many servers there are: each has its share of the time in which one must be found.
        self.servers = 1
        #: How far the last attempt to connect came.
        self.stage = ConnectStep.CONNECT

    def dispatch_callback(self, callback: Any) -> None:
        """Have a watch function called in Kazoo's thread, by which waiting for locks ends, too. Does not block."""

        def call() -> None:
            # It may be a driver's: not even its sys.exit() ends the thread.
            with Guard(log, "Error in a function that watches ZooKeeper"):
                callback.func(*callback.args)

        self.callback_queue.put(call)

    def create_socket_pair(self) -> tuple[Wake, Wake]:
        wake = Wake()
        return wake, wake

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _others: Sequence[object], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[object]]:
        """As select() of the system. Data that were read and not asked for yet are waited for no more. Raises OSError.

        :param readers: a `BufferedSocket`, and maybe a `Wake`.
        :param writers: a `BufferedSocket`, which waits itself.
        :param timeout: seconds; None = without an end.
        """
        deadline = math.inf if timeout is None else monotonic() + timeout
        connection, wake = (*readers, None, None)[:2]
        if connection is not None and not connection.readable():
            self._wait(connection, wake, deadline)
        return [each for each in readers if each.readable()], list(writers), []

    def _wait(self, connection: BufferedSocket, wake: Wake | None, deadline: float) -> None:
        """Wait until there is something to read, and take what the system has."""
        if wake is not None and monotonic() < connection.gathers_until:
            # Only a call ends this time.
            self._poll([wake], min(deadline, connection.gathers_until))
            if wake.readable():
                return
        self._poll([connection] if wake is None else [connection, wake], deadline)

    def _poll(self, sources: Sequence[BufferedSocket | Wake], deadline: float) -> None:
        poll = select.poll()
        for one in sources:
            poll.register(one, select.POLLIN)
        while True:
            for one in sources:
                one.asleep = True
            # A call may have come just before.
            now = any(one.readable() for one in sources)
            found = {number for number, _ in poll.poll(0 if now else _milliseconds(deadline - monotonic()))}
            for one in sources:
                one.asleep = False
                if one.fileno() in found:
                    one.fill()
            if any(one.readable() for one in sources) or monotonic() >= deadline:
                return

    def create_connection(self, address: tuple[str, int], **options: Any) -> BufferedSocket:
        """Connect to one server; blocks. Raises OSError."""
        timeout = options["timeout"] / self.servers
        self.stage = ConnectStep.CONNECT
        connection = socket.create_connection(address, timeout)
        with OnError(lambda _: connection.close()):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made = BufferedSocket(connection, timeout)
            if options.get("use_ssl"):
                self.stage = ConnectStep.TLS_FILES
                files = TlsFiles(options["certfile"], options["keyfile"], options["ca"])
                # A certificate that was renewed is taken with the next connection.
                context = tls_context(files, tuple(os.stat(name).st_mtime for name in files))
                self.stage = ConnectStep.HANDSHAKE
                made = TlsSocket(connection, context, options.get("hostname"), timeout)
        self.stage = ConnectStep.SESSION
        return made


# Does the installed Kazoo have what is used of its inside?

#: What a client has before it is started, what its connection has, and a lock of it before it is taken.
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "KazooClient": (
        *("_call", "_child_watchers", "_conn_retry", "_connection", "_data_watchers", "_pending", "_queue"),
        *("_session_callback", "_stopped", "chroot", "connected", "hosts", "randomize_hosts", "state", "unchroot"),
    ),
    "ConnectionHandler": (
        *("_connect", "_connect_loop", "_connection_routine", "_expand_client_hosts", "_invoke", "_read_response"),
        *("_read_sock", "_read_socket", "_read_watch_event", "_send_ping", "_send_request", "_server_pinger"),
        *("_submit", "_write", "handler", "logger", "zk_loop"),
    ),
    "Lock": ("create_path", "node"),
}


def missing() -> list[str]:
    """What is used of Kazoo's inside and is not there."""
    client = KazooClient()
    things = (client, getattr(client, "_connection", None), client.Lock("/lock"))
    return [
        f"{owner}.{field}"
        for (owner, fields), thing in zip(_FIELDS.items(), things, strict=True)
        for field in fields
        if not hasattr(thing, field)
    ]


@functools.cache
def check() -> None:
    """:raises ZKException: something is missing; the text names it."""
    lacking = missing()
    if lacking:
        raise ZKException(
            f"Kazoo cannot be used, it lacks {', '.join(lacking)}; install a release that requirements.txt allows"
        )
