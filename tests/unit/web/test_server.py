# SPDX-License-Identifier: Apache-2.0
"""The server and its connections: it serves whatever happens to its port; clients cannot use it up (WP-66, WP-67)."""

from __future__ import annotations

import asyncio
import gc
import logging
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from nodepool.metrics.catalog import WEB_CLOSED
from nodepool.metrics.statsd import REGISTRY
from nodepool.web.app import AllowedHosts, make_app
from nodepool.web.bounded import MOST_ADDRESS, MOST_HEADERS, BoundedConnection, LongRequests, Overload
from nodepool.web.connections import (
    MOST_OF_A_CLIENT,
    MOST_OPEN_OF_ALL,
    TELL_SECONDS,
    ClosedConnections,
    ClosedFor,
    CountedListener,
    OpenConnections,
    Pending,
)
from nodepool.web.logins import FewLines
from nodepool.web.server import ListenAddress, WebServer
from tests.support.certificates import make_certificates
from tests.support.manual_clock import ManualClock
from tests.support.wait import wait_for
from tests.support.web_site import WebSite
from tests.unit.web.rig import SECONDS, serving, set_constants

LIVE = "/health/live"


def connect(server: WebServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), SECONDS)


def get(server: WebServer, path: str = LIVE) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{server.port}{path}", timeout=SECONDS)


def test_serves_and_holds_no_answer_back() -> None:
    """Each connection sends at once what is written to it (TCP_NODELAY)."""
    seen: list[int] = []
    site = WebSite()
    app = make_app(site.site)

    async def looks_at_its_socket(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            there = [one for one in gc.get_objects() if issubclass(type(one), socket.socket) and one.fileno() >= 0]
            for one in there:
                with suppress(OSError):
                    if one.getpeername() == tuple(scope["client"]) and one.getsockname() == tuple(scope["server"]):
                        seen.append(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await app(scope, receive, send)

    with serving(lambda: looks_at_its_socket) as server:
        answer = get(server)
    assert (answer.status_code, answer.text) == (200, "OK")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert seen
    assert set(seen) == {1}


def test_port_is_taken(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One message names address and keys; when the port is free, it is served."""
    set_constants(monkeypatch, WebServer, RETRY_SECONDS=0.01)
    with caplog.at_level(logging.ERROR, "nodepool.web"), socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        thread = WebServer(ListenAddress("127.0.0.1", port), lambda: make_app(WebSite().site))
        thread.start()
        wait_for("a message", lambda: bool(caplog.messages))
        assert not thread.listening.is_set()
    try:
        assert thread.listening.wait(SECONDS)
    finally:
        thread.stop()
        thread.join(SECONDS)
    assert [f"127.0.0.1 port {port} (webapp.listen_address, webapp.port)" in text for text in caplog.messages] == [True]


def test_stopped_before_it_serves() -> None:
    thread = WebServer(ListenAddress("127.0.0.1", 0), lambda: make_app(WebSite().site))
    thread.stop()
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_application_cannot_be_made(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again."""
    set_constants(monkeypatch, WebServer, RETRY_SECONDS=0.01)
    tries = iter([RuntimeError("not now")])

    def make() -> Any:
        for error in tries:
            raise error
        return make_app(WebSite().site)

    with serving(make) as server:
        assert get(server).status_code == 200
    assert "not now" in caplog.text


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx"]
)
def test_request_that_does_not_end(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: the connection is closed."""
    set_constants(monkeypatch, BoundedConnection, REQUEST_SECONDS=0.1)
    with serving() as server, connect(server) as client, suppress(ConnectionError):
        client.sendall(sent)
        while client.recv(1 << 16):
            pass


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\nx y z\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_clients_cannot_fill_the_log(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """WP-66"""
    with caplog.at_level(logging.WARNING, "uvicorn.error"), serving() as server, connect(server) as client:
        client.sendall(sent)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 ")
    assert caplog.records == []


@pytest.mark.parametrize("count", [3, 30])
def test_idle_connections_make_room(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: probes come through. Also when several come before the event loop turns, each makes another one go."""
    set_constants(monkeypatch, BoundedConnection, MOST_OPEN=3)
    with serving() as server, ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(count)]
        # One that was closed can be read from.
        wait_for("all but three are closed", lambda: len(select.select(idle, [], [], 0)[0]) == count - 3)
        assert get(server).status_code == 200
        with suppress(ConnectionError):
            assert idle[0].recv(1) == b""


def test_too_many_that_are_being_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: one more is closed at once; the others go on."""
    with serving() as server, httpx.stream("GET", f"http://127.0.0.1:{server.port}/api/v1/events/stream") as answer:
        lines = answer.iter_lines()
        assert next(lines)
        set_constants(monkeypatch, BoundedConnection, MOST_OPEN=1)
        with pytest.raises(httpx.TransportError):
            get(server)
        assert next(lines)


@contextmanager
def tls_server(directory: Path) -> Iterator[WebServer]:
    make_certificates(directory)
    with serving(tls=directory) as server:
        yield server


def test_before_the_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: a client of a server with TLS that sends nothing counts, and makes room for others."""
    set_constants(monkeypatch, OpenConnections, MOST_OPEN_OF_ALL=2)
    with tls_server(tmp_path / "tls") as server, connect(server) as first, connect(server):
        context = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))
        url = f"https://127.0.0.1:{server.port}{LIVE}"
        assert httpx.get(url, verify=context, timeout=SECONDS, trust_env=False).status_code == 200
        assert first.recv(1) == b""


