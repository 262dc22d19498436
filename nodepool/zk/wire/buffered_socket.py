# SPDX-License-Identifier: Apache-2.0
"""Connections that read what has come at once, and send together what was given to them one by one.

Kazoo reads the length of a packet, then the packet, and sends one packet at a time. Each of these would be a system
call, and a TLS record, and would give the interpreter away. Packets come and go in groups, so here

* one read takes all that has come, up to `READ_BYTES`;
* what is sent waits until `flush`. `TlsHandler.select` calls it when Kazoo has nothing more to send for the moment.

A connection that breaks in between loses what waits, as it loses what the system had taken: Kazoo reports all requests
without an answer as lost.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
from typing import Any, Final

from nodepool.clock import monotonic

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
