# SPDX-License-Identifier: Apache-2.0
"""`CountedListener`: a listening socket whose connections are counted from the moment in which they are accepted.

The server counts a connection when its TLS handshake has ended. A client that never ends it would cost a file
descriptor of the daemon, and nobody would know.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

#: Open connections of all clients; more are closed at once. Those that wait for the end of a handshake count.
MOST_OPEN: Final = 600
#: Of one client. A browser has six.
MOST_OF_A_CLIENT: Final = 100
#: A client has a network of its own in IPv6.
_CLIENT_BITS: Final = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Who speaks for many clients: a proxy on this host.
LOOPBACK: Final[tuple[Network, ...]] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


class OpenConnections:
    """Counts by client. For the event loop.

    :param trusted: addresses and networks of proxies, whose connections are those of many clients.
    """

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self._trusted = (*LOOPBACK, *(ipaddress.ip_network(text, strict=False) for text in trusted))
        self._clients: Counter[str] = Counter()
        self.total = 0

    def admit(self, host: str) -> str | None:
        """Count a connection. Returns the name of its client for `closed`; None = it is one too many."""
        client = self._client(host)
        if self.total >= MOST_OPEN or (client and self._clients[client] >= MOST_OF_A_CLIENT):
            return None
        self.total += 1
        if client:
            self._clients[client] += 1
        return client

    def closed(self, client: str) -> None:
        """A connection has ended.

        :param client: what `admit` said.
        """
        self.total -= 1
        if client:
            self._clients[client] -= 1
            if self._clients[client] <= 0:
                del self._clients[client]

    def _client(self, host: str) -> str:
        """Who has an address; empty = a proxy."""
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped or address
        if any(address in network for network in self._trusted):
            return ""
        bits = _CLIENT_BITS if address.version == 6 else 32
        return str(ipaddress.ip_network((address, bits), strict=False))


class _CountedSocket(socket.socket):
    """A connection that is counted until it is closed."""

    _ended: Any = None

    def close(self) -> None:
        ended, self._ended = self._ended, None
        try:
            super().close()
        finally:
            if ended is not None:
                ended()


class CountedListener(socket.socket):
    """A listening socket for asyncio.

    :param listener: is not to be used any more.
    """

    def __init__(self, listener: socket.socket, connections: OpenConnections) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=listener.detach())
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        """As of any socket. asyncio takes a ConnectionAbortedError for a client that has gone."""
        connection, address = super().accept()
        client = self._connections.admit(address[0])
        if client is None:
            connection.close()
            raise ConnectionAbortedError("there are too many connections")
        counted = _CountedSocket(connection.family, connection.type, connection.proto, fileno=connection.detach())
        counted._ended = lambda: self._connections.closed(client)
        return counted, address
