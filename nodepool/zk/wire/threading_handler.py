# SPDX-License-Identifier: Apache-2.0
"""Kazoo's thread handler, with connections and waits that cost less, and that do not leave sockets open.

Kazoo 2.11 forgets to close the socket of an attempt over TLS that fails, so every attempt while ZooKeeper is down costs
a file descriptor until the garbage collector comes. It also reads the system's certificates each time. It waits for a
silent server as long as the session lives, so that the session is over before the next one is tried. And it waits for
sockets more often than there is anything to wait for, each time with an epoll object of its own. First the connections,
then what wakes the connection thread, then the handler.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import select
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.guard import Guard, OnError
from nodepool.zk.connect_failure import ConnectStep

# Connections that read what has come at once, and send together what was given to them one by one.
#
# Kazoo reads the length of a packet, then the packet, and sends one packet at a time. Each of these would be a system
# call, and a TLS record, and would give the interpreter away. Packets come and go in groups, so in this part
#
# * one read takes all that has come, up to `READ_BYTES`;
# * what is sent waits until `flush`. `TlsHandler.select` calls it when Kazoo has nothing more to send for the moment.
#
# A connection that breaks in between loses what waits, as it loses what the system had taken: Kazoo reports all
# requests without an answer as lost.

#: So much is read at once.
READ_BYTES: Final = 65_536
#: `send` takes no more when so much waits.
MOST_WAITING_BYTES: Final = 65_536
#: Stands in front of each packet (zookeeper.jute).
_LENGTH: Final = struct.Struct("!i")
#: What a TLS record holds at most.
_RECORD_BYTES: Final = 16_384


class BufferedSocket:
    """A connection without TLS; for one thread.

    :param connection: is connected.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        #: What was read, and is not asked for yet. `_position`: where it begins.
        self._data = b""
        self._position = 0
        #: Why nothing more can be read: b"" = the other end closed the connection.
        self._end: bytes | Exception | None = None
        #: What was given to `send`, and what of that the system had no room for, as it goes over the network.
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._unsent: bytes | memoryview = b""
        #: Until this time, in monotonic seconds, what comes is left to the system: see `TlsHandler.select`.
        self.gathers_until = float("-inf")

    # -- read --

    def readable(self) -> bool:
        """Does `recv` return, or raise, something without asking the system?"""
        return self._position < len(self._data) or self._end is not None

    def pending(self) -> int:
        """Bytes that can be read without asking the system."""
        return len(self._data) - self._position

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """:raises ssl.SSLWantReadError: nothing has come (the name under which Kazoo knows this)."""
        position, data = self._position, self._data
        if position == len(data):
            while not self.readable():
                self.fill()
                if not self.readable() and self._socket.gettimeout() == 0:
                    raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "nothing to read")
            position, data = self._position, self._data
            if position == len(data):
                if isinstance(self._end, Exception):
                    raise self._end
                return b""
        self._position = position + buflen
        if self._position < len(data):
            return data[position : self._position]
        self._data, self._position = b"", 0
        return data[position:] if position else data

    def packet(self) -> bytes | None:
        """The next packet of ZooKeeper, without its length. None = it has not been read as a whole."""
        data, position = self._data, self._position
        begin = position + _LENGTH.size
        if len(data) < begin:
            return None
        (length,) = _LENGTH.unpack_from(data, position)
        end = begin + length
        if length < 0 or len(data) < end:
            return None
        if end < len(data):
            self._position = end
        else:
            self._data, self._position = b"", 0
        return data[begin:end]

    def fill(self) -> None:
        """Take what has come. Blocks only if the socket does. An error is kept until what came before it is read."""
        try:
            received = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end = error
            return
        data = self._decode(received) if received else b""
        if data:
            self._data = self._data[self._position :] + data
            self._position = 0
        if not received and self._end is None:
            self._end = b""

    def fail(self, error: OSError) -> None:
        """Who reads is told of an error, behind what was read before."""
        if self._end is None:
            self._end = error

    def _decode(self, received: bytes) -> bytes:
        return received

    # -- send --

    def send(self, data: Any, flags: int = 0) -> int:
        """Takes all or nothing; `flush` sends it.

        :raises ssl.SSLWantWriteError: too much waits (the name under which Kazoo knows this).
        """
        if not self.has_room:
            raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, "no room to send")
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        return len(data)

    @property
    def has_room(self) -> bool:
        """Does `send` take anything?"""
        return self._waiting_bytes < MOST_WAITING_BYTES

    @property
    def idle(self) -> bool:
        """Is nothing left to be sent?"""
        return not self._waiting and not self._unsent

    @property
    def unsent(self) -> bool:
        """Did the system have no room for something?"""
        return bool(self._unsent)

    def sendall(self, data: Any) -> None:
        """Send at once; blocks."""
        self._waiting.append(data)
        while not self.flush():
            select.select([], [self._socket], [])

    def flush(self) -> bool:
        """Send what waits. Does not block. False = the system has no room for all of it. Raises OSError."""
        while self._unsent or self._waiting:
            if not self._unsent:
                data = b"".join(self._waiting)
                self._waiting, self._waiting_bytes = [], 0
                self._unsent = self._encode(data)
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = memoryview(self._unsent)[sent:] if sent < len(self._unsent) else b""
        return True

    def _encode(self, data: bytes) -> bytes:
        return data

    # -- as any other socket --

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(bool(flag))

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> BufferedSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TlsSocket(BufferedSocket):
    """A connection with TLS. TLS itself works in memory, so that it neither reads record by record nor waits.

    :param server_hostname: told to the server.
    :param timeout: seconds for the handshake, which the constructor makes. It raises OSError.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, server_hostname: str | None, timeout: float
    ) -> None:
        super().__init__(connection)
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
                    # The server is told, too, what is wrong.
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
        incoming, read = self._incoming, self._tls.read
        incoming.write(received)
        parts = []
        try:
            while incoming.pending:
                part = read(_RECORD_BYTES)
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
            # TLS has something to say of itself, e.g. new keys.
            self._unsent = bytes(self._unsent) + self._outgoing.read()
        return b"".join(parts)

    def _encode(self, data: bytes) -> bytes:
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]
        return self._outgoing.read()


# By which Kazoo wakes its connection thread, with a system call only when that thread sleeps.
#
# For each request Kazoo sends a byte through a pair of sockets, and its connection thread reads it: two system calls
# that give the interpreter away. And a pair of sockets holds some 280 bytes: a thread that sends one more waits until
# the connection thread has read some, which that thread itself can never do. This part only counts the bytes.
#
# While the connection thread sleeps another thread may use its connection: to wake it costs more than to send a
# request.


class WakeReader:
    """The connection thread's end."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        #: One for each byte that was sent and not read; operations of a deque are atomic.
        self.sent: deque[None] = deque()
        #: Is the connection thread about to wait for sockets, or waiting? Then a byte goes through the socket, too.
        #: Whoever sets this asks `readable` afterwards: a byte may have been counted just before.
        self.asleep = False
        #: Does the connection thread use nothing of its connection? Ends under `_use` only.
        self._resting = False
        self._use = threading.Lock()

    def readable(self) -> bool:
        """Was a byte sent?"""
        return bool(self.sent)

    def recv(self, buflen: int = 1, flags: int = 0) -> bytes:
        """Reads one byte. :raises BlockingIOError: none was sent."""
        try:
            self.sent.popleft()
        except IndexError:
            raise BlockingIOError("nothing was sent") from None
        return b"\0"

    def rest(self) -> None:
        """The connection thread is about to sleep: until `resume` it uses nothing of its connection."""
        self._resting = self.asleep = True

    def resume(self) -> None:
        """The connection thread goes on, after the end of a `borrow`."""
        self.asleep = False
        with self._use:
            self._resting = False

    def borrow(self) -> bool:
        """Another thread may use the connection until `give_back`. Does not block; False = its thread is at work."""
        if not self._use.acquire(blocking=False):
            return False
        if self._resting:
            return True
        self._use.release()
        return False

    def give_back(self) -> None:
        """Ends what `borrow` began."""
        self._use.release()

    def drain(self) -> None:
        """Take what came through the socket. Does not block."""
        with contextlib.suppress(BlockingIOError):
            self._socket.recv(4096)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class WakeWriter:
    """The end of everybody else; any thread."""

    def __init__(self, connection: socket.socket, reader: WakeReader) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._reader = reader

    def send(self, data: bytes, flags: int = 0) -> int:
        """Sends one byte; does not block. :raises OSError: it is closed."""
        if self._socket.fileno() < 0:
            raise OSError("closed")
        reader = self._reader
        reader.sent.append(None)
        self.wake()
        return 1

    def wake(self) -> None:
        """The connection thread looks at its connection again, if it sleeps. Does not block; raises OSError."""
        if self._reader.asleep:
            self._reader.asleep = False
            # A full socket wakes it all the same.
            with contextlib.suppress(BlockingIOError):
                self._socket.send(b"\0")

    def close(self) -> None:
        self._socket.close()


