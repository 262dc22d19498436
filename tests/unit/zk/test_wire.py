# SPDX-License-Identifier: Apache-2.0
"""`nodepool.zk.wire` with a Kazoo that lacks something, with a server that no real one is like, and with none."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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
from nodepool.zk.client import CAUSE_SECONDS, Outage, ZooKeeperClient
from nodepool.zk.connection import (
    Cause,
    ConnectFailure,
    ConnectStep,
    KazooLog,
    Reply,
    ServerPlace,
    TlsFiles,
    cause_of,
    check_tls_files,
    furthest,
    is_hopeless,
    sentence,
    sentences,
)
from nodepool.zk.paths import MOST_BYTES
from nodepool.zk.wire import MultiRead, WatchedClient, check, missing
from tests.support.certificates import make_certificates
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


# -- why there is no connection


FILES = TlsFiles("/tls/client.pem", "/tls/client.key", "/tls/ca.pem")
SERVER, OTHER = (ServerPlace(f"zk{number}.example.com", 2281) for number in (1, 2))
STEP = ConnectStep


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] {reason.lower().replace('_', ' ')} (_ssl.c:1006)")
    error.reason = reason
    return error


REFUSED = ConnectFailure(STEP.CONNECT, ConnectionRefusedError(111, "Connection refused"))
UNKNOWN_CA = ConnectFailure(STEP.SESSION, tls_error("TLSV1_ALERT_UNKNOWN_CA"))
BROKEN = ConnectionError("socket connection broken")


@pytest.mark.parametrize(
    ("step", "error", "cause", "words"),
    [
        # Those that a real server shows are in tests/integration/zk/test_client.py.
        (STEP.CONNECT, OSError(113, "No route to host"), Cause.UNREACHABLE, ["No route to host", "firewall"]),
        (STEP.CONNECT, TimeoutError("timed out"), Cause.SILENT, ["no answer (timed out)"]),
        (STEP.TLS_FILES, FileNotFoundError(2, "No such file"), Cause.TLS_FILES, []),
        (STEP.HANDSHAKE, tls_error("WRONG_VERSION_NUMBER"), Cause.NO_TLS, ["speak TLS", "(wrong version number)"]),
        (STEP.HANDSHAKE, TimeoutError("timed out"), Cause.SILENT, ["no answer (timed out)"]),
        (STEP.HANDSHAKE, tls_error("SSLV3_ALERT_BAD_CERTIFICATE"), Cause.CLIENT_CERTIFICATE, ["trust store"]),
        (STEP.HANDSHAKE, tls_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), Cause.HANDSHAKE, ["TLS handshake failed"]),
        # With TLS 1.3 the server looks at our certificate when we are ready already.
        (STEP.SESSION, tls_error("SSLV3_ALERT_CERTIFICATE_UNKNOWN"), Cause.CLIENT_CERTIFICATE, ["zookeeper-tls.cert"]),
        (STEP.SESSION, tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), Cause.CLIENT_CERTIFICATE, ["(/tls/client.pem)"]),
        (STEP.SESSION, TimeoutError("nothing came in time"), Cause.SILENT, []),
        (STEP.SESSION, BROKEN, Cause.NOT_SERVING, ["does not serve", "its log"]),
    ],
)
def test_causes(step: ConnectStep, error: Exception, cause: Cause, words: list[str]) -> None:
    """One line each, with server, place in the configuration, and remedy."""
    failure = ConnectFailure(step, error)
    text = sentence(SERVER, 1, failure, FILES)
    assert cause_of(failure, tls=True) is cause
    assert text.startswith("ZooKeeper zk1.example.com:2281 (zookeeper-servers[1]): ")
    assert [word for word in (*words, "") if word not in text] == []
    assert "_ssl.c" not in text
    assert "\n" not in text


def test_sentences() -> None:
    """Of servers that were tried; of several addresses the furthest attempt says most; without TLS it may be wanted."""
    needs_tls = ConnectFailure(STEP.SESSION, BROKEN)
    assert cause_of(needs_tls, tls=False) is Cause.NEEDS_TLS
    assert "set zookeeper-tls: cert, key and ca" in sentence(SERVER, 0, needs_tls, None)
    six = sentence(ServerPlace("2001:db8::1", 2281), 0, REFUSED, None)
    assert six.startswith("ZooKeeper [2001:db8::1]:2281 (zookeeper-servers[0]): connection refused")
    assert furthest({"::1": REFUSED, "127.0.0.1": UNKNOWN_CA, "127.0.0.2": REFUSED}) is UNKNOWN_CA
    found = sentences([SERVER, OTHER], {OTHER: {"": REFUSED}, ServerPlace("old", 1): {"": REFUSED}}, FILES)
    assert [text.partition(": ")[0] for text in found] == ["ZooKeeper zk2.example.com:2281 (zookeeper-servers[1])"]


def test_hope() -> None:
    """A server that is down may come back; one that does not want our certificate will not."""
    lasting = {"": UNKNOWN_CA}
    rows: list[dict[ServerPlace, dict[str, ConnectFailure]]] = [
        *({}, {SERVER: lasting}, {SERVER: lasting, OTHER: {"": REFUSED}}),
        {SERVER: lasting, OTHER: {"::1": REFUSED, **lasting}},
    ]
    assert [is_hopeless([SERVER, OTHER], failures, FILES) for failures in rows] == [False, False, False, True]


def test_lines_of_an_outage() -> None:
    """J-4: once and then once a minute; at once when the cause is known; its end only if it was logged."""
    outage, refused = Outage(), ["zk1: connection refused"]
    outage.begin(100.0)
    assert outage.end(101.0) is None
    assert outage.line(200.0, refused, "zk1,zk2") is None
    outage.begin(200.0)
    assert outage.line(200.0 + CAUSE_SECONDS - 1, [], "zk1,zk2") is None
    waits = "No connection to ZooKeeper: no answer from zk1,zk2 yet"
    assert outage.line(200.0 + CAUSE_SECONDS, [], "zk1,zk2") == waits
    assert outage.end(210.0) == 10.0
    outage.begin(300.0)
    outage.begin(330.0)
    lines = [(now, line) for now in range(300, 425) if (line := outage.line(float(now), [*refused, "zk2"], "zk1,zk2"))]
    text = "No connection to ZooKeeper"
    several = ":\n" + "\n".join([*refused, "zk2"])
    times = [(300, several), (360, f" for 60 s{several}"), (420, f" for 120 s{several}")]
    assert lines == [(now, f"{text}{end}") for now, end in times]
    assert (outage.end(475.0), outage.end(476.0)) == (175.0, None)


# -- files of zookeeper-tls


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    made = make_certificates(tmp_path_factory.mktemp("certificates"))
    return TlsFiles(str(made.client_cert), str(made.client_key), str(made.ca))


def problems(files: TlsFiles) -> list[tuple[str, bool, str]]:
    return [(problem.name, problem.readable, problem.text) for problem in check_tls_files(files)]


def test_files_that_are_in_order(good: TlsFiles, tmp_path: Path) -> None:
    """Also with certificate and key in one file; what was wrong when they were used is mentioned."""
    both = tmp_path / "both.pem"
    both.write_bytes(Path(good.key).read_bytes() + Path(good.cert).read_bytes())
    assert problems(good) == problems(TlsFiles(str(both), str(both), good.ca)) == []
    text = sentence(SERVER, 0, ConnectFailure(STEP.TLS_FILES, tls_error("KEY_VALUES_MISMATCH")), good)
    assert "zookeeper-tls: cert, key and ca cannot be used (key values mismatch)" in text
    assert [path for path in good if path not in text] == []


@pytest.mark.parametrize("name", TlsFiles._fields)
@pytest.mark.parametrize(
    ("data", "readable", "words"),
    [(None, False, "there is no file"), (b"hello\n", True, "in PEM form"), (90, True, "is it cut off?")],
)
def test_file_that_is_wrong(
    good: TlsFiles, tmp_path: Path, name: str, data: bytes | int | None, readable: bool, words: str
) -> None:
    path = tmp_path / "file.pem"
    if data is not None:
        path.write_bytes(Path(getattr(good, name)).read_bytes()[:data] if isinstance(data, int) else data)
    ((found, can_be_read, text),) = problems(good._replace(**{name: str(path)}))
    assert (found, can_be_read, words in text) == (name, readable, True)


def test_files_that_do_not_belong_together(good: TlsFiles, tmp_path: Path) -> None:
    """A key of another certificate, key and certificate exchanged, and paths that are no files."""
    foreign = make_certificates(tmp_path / "foreign")
    ((name, _, text),) = problems(good._replace(key=str(foreign.client_key)))
    assert (name, f"does not belong to the certificate {good.cert}" in text) == ("key", True)
    exchanged = problems(good._replace(cert=good.key, key=good.cert))
    assert [(name, "in PEM form" in text) for name, _, text in exchanged] == [("cert", True), ("key", True)]
    for path, words in (("/", "Is a directory"), ("nul\0byte", "cannot be read"), ("/dev/null/x", "Not a directory")):
        ((_, readable, text),) = problems(good._replace(ca=path))
        assert (readable, words in text) == (False, True)


@pytest.mark.parametrize("form", [["pkcs8", "-topk8"], ["ec", "-aes128"]])
def test_pass_phrase(good: TlsFiles, tmp_path: Path, form: list[str]) -> None:
    """OpenSSL would ask for it on the terminal."""
    key = tmp_path / "protected.key"
    command = ["openssl", *form, "-in", good.key, "-passout", "pass:secret", "-out", str(key)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    ((_, _, text),) = problems(good._replace(key=str(key)))
    assert ("protected by a pass phrase" in text, "secret" in text) == (True, False)
