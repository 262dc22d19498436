# SPDX-License-Identifier: Apache-2.0
"""Connections are counted from the moment in which they are accepted (WP-66)."""

from __future__ import annotations

import socket

import pytest

from nodepool.web import counted_listener
from nodepool.web.counted_listener import CountedListener, OpenConnections


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
