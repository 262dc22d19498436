# SPDX-License-Identifier: Apache-2.0
"""How Kazoo connects, wakes its connection thread, and waits: its public interface for handlers (ADR 7).

Kazoo 2.11 forgets to close the socket of an attempt over TLS that fails, so every attempt while ZooKeeper is down costs
a file descriptor until the garbage collector comes. It reads the system's certificates each time, and trusts them. It
waits for a silent server as long as the session lives, so that the session is over before the next one is tried. It
waits for sockets more often than there is anything to wait for, each time with an epoll object of its own, and also for
data that TLS has read already.

First the connections, then what wakes the connection thread, then the handler.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import math
import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.guard import Guard, OnError
from nodepool.zk.connect_failure import ConnectStep

log = logging.getLogger(log_names.ZOOKEEPER)


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

    #: Kazoo's `command` calls these.
    sendall = send

    def getpeername(self) -> Any:
        return self._socket.getpeername()

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


@functools.lru_cache(maxsize=8)
def _context(ca: str, certfile: str, keyfile: str, _changed: tuple[float, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in earlier releases: whoever has a certificate of this CA is ZooKeeper, whatever its name. So it has to be
    # this CA alone: Kazoo takes those of the system too, and thereby the certificate of anybody's web server.
    context.check_hostname = False
    context.load_verify_locations(ca)
    context.load_cert_chain(certfile=certfile, keyfile=keyfile)
    return context


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
            if options.get("use_ssl"):
                self.stage = ConnectStep.TLS_FILES
                files = (options["ca"], options["certfile"], options["keyfile"])
                # A certificate that was renewed is taken with the next connection.
                context = _context(*files, tuple(os.stat(name).st_mtime for name in files))
                self.stage = ConnectStep.HANDSHAKE
                encrypted = TlsSocket(connection, context, options.get("hostname"), timeout)
                self.stage = ConnectStep.SESSION
                return encrypted
        self.stage = ConnectStep.SESSION
        return BufferedSocket(connection, timeout)