def test_handshake_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: the connection is closed."""
    set_constants(monkeypatch, CountedListener, HANDSHAKE_SECONDS=0.1)
    with tls_server(tmp_path / "tls") as server, connect(server) as silent:
        assert silent.recv(1) == b""


def test_counted_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: once; one too many is closed."""

    async def accept_two() -> None:
        connections = OpenConnections()
        with CountedListener(socket.create_server(("127.0.0.1", 0)), connections) as listener, ExitStack() as stack:
            place = listener.getsockname()
            stack.enter_context(socket.create_connection(place, SECONDS))
            accepted, address = listener.accept()
            with closing(accepted):
                assert (connections.total, address[0]) == (1, "127.0.0.1")
                connections.established(accepted.fileno())
                set_constants(monkeypatch, OpenConnections, MOST_OPEN_OF_ALL=1)
                second = stack.enter_context(socket.create_connection(place, SECONDS))
                with pytest.raises(ConnectionAbortedError):
                    listener.accept()
                assert second.recv(1) == b""
                accepted.close()
        assert connections.total == 0

    asyncio.run(accept_two())


class Handshakes:
    """Connections whose handshake has not ended."""

    def __init__(self) -> None:
        self.connections = OpenConnections()
        self.made: list[Pending] = []
        self.ended: list[int] = []

    def begin(self, host: str, count: int = 1) -> None:
        for _ in range(count):
            client = self.connections.admit(host)
            assert client is not None
            number = len(self.made) + 1
            self.made.append(Pending(client, lambda number=number: self.ended.append(number)))  # type: ignore[misc]
            self.connections.begin(number, self.made[-1])


def test_handshakes_make_room() -> None:
    """WP-66: the oldest one of a client goes for it; of all, one of the client with most of them."""
    one = Handshakes()
    one.begin("192.0.2.1", MOST_OF_A_CLIENT)
    one.connections.established(1)
    one.begin("192.0.2.1")
    assert (one.ended, one.connections.total) == ([2], MOST_OF_A_CLIENT)
    # It is closed when the event loop turns, and counts no more since it made room.
    one.connections.closed(2, one.made[1])
    assert one.connections.total == MOST_OF_A_CLIENT
    # One that is closed makes no room any more.
    one.connections.closed(3, one.made[2])
    one.begin("192.0.2.1", 2)
    assert (one.ended, one.connections.total) == ([2, 4], MOST_OF_A_CLIENT)
    many = Handshakes()
    many.begin("192.0.2.9")
    for number in range(1, 6):
        many.begin(f"192.0.2.{number}", 100)
    many.begin("192.0.2.6", 99)
    assert many.connections.total == MOST_OPEN_OF_ALL
    many.begin("192.0.2.10", 50)
    assert (len(many.ended), 1 in many.ended, many.connections.total) == (50, False, MOST_OPEN_OF_ALL)


@pytest.mark.parametrize(
    ("host", "same", "other"),
    [
        ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
        ("fe80::1%eth0", "fe80::2", "fe80:0:0:1::1%eth0"),
    ],
)
def test_a_client_has_so_many(host: str, same: str, other: str) -> None:
    """WP-66: an address, or a network of IPv6, in which a host has as many addresses as it likes."""
    connections = OpenConnections()
    clients = [connections.admit(host) for _ in range(MOST_OF_A_CLIENT)]
    assert None not in clients
    assert (connections.admit(host), connections.admit(same)) == (None, None)
    assert connections.admit(other) not in (None, clients[0])
    connections.closed(0, Pending(str(clients[0]), lambda: None))
    assert connections.admit(same) == clients[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "198.51.100.7", "2001:db8::9"])
