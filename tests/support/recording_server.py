# SPDX-License-Identifier: Apache-2.0
"""An HTTP server that keeps what it is sent, byte by byte, and answers what a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

#: For what comes at once.
DEADLINE_SECONDS = 30.0
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


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
