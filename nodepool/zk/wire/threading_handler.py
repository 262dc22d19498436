# SPDX-License-Identifier: Apache-2.0
"""Kazoo's thread handler, with TLS connections that do not leave sockets open.

Kazoo 2.11 forgets to close the socket of an attempt over TLS that fails, so every attempt while ZooKeeper is down
costs a file descriptor until the garbage collector comes. It also reads the system's certificates each time. It waits
for a silent server as long as the session lives, so that the session is over before the next one is tried. And it
makes an epoll object for each wait for a socket, with four system calls where poll needs one, and tables around it:
measured with 2000 requests, that was a quarter of the connection thread's time.
"""

from __future__ import annotations

import functools
import math
import os
import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

from nodepool.guard import OnError

#: So much is asked for at once. A TLS record has no more.
READ_BYTES: Final = 16_384


class TlsSocket(ssl.SSLSocket):
    """A connection for one thread that does not block, and that reads and waits less often than it is asked to.

    Kazoo reads the length of a packet, and then the packet; and before it sends it waits until it may. Each of these is
    a call that gives the interpreter away, for nothing: packets come together, and there is nearly always room.
    """

    #: What was read, and is not asked for yet. `_position`: where it begins.
    _data = b""
    _position = 0
    #: Had the last call of `send` no room?
    full = False

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        position, data = self._position, self._data
        if position == len(data):
            data, position = super().recv(READ_BYTES, flags), 0
            if len(data) <= buflen:
                return data
            self._data = data
        self._position = position + buflen
        return data[position : position + buflen] if self._position < len(data) else self._rest(position)

    def _rest(self, position: int) -> bytes:
        rest = self._data[position:]
        self._data, self._position = b"", 0
        return rest

    def pending(self) -> int:
        """Bytes that can be read without waiting."""
        return len(self._data) - self._position or super().pending()

    def send(self, data: Any, flags: int = 0) -> int:
        self.full = True
        sent = super().send(data, flags)
        self.full = False
        return sent


@functools.lru_cache(maxsize=8)
def _context(ca: str, certfile: str, keyfile: str, _changed: tuple[float, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = TlsSocket
    # As in earlier releases: whoever has a certificate of this CA is ZooKeeper, whatever its name. So it has to be
    # this CA alone: Kazoo takes those of the system too, and thereby the certificate of anybody's web server.
    context.check_hostname = False
    context.load_verify_locations(ca)
    context.load_cert_chain(certfile=certfile, keyfile=keyfile)
    return context


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Used by Kazoo to connect and to wait; the rest is Kazoo's."""

    def __init__(self) -> None:
        super().__init__()
        #: How many servers there are: each has its share of the time in which one must be found.
        self.servers = 1

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _others: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait until one of some sockets is ready; as select() of the standard library, for any number of files.

        A socket with an error counts as ready: whoever uses it is told. So does one with decrypted data that was not
        read yet: several packets may have come in one TLS record, and the system tells of a record once.

        :param timeout: seconds; None = wait for ever.
        """
        if not readers and len(writers) == 1 and isinstance(writers[0], TlsSocket) and not writers[0].full:
            return [], list(writers), []
        # Kazoo asks for itself before it waits for the rest of a packet; each question gives the interpreter away.
        left = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()] if readers[1:] else []
        if left:
            timeout = 0
        poll = select.poll()
        for sockets, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
            for each in sockets:
                poll.register(each, event)
        ready = {number for number, _ in poll.poll(None if timeout is None else math.ceil(timeout * 1000))}
        if not ready and not left:
            return [], [], []
        return [s for s in readers if s.fileno() in ready or s in left], [s for s in writers if s.fileno() in ready], []

    def create_connection(self, address: tuple[str, int], **options: Any) -> socket.socket:
        """Connect to one server; blocks. Raises OSError."""
        options["timeout"] /= self.servers
        if not options.get("use_ssl"):
            plain: socket.socket = super().create_connection(address, **options)
            return plain
        files = (options["ca"], options["certfile"], options["keyfile"])
        # A certificate that was renewed is taken with the next connection.
        context = _context(*files, tuple(os.stat(name).st_mtime for name in files))
        connection = socket.create_connection(address, options["timeout"])
        with OnError(lambda _: connection.close()):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(connection, server_hostname=options.get("hostname"))
