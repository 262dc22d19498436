# SPDX-License-Identifier: Apache-2.0
"""Servers of HTTP on loopback: one that keeps what it is sent, byte by byte, and one that answers slowly."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Self

#: For what comes at once.
DEADLINE_SECONDS = 30.0
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

#: Makes the pieces of an answer; called for each request.
Pieces = Callable[[], Iterable[bytes]]


class Sent(NamedTuple):
    """A request. :param headers: with names in small letters."""

    first: str
    headers: dict[str, str]
    body: bytes


class SocketServer:
    """Accepts connections on loopback until it is left, and serves each in a thread of its own.

    :ivar ended: set when it is left: what waits should wait for it.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        #: Stay open until the client or `serve` closes them.
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, name=f"{type(self).__name__}-{self.port}")]

    def serve(self, connection: socket.socket) -> None:
        """It may raise OSError: the client has gone."""
        raise NotImplementedError

    def prepared(self, connection: socket.socket) -> socket.socket:
        """What is served instead."""
        return connection

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        # Wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self.connections:
            # One that is closed already is fine.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while not self.ended.is_set():
            try:
                connection = self.prepared(self._listener.accept()[0])
            except OSError:
                return
            self.connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), name=self._threads[0].name))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.serve(connection)


class RecordingServer(SocketServer):
    """Keeps what it is sent.

    :param answer: makes the answer to a request; b"" closes the connection without one.
    """

    def __init__(self, answer: Callable[[Sent], bytes] = lambda _: OK) -> None:
        super().__init__()
        self.answer = answer
        self.sent: list[Sent] = []
        self.url = f"http://127.0.0.1:{self.port}"

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while (first := stream.readline().decode().strip()) != "":
                headers = {}
                while (line := stream.readline().decode().strip()) != "":
                    name, _, value = line.partition(": ")
                    headers[name.lower()] = value
                sent = Sent(first, headers, stream.read(int(headers.get("content-length", 0))))
                self.sent.append(sent)
                answer = self.answer(sent)
                if not answer:
                    return
                connection.sendall(answer)


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
