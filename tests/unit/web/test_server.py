# SPDX-License-Identifier: Apache-2.0
"""`WebServer`: a thread that serves, whatever happens to its port."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from nodepool.web import server
from nodepool.web.app import make_app
from nodepool.web.server import ListenAddress, WebServer
from tests.support.wait import wait_for
from tests.support.web_site import WebSite

SECONDS = 30.0


@pytest.fixture
def stopped() -> Iterator[list[WebServer]]:
    """Threads that are stopped at the end."""
    threads: list[WebServer] = []
    yield threads
    for thread in threads:
        thread.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_serves_until_it_is_stopped(stopped: list[WebServer]) -> None:
    site = WebSite()
    thread = WebServer(ListenAddress("127.0.0.1", 0), lambda: make_app(site.site))
    stopped.append(thread)
    thread.start()
    assert thread.listening.wait(SECONDS)
    answer = httpx.get(f"http://127.0.0.1:{thread.port}/health/live")
    assert (answer.status_code, answer.text) == (200, "OK")
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_answers_are_not_held_back(stopped: list[WebServer]) -> None:
    """Each connection sends at once what is written to it (TCP_NODELAY)."""
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        (server,) = (thread._server for thread in stopped)
        assert server is not None
        for connection in server.server_state.connections:
            its_socket = connection.transport.get_extra_info("socket")
            seen.append(its_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    thread = WebServer(ListenAddress("127.0.0.1", 0), lambda: app)
    stopped.append(thread)
    thread.start()
    assert thread.listening.wait(SECONDS)
    assert httpx.get(f"http://127.0.0.1:{thread.port}/").status_code == 204
    assert seen == [1]


def test_port_is_taken(
    stopped: list[WebServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The message names address and key; when the port is free, it is served."""
    monkeypatch.setattr(server, "RETRY_SECONDS", 0.01)
    site = WebSite()
    with caplog.at_level(logging.ERROR, "nodepool.web"), socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        thread = WebServer(ListenAddress("127.0.0.1", port), lambda: make_app(site.site))
        stopped.append(thread)
        thread.start()
        wait_for("a message", lambda: bool(caplog.messages))
        assert f"127.0.0.1 port {port} (webapp.listen_address, webapp.port)" in caplog.messages[0]
        assert not thread.listening.is_set()
    assert thread.listening.wait(SECONDS)
    told = [text for text in caplog.messages if text.startswith("No web pages")]
    assert len(told) == 1, "told once"


def test_stopped_before_it_serves() -> None:
    thread = WebServer(ListenAddress("127.0.0.1", 0), lambda: make_app(WebSite().site))
    thread.stop()
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_application_cannot_be_made(
    stopped: list[WebServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error is logged, and it is tried again."""
    monkeypatch.setattr(server, "RETRY_SECONDS", 0.01)
    site, tries = WebSite(), iter([RuntimeError("not now")])

    def make() -> object:
        for error in tries:
            raise error
        return make_app(site.site)

    thread = WebServer(ListenAddress("127.0.0.1", 0), make)  # type: ignore[arg-type]
    stopped.append(thread)
    thread.start()
    assert thread.listening.wait(SECONDS)
    assert "not now" in caplog.text