def test_proxies(host: str) -> None:
    """WP-66: only the limit of all is for them."""
    connections = OpenConnections(["198.51.100.0/24", "2001:db8::9"])
    admitted = [connections.admit(host) for _ in range(MOST_OPEN_OF_ALL)]
    assert None not in admitted
    assert (connections.admit(host), connections.admit("192.0.2.1")) == (None, None)
    for client in admitted:
        connections.closed(0, Pending(str(client), lambda: None))
    connections.closed(0, Pending(str(connections.admit("192.0.2.1")), lambda: None))
    assert connections.total == 0


async def ok(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("ok")(scope, receive, send)


def test_overload() -> None:
    """WP-66: probes are answered all the same."""
    count = 9
    client = TestClient(Overload(ok, lambda: count, 10))
    assert client.get("/nodes").status_code == 200
    count = 10
    refused = client.get("/nodes")
    assert (refused.status_code, refused.headers["connection"]) == (503, "close")
    assert client.get(LIVE).status_code == 200


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/nodes?label=" + "x" * 400, {"X": "y" * 20_000}, 200),
        ("/nodes?" + "&".join(f"{number}=1" for number in range(MOST_ADDRESS // 6)), {}, 414),
        ("/nodes/" + "x" * MOST_ADDRESS, {}, 414),
        ("/nodes", {"X": "y" * MOST_HEADERS}, 431),
        ("/nodes", {f"X-{number}": "y" * 1000 for number in range(MOST_HEADERS // 1000)}, 431),
    ],
    ids=["long", "query", "path", "header", "headers"],
)
def test_long_requests(path: str, headers: dict[str, str], status: int) -> None:
    """WP-66"""
    answer = TestClient(LongRequests(ok)).get(path, headers=headers)
    assert (answer.status_code, answer.headers.get("cache-control")) == (status, "no-store" if status > 200 else None)


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        *((name, True) for name in ("nodepool.example.org", "Nodepool.Example.org.:8005", "a.pods.example.org")),
        *((name, True) for name in ("192.0.2.1:8005", "[2001:db8::1]:8005", "[nodepool.example.org]")),
        *((name, True) for name in ("localhost:8005",)),
        *((name, False) for name in ("pods.example.org", "evilpods.example.org", "evil.example.com", "")),
        *((name, False) for name in ("nodepool.example.org.evil.example.com", "[evil.example.com]")),
        *((name, False) for name in ("localhost.evil.example.com", "192.0.2.1.evil.example.com")),
    ],
)
def test_allowed_hosts(given: str, allowed: bool) -> None:
    """WP-67: against DNS rebinding. Probes are answered whatever name they send."""
    hosts = AllowedHosts(ok, ["nodepool.example.org", "*.pods.example.org"])
    assert hosts.allows(given) is allowed
    client = TestClient(hosts, base_url="http://nodepool.example.org")
    if given:
        assert client.get("/nodes", headers={"Host": given}).status_code == (200 if allowed else 421)
    assert client.get(LIVE, headers={"Host": given}).status_code == 200
    assert client.get("/ready", headers={"Host": given}).status_code == 200


def test_many_closed_connections_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """WP-66: an attack is seen in the log, and does not fill it; the metric has all of them."""
    clock = ManualClock()
    closed = ClosedConnections(clock)
    series = WEB_CLOSED.series(ClosedFor.HANDSHAKE)
    before = REGISTRY.snapshot().get(series, 0)
    assert isinstance(before, int | float)
    with caplog.at_level(logging.WARNING, "nodepool.web"):
        for _ in range(500):
            closed.note(ClosedFor.HANDSHAKE)
        closed.note(ClosedFor.CLIENT)
        assert len(caplog.records) == 1
        clock.pass_seconds(TELL_SECONDS)
        closed.note(ClosedFor.HANDSHAKE)
    assert len(caplog.records) == 2
    assert caplog.messages[-1].endswith(": 500 (handshake), 1 (too many of one client)")
    assert REGISTRY.snapshot()[series] == before + 501


def test_few_lines() -> None:
    """WP-66: refusals cannot fill the log."""
    clock = ManualClock()
    lines = FewLines(2, 60.0, clock)
    assert [lines.one_more() for _ in range(4)] == [True, True, False, False]
    clock.pass_seconds(59.0)
    assert not lines.one_more()
    clock.pass_seconds(1.0)
    assert [lines.one_more() for _ in range(3)] == [True, True, False]
