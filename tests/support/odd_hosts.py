# SPDX-License-Identifier: Apache-2.0
"""A TCP server on loopback whose every connection is handled by a function: hosts that misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


class OddHost:
    """Accepts connections and gives each to ``behave``, one after the other.

    ``connections`` counts them. ``ended`` is set when the host is to end: a function that waits should wait for it.
    """

    def __init__(self, behave: Callable[[OddHost, socket.socket], None], address: str = "127.0.0.1") -> None:
        self._behave = behave
        self.connections = 0
        self.ended = threading.Event()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name=f"OddHost-{self.port}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.ended.set()
        # Wakes accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while not self.ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(OSError):
                self._behave(self, connection)


@contextlib.contextmanager
def odd_host(behave: Callable[[OddHost, socket.socket], None], address: str = "127.0.0.1") -> Iterator[OddHost]:
    """An `OddHost` that runs meanwhile."""
    host = OddHost(behave, address)
    host.start()
    try:
        yield host
    finally:
        host.stop()


def closes(host: OddHost, connection: socket.socket) -> None:
    """Accepts and hangs up."""


def is_silent(host: OddHost, connection: socket.socket) -> None:
    """Accepts and never says a word, until the other side hangs up."""
    while connection.recv(65536):
        continue


def sends_garbage(host: OddHost, connection: socket.socket) -> None:
    """Sends one line without end."""
    while not host.ended.is_set():
        connection.sendall(b"x" * 65536)


def drips(host: OddHost, connection: socket.socket) -> None:
    """Sends one byte at a time, for ever."""
    while not host.ended.wait(0.01):
        connection.sendall(b"x")


def speaks_http(host: OddHost, connection: socket.socket) -> None:
    """Is another kind of server."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def announces_a_huge_packet(host: OddHost, connection: socket.socket) -> None:
    """Starts like SSH, then claims that 4 GiB follow."""
    connection.sendall(b"SSH-2.0-odd\r\n\xff\xff\xff\xff\x04\x14")
    is_silent(host, connection)


def stops_after_banner(host: OddHost, connection: socket.socket) -> None:
    """Sends its SSH identification and nothing else."""
    connection.sendall(b"SSH-2.0-odd\r\n")
    is_silent(host, connection)
