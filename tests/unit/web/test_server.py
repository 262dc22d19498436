# SPDX-License-Identifier: Apache-2.0
"""`WebServer`: a thread that serves, whatever happens to its port."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

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
    assert len(caplog.messages) == 1, "told once"


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
