# SPDX-License-Identifier: Apache-2.0
"""`OpenConnections`: how many connections each client has, and which of them go when there are too many."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from nodepool.web.closed_connections import ClosedConnections, ClosedFor

#: Open connections of all clients. Those that wait for the end of a handshake count.
MOST_OPEN: Final = 600
#: Of one client. A browser has six.
MOST_OF_A_CLIENT: Final = 100
#: A client has a network of its own in IPv6.
_CLIENT_BITS: Final = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Who speaks for many clients: a proxy on this host.
LOOPBACK: Final[tuple[Network, ...]] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


@dataclass(eq=False)
class Pending:
    """A connection.

    :param client: who has it, as `OpenConnections.admit` said.
    :param end: ends it soon.
    """

    client: str
    end: Callable[[], None]
    #: Has its TLS handshake not ended yet?
    waits: bool = True
    #: Does it count? One that has to go does not.
    counts: bool = True


class OpenConnections:
    """Counts by client. For the event loop.

    :param trusted: addresses and networks of proxies, whose connections are those of many clients.
    """

    def __init__(self, trusted: Iterable[str] = (), closed_by_us: ClosedConnections | None = None) -> None:
        self._trusted = (*LOOPBACK, *(ipaddress.ip_network(text, strict=False) for text in trusted))
        self._clients: Counter[str] = Counter()
        #: File descriptor -> a connection whose handshake has not ended, in the order in which they came.
        self._pending: dict[int, Pending] = {}
        self.closed_by_us = closed_by_us or ClosedConnections()
        self.total = 0

    def admit(self, host: str) -> str | None:
        """Count a connection. Returns the name of its client; None = it is one too many.

        One whose TLS handshake has not ended makes room: of the same client, or of the client with most of them.
        """
        client = self._client(host)
        if client and self._clients[client] >= MOST_OF_A_CLIENT and not self._make_room(client):
            self.closed_by_us.note(ClosedFor.CLIENT)
            return None
        if self.total >= MOST_OPEN and not self._make_room(None):
            self.closed_by_us.note(ClosedFor.TOO_MANY)
            return None
        self.total += 1
        if client:
            self._clients[client] += 1
        return client

    def begin(self, fileno: int, connection: Pending) -> None:
        """A connection that was admitted waits for its handshake."""
        self._pending[fileno] = connection

    def established(self, fileno: int) -> None:
        """The handshake has ended; a connection without TLS has none."""
        connection = self._pending.pop(fileno, None)
        if connection is not None:
            connection.waits = False

    def closed(self, fileno: int, connection: Pending) -> None:
        """A connection has ended."""
        if self._pending.get(fileno) is connection:
            del self._pending[fileno]
        self._forget(connection)

    def _forget(self, connection: Pending) -> None:
        if not connection.counts:
            return
        connection.counts = False
        self.total -= 1
        if connection.client:
            self._clients[connection.client] -= 1
            if self._clients[connection.client] <= 0:
                del self._clients[connection.client]

    def _make_room(self, client: str | None) -> bool:
        """:param client: who has to make it; None = who has most connections that wait."""
        waiting = Counter(one.client for one in self._pending.values())
        if client is None and waiting:
            client = waiting.most_common(1)[0][0]
        found = next(((fileno, one) for fileno, one in self._pending.items() if one.client == client), None)
        if found is None:
            return False
        fileno, connection = found
        del self._pending[fileno]
        connection.waits = False
        self._forget(connection)
        self.closed_by_us.note(ClosedFor.HANDSHAKE)
        connection.end()
        return True

    def _client(self, host: str) -> str:
        """Who has an address; empty = a proxy."""
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped or address
        if any(address in network for network in self._trusted):
            return ""
        bits = _CLIENT_BITS if address.version == 6 else 32
        return str(ipaddress.ip_network((address, bits), strict=False))
