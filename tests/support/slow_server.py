# SPDX-License-Identifier: Apache-2.0
"""A TCP server that answers each connection with given pieces, as slowly and as long as a test wants."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Self

#: Makes the pieces of an answer; called for each request.
Pieces = Callable[[], Iterable[bytes]]


class SlowServer:
    """Reads the head of a request, and a body in chunks, then sends pieces until there are no more or the client goes.

    :param pause: seconds between two pieces.
    :param first: answer to the first request of each connection; the pieces are that to the second. b"" = there is no
        second.
    :param tls: of the server; None = without TLS.
    :param reset: it ends connections with a reset.
    """

    def __init__(
        self,
        pieces: Pieces,
        pause: float = 0.0,
        first: bytes = b"",
        tls: ssl.SSLContext | None = None,
        reset: bool = False,
    ) -> None:
        self._pieces = pieces
        self._first = first
        self._pause = pause
        self._tls = tls
        self._reset = reset
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, name="slow-server")]
        self.connections: list[socket.socket] = []
        #: Answers that ended because the client had gone.
        self.given_up = 0
        #: Connections that it has closed.
        self.closed = 0

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        # Wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            # Clients may keep theirs open. One that is closed already is fine.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._tls is not None:
                # The handshake is made with the first read.
                connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            if self._reset:
                # Nothing lingers: what is closed is reset.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connections.append(connection)
            thread = threading.Thread(target=self._answer, args=(connection,), name="slow-server")
            self._threads.append(thread)
            thread.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self._first:
                    if not _read_head(connection):
                        return
                    connection.sendall(self._first)
                if not _read_head(connection):
                    return
                for piece in self._pieces():
                    connection.sendall(piece)
                    if self._stop.wait(self._pause):
                        return
            except OSError:
                self.given_up += 1
        self.closed += 1


def _read_head(connection: socket.socket) -> bool:
    """The head of a request, and its body if that comes in chunks; False = the client has gone."""
    read, end = b"", b"\r\n\r\n"
    while True:
        head, found, body = read.partition(end)
        # What is left of a body in chunks would be the next head.
        if found and (b"transfer-encoding: chunked" not in head.lower() or body.endswith(b"0" + end)):
            return True
        data = connection.recv(65536)
        if not data:
            return False
        read += data


def drip(text: bytes) -> Iterator[bytes]:
    """A text byte by byte, and its last byte for ever."""
    return itertools.chain((text[i : i + 1] for i in range(len(text))), itertools.repeat(text[-1:]))
