# SPDX-License-Identifier: Apache-2.0
"""What no server should answer, and what nobody can send, ends no more than its connection: Kazoo's thread stays."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from nodepool.exceptions import ZKTooLarge
from nodepool.zk.paths import MOST_BYTES
from nodepool.zk.reply import Reply
from nodepool.zk.wire.watched_client import WatchedClient, make
from tests.support.wait import DEADLINE_SECONDS, wait_for

#: To a ping, which Kazoo sends when nothing else is sent.
PONG = struct.pack("!iiqi", 16, -2, 0, 0)


def session(seconds: float = DEADLINE_SECONDS, password: bytes | None = bytes(16), *, read_only: bool = False) -> bytes:
    """Protocol, timeout in ms, session, password."""
    text = struct.pack("!i", -1) if password is None else struct.pack("!i", len(password)) + password
    return struct.pack("!iiq", 0, int(seconds * 1000), 1) + text + bytes([read_only])


class Server:
    """Takes connections of clients, one after the other."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(DEADLINE_SECONDS)
        self.port: int = self._listening.getsockname()[1]

    def accept(self) -> socket.socket:
        connection, _ = self._listening.accept()
        connection.settimeout(DEADLINE_SECONDS)
        return connection

    def welcome(self, text: bytes | None = None) -> socket.socket:
        """Take a connection, and make its session."""
        connection = self.accept()
        assert connection.recv(1000)
        text = session() if text is None else text
        connection.sendall(struct.pack("!i", len(text)) + text)
        return connection

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def make_server() -> Iterator[Callable[[], Server]]:
    made: list[Server] = []

    def new() -> Server:
        made.append(Server())
        return made[-1]

    yield new
    for each in made:
        each.close()


@pytest.fixture
def server(make_server: Callable[[], Server]) -> Server:
    return make_server()


@pytest.fixture
def client(server: Server) -> Iterator[WatchedClient]:
    made = make(f"127.0.0.1:{server.port}", timeout=DEADLINE_SECONDS, longest_pause=0.1, tls=None, read_only=True)
    made.randomize_hosts = False
    yield made
    made.stop()
    made.close()


@pytest.fixture
def other_end() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def connection(server: Server, client: WatchedClient, other_end: ThreadPoolExecutor) -> Iterator[socket.socket]:
    """The server's end of a connection with a session."""
    first = other_end.submit(server.welcome)
    client.start(DEADLINE_SECONDS)
    with first.result() as made:
        yield made


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
def test_connects_again(server: Server, connection: socket.socket, packet: bytes) -> None:
    connection.sendall(packet)
    server.welcome().close()


def test_session_without_a_password(server: Server, client: WatchedClient, other_end: ThreadPoolExecutor) -> None:
    """It could never be used again."""
    refused = other_end.submit(server.welcome, session(password=None))
    client.start_async()
    with refused.result(), server.welcome():
        wait_for("there is a session", lambda: client.connected)


def test_error_that_nobody_foresaw(
    server: Server, client: WatchedClient, connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged, calls have an answer, and the next connection is made."""

    def broken(*_: Any) -> Any:
        monkeypatch.undo()
        raise Exception("broken")

    monkeypatch.setattr(client._connection, "_handle", broken)
    reply = client.call(client.operations.get("/a"), Reply())
    connection.sendall(PONG)
    server.welcome().close()
    with pytest.raises(ConnectionLoss):
        reply.get(DEADLINE_SECONDS)


def test_answer_that_ends_in_an_error(server: Server, client: WatchedClient, connection: socket.socket) -> None:
    """Kazoo has taken it from its list when it finds out: who waits for it would wait for ever."""
    reply = client.call(client.operations.get("/a"), Reply())
    _, xid = struct.unpack("!ii", connection.recv(1000)[:8])
    connection.sendall(struct.pack("!iiqi", 16, xid, 1, -4711))
    with pytest.raises(ConnectionLoss):
        reply.get(DEADLINE_SECONDS)
    server.welcome().close()


@pytest.mark.parametrize("queued", [False, True])
def test_call_that_cannot_be_sent(
    client: WatchedClient, connection: socket.socket, monkeypatch: pytest.MonkeyPatch, queued: bool
) -> None:
    """Who makes it is told, and the connection stays."""
    if queued:
        monkeypatch.setattr(client._connection, "send_now", lambda *_: False)
    for request, error in [
        (client.operations.set("/a", b"", 2**40), struct.error),
        (client.operations.set("/a", bytes(MOST_BYTES), 0), ZKTooLarge),
    ]:
        reply = client.call(request, Reply())
        with pytest.raises(error):
            reply.get(DEADLINE_SECONDS)
    client.call(client.operations.get("/a"), Reply())
    assert b"/a" in connection.recv(1000)


@pytest.mark.parametrize("name", ["zk2..example.com", f"{'a' * 64}.example.com", "zk\0"])
def test_names_that_cannot_be_resolved(
    server: Server, client: WatchedClient, connection: socket.socket, name: str
) -> None:
    """They are no different from those that are unknown: other servers are tried."""
    client.set_hosts(f"{name}:2281,127.0.0.1:{server.port}")
    connection.shutdown(socket.SHUT_RDWR)
    with server.welcome():
        wait_for("it is connected again", lambda: client.connected)


def test_server_that_only_reads(
    make_server: Callable[[], Server], server: Server, client: WatchedClient, other_end: ThreadPoolExecutor
) -> None:
    """With each ping a server is asked whether it writes, too; then that one is used."""
    writes = make_server()
    client.set_hosts(f"zk2..example.com:1,127.0.0.1:{server.port},localhost:{writes.port}")

    def asked(place: Server, answer: bytes) -> None:
        with place.accept() as connection:
            assert connection.recv(1000) == b"isro"
            connection.sendall(answer)

    first = other_end.submit(server.welcome, session(1.0, read_only=True))
    client.start(DEADLINE_SECONDS)
    with first.result() as connection:
        others = other_end.submit(asked, server, b"ro"), other_end.submit(asked, writes, b"rw")
        # It ends when the other server is known.
        while connection.recv(1000):
            connection.sendall(PONG)
        assert [other.result() for other in others] == [None, None]
    with writes.welcome():
        wait_for("it is connected again", lambda: client.connected)
