# SPDX-License-Identifier: Apache-2.0
"""`nodepool.zk.wire` with a Kazoo that lacks something, and with a server of our own that no real one is like."""

from __future__ import annotations

import logging
import socket
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import kazoo.client
import kazoo.protocol.connection
import kazoo.protocol.serialization
import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import WatchedEvent

import nodepool.zk
from nodepool.exceptions import ZKException, ZKTooLarge
from nodepool.zk import wire
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import KazooLog, Reply
from nodepool.zk.paths import MOST_BYTES
from nodepool.zk.wire import MultiRead, WatchedClient, check, missing
from tests.support.wait import DEADLINE_SECONDS, wait_for

#: To a ping, which Kazoo sends when nothing else is sent.
PONG = struct.pack("!iiqi", 16, -2, 0, 0)


# -- a Kazoo that lacks what is used of its inside (ADR 1)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """The check is made once in a process."""
    check.cache_clear()
    yield
    check.cache_clear()


@pytest.mark.usefixtures("unchecked")
def test_names_of_kazoo(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named before anything is tried with it."""
    assert missing() == []
    handler = kazoo.protocol.connection.ConnectionHandler
    monkeypatch.delattr(handler, "_send_ping")
    monkeypatch.delattr(handler, "_read_response")
    monkeypatch.delattr(kazoo.client.KazooClient, "_call")
    lacks = {"KazooClient._call", "ConnectionHandler._send_ping", "ConnectionHandler._read_response"}
    assert set(missing()) == lacks
    with pytest.raises(ZKException, match=r"Kazoo cannot be used, it lacks KazooClient\._call, .*requirements\.txt"):
        ZooKeeperClient("127.0.0.1:1").connect(1)
    monkeypatch.delattr(kazoo.protocol.serialization, "CheckVersion")
    monkeypatch.delitem(sys.modules, "nodepool.zk.wire")
    monkeypatch.delattr(nodepool.zk, "wire")
    with pytest.raises(ZKException, match=r"Kazoo cannot be used: cannot import name 'CheckVersion'"):
        ZooKeeperClient("127.0.0.1:1").connect(1)


@pytest.mark.parametrize(
    ("connected", "line", "level"),
    [
        *(
            (False, line, "DEBUG")
            for line in ("Connection dropped: %s", "Connection time-out: %s", "Cannot resolve %s")
        ),
        (True, "Connection dropped: %s", "WARNING"),
        (False, "Session has expired%s", "WARNING"),
    ],
)
def test_log_of_kazoo(connected: bool, line: str, level: str, caplog: pytest.LogCaptureFixture) -> None:
    """J-4: why a connection that was there broke, and what has another cause, stays a warning."""
    caplog.set_level(logging.DEBUG, "test.kazoo")
    log = KazooLog(logging.getLogger("test.kazoo"), lambda: connected)
    log.warning(line, "refused")
    log.info("Connection dropped: but not as a warning")
    assert [record.levelname for record in caplog.records] == [level, "INFO"]


# -- what no server should answer, and what cannot be sent, ends no more than its connection: Kazoo's thread stays


def session(seconds: float = DEADLINE_SECONDS, password: bytes | None = bytes(16), *, read_only: bool = False) -> bytes:
    """Protocol, timeout in ms, session, password."""
    secret = struct.pack("!i", -1) if password is None else struct.pack("!i", len(password)) + password
    return struct.pack("!iiq", 0, int(seconds * 1000), 1) + secret + bytes([read_only])


class Server:
    """Takes connections of clients, one after the other."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(DEADLINE_SECONDS)
        self.port: int = self.listening.getsockname()[1]

    def accept(self) -> socket.socket:
        connection, _ = self.listening.accept()
        connection.settimeout(DEADLINE_SECONDS)
        return connection

    def welcome(self, answer: bytes | None = None) -> socket.socket:
        """Take a connection, and make its session."""
        connection = self.accept()
        assert connection.recv(1000)
        answer = session() if answer is None else answer
        connection.sendall(struct.pack("!i", len(answer)) + answer)
        return connection


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.listening.close()


@pytest.fixture
def client(server: Server) -> Iterator[WatchedClient]:
    made = WatchedClient(f"127.0.0.1:{server.port}", timeout=DEADLINE_SECONDS, longest_pause=0.1, read_only=True)
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


@pytest.mark.parametrize(("answer", "words"), [((7, 1, 0), "type 7"), ((4, 0, -1), "no end")])
def test_odd_answers_to_many_reads(answer: tuple[int, int, int], words: str) -> None:
    kind, error, length = answer
    with pytest.raises(ValueError, match=words):
        MultiRead.deserialize(struct.pack("!i?ii", kind, False, error, length) + bytes(68), 0)


#: Empty, too short, of a negative length, and to a request that was never made.
ODD = [b"\0\0\0\0", b"\0\0\0\x03odd", b"\xff\xff\xff\xff", struct.pack("!iiqi", 16, 4711, 1, 0)]


@pytest.mark.parametrize("packet", [*ODD, None])
def test_connects_again(server: Server, client: WatchedClient, connection: socket.socket, packet: bytes | None) -> None:
    """Also when Kazoo has taken a call from its list before it finds out: its caller has an answer all the same."""
    reply = client.call(client.operations.get("/a"), Reply())
    _, xid = struct.unpack("!ii", connection.recv(1000)[:8])
    connection.sendall(struct.pack("!iiqi", 16, xid, 1, -4711) if packet is None else packet)
    # An answer to another call is an error of its own.
    with pytest.raises((ConnectionLoss, RuntimeError)):
        reply.get(DEADLINE_SECONDS)
    with server.welcome():
        wait_for("it is connected again", lambda: client.connected)


def test_call_that_cannot_be_sent(client: WatchedClient, connection: socket.socket) -> None:
    """Its caller has an error, and the connection stays."""
    for request, error in [
        (client.operations.set("/a", b"", 2**40), struct.error),
        (client.operations.set("/a", bytes(MOST_BYTES), 0), ZKTooLarge),
    ]:
        with pytest.raises(error):
            client.call(request, Reply()).get(DEADLINE_SECONDS)
    client.call(client.operations.get("/a"), Reply())
    assert b"/a" in connection.recv(1000)


def test_events_do_not_delay_calls(
    client: WatchedClient, connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that come one after the other are handled together; a call ends that wait, and is answered."""
    monkeypatch.setattr(wire, "GATHER_SECONDS", 100 * DEADLINE_SECONDS)
    events: SimpleQueue[WatchedEvent] = SimpleQueue()
    for path in ("/a", "/b"):
        reply = client.exists_async(path, watch=events.put)
        _, xid = struct.unpack("!ii", connection.recv(1000)[:8])
        connection.sendall(struct.pack("!iiqi", 16, xid, 1, -101))
        assert reply.get(DEADLINE_SECONDS) is None
    for path in ("/a", "/b"):
        connection.sendall(struct.pack("!iiqiiii2s", 30, -1, 1, 0, 3, 3, 2, path.encode()))
        assert events.get(timeout=DEADLINE_SECONDS).path == path
        call = client.call(client.operations.sync("/"), Reply())
        _, xid = struct.unpack("!ii", connection.recv(1000)[:8])
        connection.sendall(struct.pack("!iiqii1s", 21, xid, 1, 0, 1, b"/"))
        assert call.get(DEADLINE_SECONDS) == "/"


@pytest.mark.parametrize("name", ["zk2..example.com", f"{'a' * 64}.example.com", "zk\0"])
def test_names_that_cannot_be_resolved(
    server: Server, client: WatchedClient, connection: socket.socket, name: str
) -> None:
    """They are no different from those that are unknown: other servers are tried."""
    client.set_hosts(f"{name}:2281,127.0.0.1:{server.port}")
    connection.shutdown(socket.SHUT_RDWR)
    with server.welcome():
        wait_for("it is connected again", lambda: client.connected)


def test_server_that_only_reads(server: Server, client: WatchedClient, other_end: ThreadPoolExecutor) -> None:
    """It is used until it ends the connection."""
    first = other_end.submit(server.welcome, session(1.0, read_only=True))
    client.start(DEADLINE_SECONDS)
    with first.result() as connection:
        for _ in range(2):
            assert connection.recv(1000)
            connection.sendall(PONG)
    with server.welcome():
        wait_for("it is connected again", lambda: client.connected)


def test_session_without_a_password(server: Server, client: WatchedClient, other_end: ThreadPoolExecutor) -> None:
    """It could never be used again."""
    refused = other_end.submit(server.welcome, session(password=None))
    client.start_async()
    with refused.result(), server.welcome():
        wait_for("there is a session", lambda: client.connected)
