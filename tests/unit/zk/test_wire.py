# SPDX-License-Identifier: Apache-2.0
"""`nodepool.zk.wire` with sockets of our own: bytes of operations, and what no server should answer."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kazoo.client
import kazoo.protocol.connection
import kazoo.protocol.serialization
import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.serialization import Transaction
from kazoo.protocol.states import EVENT_TYPE_MAP, EventType

from nodepool.exceptions import ZKException, ZKTooLarge
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.paths import MOST_BYTES
from nodepool.zk.reply import CHANGED, CREATED, DELETED, Reply
from nodepool.zk.wire.compatibility import TESTED_RELEASES, check, missing
from nodepool.zk.wire.threading_handler import BufferedSocket, TlsHandler, TlsSocket, wake_pair
from nodepool.zk.wire.watched_client import PASSED_ON, AddWatch, KazooLog, MultiRead, Operations, WatchedClient, make
from tests.support.certificates import make_certificates
from tests.support.wait import DEADLINE_SECONDS, wait_for

#: To a ping, which Kazoo sends when nothing else is sent.
PONG = struct.pack("!iiqi", 16, -2, 0, 0)
STAT = struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
MAKE = Operations("/root")


# -- operations, byte for byte


def text(value: str) -> bytes:
    return struct.pack("!i", len(value)) + value.encode()


def head(kind: int, done: bool = False, error: int = -1) -> bytes:
    return struct.pack("!i?i", kind, done, error)


END = head(-1, True)
WRITES = [MAKE.create("/a", b"data", 3), MAKE.delete("/b", 4), MAKE.set("/d", b"other", 6)]


def test_answers_to_reads() -> None:
    """Each for itself: data with its stat, names, or an error; what ends without an end is none."""
    found = head(4, error=0) + text("data") + STAT
    names = head(8, error=0) + struct.pack("!i", 2) + text("x") + text("y")
    lost = head(-1, error=-101) + struct.pack("!i", -101)
    nothing = head(4, error=0) + struct.pack("!i", -1) + STAT
    data, children, error, empty = MultiRead.deserialize(b"head" + found + names + lost + nothing + END, 4)
    assert (data[0], data[1].mzxid, data[1].version, data[1].numChildren) == (b"data", 2, 5, 10)
    assert (children, type(error), empty[0]) == (["x", "y"], NoNodeError, None)
    for odd, words in ((head(7) + END, "type 7"), (nothing, "no end")):
        with pytest.raises(ValueError, match=words):
            MultiRead.deserialize(odd, 0)


def test_kinds() -> None:
    """What the leader has to see; and events have ZooKeeper's numbers."""
    assert {one.type for one in [*WRITES, MAKE.sync("/a"), MAKE.transaction(WRITES)]} == PASSED_ON
    assert {MAKE.get("/a").type, MAKE.reads([]).type, AddWatch("/a").type}.isdisjoint(PASSED_ON)
    assert all(one.path.startswith("/root/") for one in WRITES)
    assert MAKE.transaction(WRITES).serialize() == Transaction(WRITES).serialize(), "what Kazoo makes of it"
    expected = [EventType.CREATED, EventType.CHANGED, EventType.DELETED]
    assert [EVENT_TYPE_MAP[kind] for kind in (CREATED, CHANGED, DELETED)] == expected


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
    monkeypatch.delattr(kazoo.protocol.serialization, "CheckVersion")
    monkeypatch.setattr(handler, "_send_ping", lambda self: None)
    monkeypatch.delattr(handler, "_read_header")
    monkeypatch.delattr(kazoo.client.KazooClient, "_call")
    lacks = ["kazoo.protocol.serialization.CheckVersion", "KazooClient._call"]
    assert sorted(missing()) == sorted([*lacks, "ConnectionHandler._send_ping", "ConnectionHandler._read_header"])
    with pytest.raises(ZKException, match=r"Kazoo \S+ cannot be used, it lacks .*KazooClient._call.*") as raised:
        ZooKeeperClient("127.0.0.1:1").connect(1)
    assert f"({', '.join(sorted(TESTED_RELEASES))})" in str(raised.value)


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


# -- sockets

Pair = tuple[BufferedSocket, socket.socket]


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """A connection as the handler makes it, and its other end."""
    ours, other = socket.socketpair()
    if request.param == "plain":
        with BufferedSocket(ours) as connection, other:
            connection.setblocking(False)
            yield connection, other
        return
    files = make_certificates(tmp_path)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(files.client_cert, files.client_key)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with ThreadPoolExecutor(1) as other_end:
        wrapped = other_end.submit(server.wrap_socket, other, server_side=True)
        with TlsSocket(ours, client, None, 30.0) as connection, wrapped.result() as theirs:
            connection.setblocking(False)
            yield connection, theirs


def test_packets(pair: Pair) -> None:
    """Whole ones only, in order, of any size; what there is of others stays; then the end, again and again."""
    ours, other = pair
    with pytest.raises(ssl.SSLWantReadError):
        ours.recv(4)
    other.sendall(b"\0\0\0\x03one\0\0\0\0\0\0\0\x05t")
    ours.fill()
    assert [ours.packet(), ours.packet(), ours.packet()] == [b"one", b"", None]
    other.sendall(b"woho\xff\xff\xff\xffrest")
    ours.fill()
    assert [ours.packet(), ours.packet(), ours.pending()] == [b"twoho", None, 8]
    assert [ours.recv(4), ours.recv(100), ours.readable()] == [b"\xff" * 4, b"rest", False]
    data = bytes(range(256)) * 1000
    ours.setblocking(True)
    with ThreadPoolExecutor(1) as other_end:
        sent = other_end.submit(other.sendall, data)
        read = b""
        while len(read) < len(data):
            read += ours.recv(7001)
        sent.result()
    other.close()
    assert (read == data, [ours.recv(2), ours.recv(2)]) == (True, [b"", b""])


def test_waits(pair: Pair) -> None:
    """A call and data do not wait for each other; calls are sent together before the connection thread waits."""
    handler, (ours, other) = TlsHandler(), pair
    reader, writer = wake_pair()
    try:
        assert handler.select([ours, reader], [], [], 0) == ([], [], [])
        for number in range(2):
            writer.send(b"\0")
            assert handler.select([ours, reader], [], [], None) == ([reader], [], [])
            ours.send(b"%d" % number)
            reader.recv(1)
        assert handler.select([ours, reader], [], [], 0) == ([], [], [])
        assert other.recv(10) == b"01"
        other.sendall(b"onetwo")
        assert handler.select([ours], [], [], None) == ([ours], [], [])
        writer.send(b"\0")
        assert handler.select([ours, reader], [], [], None) == ([ours, reader], [], [])
        assert [ours.recv(3), ours.recv(3), reader.recv(1)] == [b"one", b"two", b"\0"]
        other.close()
        assert (handler.select([ours], [], [], None), ours.recv(4)) == (([ours], [], []), b"")
    finally:
        reader.close()
        writer.close()


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
def make_server() -> Iterator[Callable[[], Server]]:
    made: list[Server] = []

    def new() -> Server:
        made.append(Server())
        return made[-1]

    yield new
    for each in made:
        each.listening.close()


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


def test_session_without_a_password(server: Server, client: WatchedClient, other_end: ThreadPoolExecutor) -> None:
    """It could never be used again."""
    refused = other_end.submit(server.welcome, session(password=None))
    client.start_async()
    with refused.result(), server.welcome():
        wait_for("there is a session", lambda: client.connected)


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
