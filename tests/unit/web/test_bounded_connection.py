# SPDX-License-Identifier: Apache-2.0
"""Connections of a real server that nobody uses."""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx2 as httpx
import pytest

from nodepool.web import server
from nodepool.web.app import make_app
from nodepool.web.server import ListenAddress, WebServer
from tests.support.wait import wait_for
from tests.support.web_site import WebSite

SECONDS = 45.0


@contextmanager
def serving() -> Iterator[int]:
    """The port of a server."""
    thread = WebServer(ListenAddress("127.0.0.1", 0), lambda: make_app(WebSite().site))
    thread.start()
    try:
        assert thread.listening.wait(SECONDS)
        yield thread.port
    finally:
        thread.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx",
    ],
)
def test_request_that_does_not_end(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: the connection is closed."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.1)
    with serving() as port, socket.create_connection(("127.0.0.1", port), SECONDS) as client, suppress(ConnectionError):
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
    """WP-66: nothing is said of requests that are none."""
    with (
        caplog.at_level(logging.WARNING, "uvicorn.error"),
        serving() as port,
        socket.create_connection(("127.0.0.1", port), SECONDS) as client,
    ):
        client.sendall(sent)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 ")
    assert caplog.records == []


def test_probes_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: whoever opens connections and says nothing keeps no probe away; the one that waits longest goes."""
    monkeypatch.setattr(server, "MOST_OPEN", 3)
    with serving() as port, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS)) for _ in range(3)]
        assert httpx.get(f"http://127.0.0.1:{port}/health/live", timeout=SECONDS).status_code == 200
        with suppress(ConnectionError):
            assert idle[0].recv(1) == b""


def test_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: also when several come before the event loop turns, each makes another one go."""
    monkeypatch.setattr(server, "MOST_OPEN", 3)
    with serving() as port, ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS)) for _ in range(30)]
        # One that was closed can be read from.
        wait_for("all but three are closed", lambda: len(select.select(clients, [], [], 0)[0]) == 27)
        assert httpx.get(f"http://127.0.0.1:{port}/health/live", timeout=SECONDS).status_code == 200


def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: one more is closed at once; those that are there go on."""
    with (
        serving() as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as client,
        client.stream("GET", "/api/v1/events/stream") as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines)
        monkeypatch.setattr(server, "MOST_OPEN", 1)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/health/live", timeout=SECONDS)
        assert next(lines), "the other one goes on"
