# SPDX-License-Identifier: Apache-2.0
"""A TCP server on loopback whose every connection is handled by a function: hosts that misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import paramiko

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


_HOST_KEY = paramiko.ECDSAKey.generate()


class _Runs(paramiko.ServerInterface):
    """Lets everyone in, and takes each command. It answers with nothing."""

    def __init__(self) -> None:
        self.runs = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: Any) -> int:
        return paramiko.common.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        self.runs.set()
        return True


def takes_nothing(host: OddHost, connection: socket.socket) -> None:
    """Lets a client run a command, then reads no more, and asks for more answers than the connection can hold."""
    server = _Runs()
    transport = paramiko.Transport(connection)
    transport.add_server_key(_HOST_KEY)
    with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
        transport.start_server(event=threading.Event(), server=server)
        while transport.is_alive() and not server.runs.wait(0.1):
            continue
        # What it returns ends the thread that reads.
        setattr(transport.packetizer, "read_message", host.ended.wait)  # noqa: B010 - mypy allows no other way
        question = paramiko.Message()
        question.add_byte(paramiko.common.cMSG_GLOBAL_REQUEST)
        question.add_string("odd")
        question.add_boolean(True)
        while transport.is_active() and not host.ended.is_set():
            transport._send_user_message(question)  # type: ignore[attr-defined]  # noqa: SLF001 - it wants an answer
    transport.close()
