# SPDX-License-Identifier: Apache-2.0
"""Answers that no server gives end their connection, and nothing else: Kazoo's thread would not come back."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.zk.wire.watched_client import WatchedClient, make
from tests.support.wait import DEADLINE_SECONDS

#: Protocol, timeout in ms, session, length of the password.
WELCOME = struct.pack("!iiqi", 0, 30_000, 1, 16) + bytes(16) + b"\0"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(DEADLINE_SECONDS)
        yield listening


@pytest.fixture
def client(server: socket.socket) -> Iterator[WatchedClient]:
    hosts = f"127.0.0.1:{server.getsockname()[1]}"
    made = make(hosts, timeout=DEADLINE_SECONDS, longest_pause=0.1, tls=None)
    yield made
    made.stop()
    made.close()


def welcome(server: socket.socket) -> socket.socket:
    """Take a connection, and make its session."""
    connection, _ = server.accept()
    connection.settimeout(DEADLINE_SECONDS)
    assert connection.recv(1000)
    connection.sendall(struct.pack("!i", len(WELCOME)) + WELCOME)
    return connection


@pytest.mark.parametrize(
    "packet",
    [
        b"\0\0\0\0",
        b"\0\0\0\x03odd",
        b"\xff\xff\xff\xff",
        # To a request that nobody made.
        struct.pack("!iiqi", 16, 4711, 1, 0),
    ],
    ids=["empty", "short", "negative length", "answer to nothing"],
)
def test_connects_again(server: socket.socket, client: WatchedClient, packet: bytes) -> None:
    with ThreadPoolExecutor(1) as other_end:
        first = other_end.submit(welcome, server)
        client.start(DEADLINE_SECONDS)
        with first.result() as connection:
            connection.sendall(packet)
            with other_end.submit(welcome, server).result() as again:
                again.shutdown(socket.SHUT_RDWR)
