# SPDX-License-Identifier: Apache-2.0
"""Connections are counted from the moment in which they are accepted (WP-66)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from nodepool.web import server as web_server
from nodepool.web.app import make_app
from nodepool.web.server import CountedListener, ListenAddress, OpenConnections, WebServer
from tests.support.certificates import make_certificates
from tests.support.web_site import WebSite


@contextmanager
def tls_server(directory: Path) -> Iterator[int]:
    """The port of a server. Its authority is in ``directory``."""
    make_certificates(directory)
    address = ListenAddress("127.0.0.1", 0, str(directory / "server.pem"), str(directory / "server.key"))
    server = WebServer(address, lambda: make_app(WebSite().site))
    server.start()
    try:
        assert server.listening.wait(45)
        yield server.port
    finally:
        server.stop()
        server.join(45)
    assert not server.is_alive()


def test_before_the_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: who says nothing to a server with TLS counts, and makes room for others."""
    monkeypatch.setattr(web_server, "MOST_OPEN_OF_ALL", 2)
    with tls_server(tmp_path / "tls") as port, ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 45)) for _ in range(2)]
        context = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))
        url = f"https://127.0.0.1:{port}/health/live"
        assert httpx.get(url, verify=context, timeout=45, trust_env=False).status_code == 200
        assert silent[0].recv(1) == b""


def test_handshake_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: the connection is closed."""
    monkeypatch.setattr(web_server, "HANDSHAKE_SECONDS", 0.1)
    with tls_server(tmp_path / "tls") as port, socket.create_connection(("127.0.0.1", port), 45) as silent:
        assert silent.recv(1) == b""


def test_a_real_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: counted until it is closed, once; one too many is closed."""
    asyncio.run(_real_connection(monkeypatch))


async def _real_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = OpenConnections()
    with CountedListener(socket.create_server(("127.0.0.1", 0)), connections) as listener:
        place = listener.getsockname()
        with socket.create_connection(place, 45):
            accepted, address = listener.accept()
            assert (connections.total, address[0]) == (1, "127.0.0.1")
            connections.established(accepted.fileno())
            monkeypatch.setattr(web_server, "MOST_OPEN_OF_ALL", 1)
            with socket.create_connection(place, 45) as second:
                with pytest.raises(ConnectionAbortedError):
                    listener.accept()
                assert second.recv(1) == b""
            accepted.close()
            accepted.close()
            assert connections.total == 0
