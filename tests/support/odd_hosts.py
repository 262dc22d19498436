# SPDX-License-Identifier: Apache-2.0
"""A TCP server on loopback whose every connection is handled by a function: hosts that misbehave."""

from __future__ import annotations

import socket
from collections.abc import Callable

from tests.support.recording_server import SocketServer


class OddHost(SocketServer):
    """Gives each connection to ``behave``. A function that waits should wait for ``ended``."""

    def __init__(self, behave: Callable[[OddHost, socket.socket], None]) -> None:
        super().__init__()
        self._behave = behave

    def serve(self, connection: socket.socket) -> None:
        self._behave(self, connection)


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
