# SPDX-License-Identifier: Apache-2.0
"""A TCP server that answers each connection with given pieces, as slowly and as long as a test wants."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator

from tests.support.recording_server import SocketServer

#: Makes the pieces of an answer; called for each request.
Pieces = Callable[[], Iterable[bytes]]


class SlowServer(SocketServer):
    """Reads the head of a request, and a body in chunks, then sends pieces until there are no more or the client goes.

    :param pause: seconds between two pieces.
    :param first: answer to the first request of each connection; the pieces are that to the second. b"" = there is no
        second.
    :param tls: of the server; None = without TLS.
    """

    def __init__(
        self, pieces: Pieces, pause: float = 0.0, first: bytes = b"", tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__()
        self._pieces = pieces
        self._first = first
        self._pause = pause
        self._tls = tls
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def prepared(self, connection: socket.socket) -> socket.socket:
        if self._tls is None:
            return connection
        # The handshake is made with the first read.
        return self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def serve(self, connection: socket.socket) -> None:
        if self._first:
            if not _read_head(connection):
                return
            connection.sendall(self._first)
        if not _read_head(connection):
            return
        for piece in self._pieces():
            connection.sendall(piece)
            if self.ended.wait(self._pause):
                return


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