def wake_pair() -> tuple[WakeReader, WakeWriter]:
    """As `socket.socketpair`, for one reader."""
    ours, theirs = socket.socketpair()
    reader = WakeReader(ours)
    return reader, WakeWriter(theirs, reader)


Readable = BufferedSocket | WakeReader

log = logging.getLogger(log_names.ZOOKEEPER)


@functools.lru_cache(maxsize=8)
def _context(ca: str, certfile: str, keyfile: str, _changed: tuple[float, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in earlier releases: whoever has a certificate of this CA is ZooKeeper, whatever its name. So it has to be
    # this CA alone: Kazoo takes those of the system too, and thereby the certificate of anybody's web server.
    context.check_hostname = False
    context.load_verify_locations(ca)
    context.load_cert_chain(certfile=certfile, keyfile=keyfile)
    return context


def _milliseconds(seconds: float) -> int | None:
    """For poll(). None = for ever."""
    return None if seconds == math.inf else max(0, math.ceil(seconds * 1000))


class _Sockets:
    """A connection, and maybe what wakes its thread, with what waits for them."""

    __slots__ = ("connection", "poll", "readers", "wake", "wake_number", "wake_poll")

    def __init__(self, readers: Sequence[Readable]) -> None:
        self.readers = list(readers)
        (self.connection,) = (each for each in readers if isinstance(each, BufferedSocket))
        self.wake = next((each for each in readers if isinstance(each, WakeReader)), None)
        self.wake_number = -1 if self.wake is None else self.wake.fileno()
        self.poll = self._make_poll(select.POLLIN)
        #: For a connection that gathers what comes.
        self.wake_poll = self._make_poll(None)

    def _make_poll(self, events: int | None) -> Any:
        """:param events: of the connection; None = it is not waited for."""
        poll = select.poll()
        if events is not None:
            poll.register(self.connection, events)
        if self.wake is not None:
            poll.register(self.wake_number, select.POLLIN)
        return poll

    def poll_to_send(self) -> Any:
        """For a connection that has something to send for which there was no room."""
        return self._make_poll(select.POLLIN | select.POLLOUT)


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Used by Kazoo to connect, to wake its connection thread, and to wait; the rest is Kazoo's."""

    def __init__(self) -> None:
        super().__init__()
        #: How many servers there are: each has its share of the time in which one must be found.
        self.servers = 1
        #: How far the last attempt to connect came.
        self.stage = ConnectStep.CONNECT
        #: What was waited for the last time.
        self._sockets: _Sockets | None = None

    def dispatch_callback(self, callback: Any) -> None:
        """Have a watch function called in Kazoo's thread, by which waiting for locks ends, too. Does not block."""

        def call() -> None:
            # It may be a driver's: not even its sys.exit() ends the thread.
            with Guard(log, "Error in a function that watches ZooKeeper"):
                callback.func(*callback.args)

        self.callback_queue.put(call)

    def create_socket_pair(self) -> tuple[WakeReader, WakeWriter]:
        return wake_pair()

    def select(
        self,
        readers: Sequence[Readable],
        writers: Sequence[BufferedSocket],
        _others: Sequence[object],
        timeout: float | None = None,
    ) -> tuple[list[Readable], list[BufferedSocket], list[object]]:
        """Wait until a connection or calls can be read, or until a connection has room; see select() of the system.

        A socket with an error counts as ready: whoever uses it is told. So does one with data that was read and not
        asked for yet. What a connection has still to send is sent before anybody waits, and as soon as nobody has
        anything to add for the moment. A connection that gathers what comes is not ready before it is told that there
        is something to send, or the time is over. Raises OSError.

        :param readers: one connection, and maybe what wakes its thread; or ``writers``: one connection.
        :param timeout: seconds; None = wait for ever.
        """
        deadline = math.inf if timeout is None else monotonic() + timeout
        if writers:
            (connection,) = writers
            return [], [connection] if self._wait_for_room(connection, deadline) else [], []
        sockets = self._sockets
        if sockets is None or sockets.readers != readers:
            sockets = self._sockets = _Sockets(readers)
        return self._wait_to_read(sockets, deadline), [], []

    def _wait_for_room(self, connection: BufferedSocket, deadline: float) -> bool:
        if not connection.has_room:
            connection.flush()
        while not connection.has_room and (left := deadline - monotonic()) > 0:
            poll = select.poll()
            poll.register(connection, select.POLLOUT)
            poll.poll(_milliseconds(left))
            connection.flush()
        return connection.has_room

    def _wait_to_read(self, sockets: _Sockets, deadline: float) -> list[Readable]:
        connection, wake = sockets.connection, sockets.wake
        adds = wake is not None and wake.readable()
        if not adds or not connection.has_room:
            connection.flush()
            if adds:
                # While there is always something to send, now and then a look at what has come.
                self._wait(sockets, monotonic())
            elif not connection.readable():
                self._wait(sockets, deadline)
        return [each for each in sockets.readers if each.readable()]

    def _wait(self, sockets: _Sockets, deadline: float) -> None:
        """Wait until there is something to read, and take what the system has; go on with what is to be sent."""
        connection, wake = sockets.connection, sockets.wake
        while True:
            poll, until = sockets.poll, deadline
            if connection.unsent:
                poll = sockets.poll_to_send()
            elif wake is not None and monotonic() < connection.gathers_until:
                poll, until = sockets.wake_poll, min(deadline, connection.gathers_until)
            if wake is not None:
                wake.rest()
            try:
                # A call may have come just before.
                now = wake is not None and wake.readable()
                found = poll.poll(0 if now else _milliseconds(until - monotonic()))
            finally:
                if wake is not None:
                    wake.resume()
            for number, _ in found:
                if wake is not None and number == sockets.wake_number:
                    wake.drain()
                else:
                    connection.flush()
                    connection.fill()
            if connection.readable() or (wake is not None and wake.readable()) or monotonic() >= deadline:
                return

    def create_connection(self, address: tuple[str, int], **options: Any) -> BufferedSocket:
        """Connect to one server; blocks. Raises OSError."""
        timeout = options["timeout"] / self.servers
        self.stage = ConnectStep.CONNECT
        connection = socket.create_connection(address, timeout)
        with OnError(lambda _: connection.close()):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not options.get("use_ssl"):
                self.stage = ConnectStep.SESSION
                return BufferedSocket(connection)
            self.stage = ConnectStep.TLS_FILES
            files = (options["ca"], options["certfile"], options["keyfile"])
            # A certificate that was renewed is taken with the next connection.
            context = _context(*files, tuple(os.stat(name).st_mtime for name in files))
            self.stage = ConnectStep.HANDSHAKE
            encrypted = TlsSocket(connection, context, options.get("hostname"), timeout)
            self.stage = ConnectStep.SESSION
            return encrypted
