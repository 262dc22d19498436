# SPDX-License-Identifier: Apache-2.0
"""Which connections there may be, and which go (WP-66)."""

from __future__ import annotations

import pytest

from nodepool.web import server
from nodepool.web.server import OpenConnections, Pending


class Handshakes:
    """Connections whose handshake has not ended."""

    def __init__(self, connections: OpenConnections) -> None:
        self.connections = connections
        self.ended: list[int] = []
        self.number = 0

    def begin(self, host: str, count: int = 1) -> None:
        for _ in range(count):
            client = self.connections.admit(host)
            assert client is not None
            number = self.number = self.number + 1
            self.connections.begin(number, Pending(client, lambda number=number: self.ended.append(number)))  # type: ignore[misc]


def test_handshakes_of_a_client_make_room_for_it() -> None:
    """WP-66: the oldest one goes."""
    handshakes = Handshakes(OpenConnections())
    handshakes.begin("192.0.2.1", server.MOST_OF_A_CLIENT)
    handshakes.connections.established(1)
    handshakes.begin("192.0.2.1")
    assert handshakes.ended == [2]


def test_handshakes_of_a_few_addresses_keep_nobody_away() -> None:
    """WP-66: the client with most of them makes room, and not somebody whose handshake goes well."""
    handshakes = Handshakes(OpenConnections())
    handshakes.begin("192.0.2.9")
    for number in range(1, 6):
        handshakes.begin(f"192.0.2.{number}", 100)
    handshakes.begin("192.0.2.6", 99)
    assert handshakes.connections.total == server.MOST_OPEN_OF_ALL
    handshakes.begin("192.0.2.10", 50)
    assert len(handshakes.ended) == 50
    assert 1 not in handshakes.ended
    assert handshakes.connections.total == server.MOST_OPEN_OF_ALL


def test_one_that_made_room_does_not_count() -> None:
    """It is closed when the event loop turns."""
    connections = OpenConnections()
    client = connections.admit("192.0.2.1")
    assert client is not None
    first = Pending(client, lambda: None)
    connections.begin(1, first)
    assert connections._make_room(client)
    assert connections.total == 0
    connections.closed(1, first)
    assert connections.total == 0


def test_a_client_has_so_many() -> None:
    """WP-66."""
    connections = OpenConnections()
    clients = [connections.admit("192.0.2.1") for _ in range(server.MOST_OF_A_CLIENT)]
    assert connections.admit("192.0.2.1") is None
    assert connections.admit("192.0.2.2") is not None
    first = clients[0]
    assert first is not None
    connections.closed(0, Pending(first, lambda: None))
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
    admitted = [connections.admit(host) for _ in range(server.MOST_OPEN_OF_ALL)]
    assert None not in admitted
    assert connections.admit(host) is None
    assert connections.admit("192.0.2.1") is None


def test_nothing_is_left() -> None:
    connections = OpenConnections()
    for client in [connections.admit(host) for host in ("192.0.2.1", "192.0.2.1", "127.0.0.1")]:
        assert client is not None
        connections.closed(0, Pending(client, lambda: None))
    assert (connections.total, dict(connections._clients)) == (0, {})
