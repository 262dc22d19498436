# SPDX-License-Identifier: Apache-2.0
"""The server and its connections: it serves whatever happens to its port; clients cannot use it up (WP-66, WP-67)."""

from __future__ import annotations

import gc
import logging
import socket
from typing import Any

import httpx2 as httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from nodepool.web.served import AllowedHosts
from nodepool.web.server import BoundedListener, ListenAddress, WebServer
from tests.support.tables import rows
from tests.support.wait import wait_for
from tests.support.web_site import WebSite
from tests.unit.web.rig import SECONDS, serving, set_constants

LIVE = "/health/live"


def connect(server: WebServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), SECONDS)


def get(server: WebServer, path: str = LIVE) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{server.port}{path}", timeout=SECONDS)


def test_serves_and_holds_no_answer_back() -> None:
    """Each connection sends at once what is written to it (TCP_NODELAY, which it has from the listener)."""
    with serving() as server:
        answer = get(server)
        listeners = [one for one in gc.get_objects() if type(one) is BoundedListener and one.fileno() >= 0]
        assert [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in listeners] == [1]
    assert (answer.status_code, answer.text) == (200, "OK")
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_port_is_taken(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One message names address and keys; when the port is free, it is served."""
    set_constants(monkeypatch, WebServer, RETRY_SECONDS=0.01)
    with caplog.at_level(logging.ERROR, "nodepool.web"), socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        thread = WebServer(ListenAddress("127.0.0.1", port), WebSite().make_app, 100)
        thread.start()
        wait_for("a message", lambda: bool(caplog.messages))
        assert not thread.listening.is_set()
    try:
        assert thread.listening.wait(SECONDS)
    finally:
        thread.stop()
        thread.join(SECONDS)
    assert [f"127.0.0.1 port {port} (webapp.listen_address, webapp.port)" in text for text in caplog.messages] == [True]


def test_application_cannot_be_made(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again."""
    set_constants(monkeypatch, WebServer, RETRY_SECONDS=0.01)
    tries = iter([RuntimeError("not now")])

    def make() -> Any:
        for error in tries:
            raise error
        return WebSite().make_app()

    with serving(make) as server:
        assert get(server).status_code == 200
    assert "not now" in caplog.text


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


async def ok(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("ok")(scope, receive, send)


@rows(__file__, "test_allowed_hosts")
def test_allowed_hosts(given: str, allowed: bool) -> None:
    """WP-67: against DNS rebinding. Probes are answered whatever name they send."""
    hosts = AllowedHosts(ok, ["nodepool.example.org", "*.pods.example.org"])
    client = TestClient(hosts, base_url="http://nodepool.example.org")
    assert client.get("/nodes", headers={"Host": given}).status_code == (200 if allowed else 400)
    assert client.get(LIVE, headers={"Host": given}).status_code == 200
    assert client.get("/ready", headers={"Host": given}).status_code == 200
