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


class RecordingServer:
    """Connections stay open until the client or the answer closes them.

    :param answer: makes the answer to a request; b"" closes the connection without one.
    """

    def __init__(self, answer: Callable[[Sent], bytes] = lambda _: OK) -> None:
        self.answer = answer
        self.sent: list[Sent] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="recording-server")]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._connections:
            # One that is closed already is fine.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), name="recording-server")
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
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
