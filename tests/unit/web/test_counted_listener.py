# SPDX-License-Identifier: Apache-2.0
"""Connections are counted from the moment in which they are accepted (WP-66)."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import httpx2 as httpx
import pytest

from nodepool.web import counted_listener
from nodepool.web.app import make_app
from nodepool.web.counted_listener import CountedListener, OpenConnections
from nodepool.web.server import ListenAddress, WebServer
from tests.support.certificates import make_certificates
from tests.support.wait import wait_for
from tests.support.web_site import WebSite


def test_a_client_has_so_many() -> None:
    """WP-66."""
    connections = OpenConnections()
    clients = [connections.admit("192.0.2.1") for _ in range(counted_listener.MOST_OF_A_CLIENT)]
    assert connections.admit("192.0.2.1") is None
    assert connections.admit("192.0.2.2") is not None
    first = clients[0]
    assert first is not None
    connections.closed(first)
    assert connections.admit("192.0.2.1") == first
    assert connections.admit("::ffff:192.0.2.1") is None, "the same address"


def test_a_network_of_ipv6_is_a_client() -> None:
    """WP-66: a host there has as many addresses as it likes."""
    connections = OpenConnections()
    one = connections.admit("2001:db8::1")
    assert one == connections.admit("2001:db8::ffff:1") != connections.admit("2001:db8:0:1::1")
    assert connections.admit("fe80::1%eth0") is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "198.51.100.7", "2001:db8::9"])
def test_proxies(host: str) -> None:
    """WP-66: only the limit of all is for them."""
    connections = OpenConnections(["198.51.100.0/24", "2001:db8::9"])
    admitted = [connections.admit(host) for _ in range(counted_listener.MOST_OPEN)]
    assert None not in admitted
    assert connections.admit(host) is None
    assert connections.admit("192.0.2.1") is None


def test_nothing_is_left() -> None:
    connections = OpenConnections()
    for client in [connections.admit(host) for host in ("192.0.2.1", "192.0.2.1", "127.0.0.1")]:
        assert client is not None
        connections.closed(client)
    assert (connections.total, dict(connections._clients)) == (0, {})


def test_before_the_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: who says nothing to a server with TLS counts; when it goes there is room again."""
    monkeypatch.setattr(counted_listener, "MOST_OPEN", 2)
    certificates = make_certificates(tmp_path / "tls")
    address = ListenAddress("127.0.0.1", 0, str(tmp_path / "tls" / "server.pem"), str(tmp_path / "tls" / "server.key"))
    server = WebServer(address, lambda: make_app(WebSite().site))
    server.start()
    try:
        assert server.listening.wait(45)
        url = f"https://127.0.0.1:{server.port}/health/live"
        context = ssl.create_default_context(cafile=str(certificates.ca))

        def answered() -> bool:
            try:
                return httpx.get(url, verify=context, timeout=45, trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 45))
            assert not answered()
        wait_for("an answer", answered)
    finally:
        server.stop()
        server.join(45)
    assert not server.is_alive()


def test_a_real_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-66: counted until it is closed, once; one too many is closed."""
    connections = OpenConnections()
    with CountedListener(socket.create_server(("127.0.0.1", 0)), connections) as listener:
        place = listener.getsockname()
        with socket.create_connection(place, 45):
            accepted, address = listener.accept()
            assert (connections.total, address[0]) == (1, "127.0.0.1")
            monkeypatch.setattr(counted_listener, "MOST_OPEN", 1)
            with socket.create_connection(place, 45) as second:
                with pytest.raises(ConnectionAbortedError):
                    listener.accept()
                assert second.recv(1) == b""
            accepted.close()
            accepted.close()
            assert connections.total == 0
