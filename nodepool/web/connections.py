# SPDX-License-Identifier: Apache-2.0
"""Which connections of clients a daemon keeps: how many there are, who has them, and which of them go.

First the listening socket that counts them, then whose they are, then what is logged of those that were closed. Nothing
here needs the libraries of the web server.
"""

from __future__ import annotations

import asyncio
import enum
import ipaddress
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.metrics.catalog import WEB_CLOSED
from nodepool.metrics.statsd import REGISTRY

if TYPE_CHECKING:
    pass

log = logging.getLogger("nodepool.web")


# `CountedListener`: a listening socket whose connections are counted from the moment in which they are accepted.
#
# The server counts a connection when its TLS handshake has ended. A client that never ends it would cost a file
# descriptor of the daemon, and no count would show it.

#: A client has so long from the begin of a connection to the end of the TLS handshake.
HANDSHAKE_SECONDS: Final = 10.0


class _CountedSocket(socket.socket):
    """A connection that is counted until it is closed.

    :param connections: has admitted it.
    """

    def __init__(self, accepted: socket.socket, client: str, connections: OpenConnections) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._connections = connections
        self._deadline: asyncio.TimerHandle | None = None
        self._pending: Pending | None = Pending(client, self._end)

    def begin(self) -> None:
        """The handshake begins; there is an event loop."""
        assert self._pending is not None
        self._connections.begin(self.fileno(), self._pending)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._late)

    def _late(self) -> None:
        if self._pending is not None and self._pending.waits:
            self._connections.closed_by_us.note(ClosedFor.HANDSHAKE)
            self._end()

    def _end(self) -> None:
        """asyncio closes it when it sees that nothing follows."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        pending, self._pending = self._pending, None
        if self._deadline is not None:
            self._deadline.cancel()
        fileno = self.fileno()
        try:
            super().close()
        finally:
            if pending is not None:
                self._connections.closed(fileno, pending)


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
        counted = _CountedSocket(connection, client, self._connections)
        counted.begin()
        return counted, address


# `OpenConnections`: how many connections each client has, and which of them go when there are too many.

#: Open connections of all clients. Those that wait for the end of a handshake count.
MOST_OPEN_OF_ALL: Final = 600
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
        if self.total >= MOST_OPEN_OF_ALL and not self._make_room(None):
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


# `ClosedConnections`: connections of clients that the web server closed to protect itself: a metric and a log line.

#: An attack must not fill the log.
TELL_SECONDS: Final = 60.0


class ClosedFor(enum.StrEnum):
    """Why a connection was closed. Values stand in metrics and in the log."""

    #: There are too many of all clients, and none could go for it.
    TOO_MANY = "too many"
    #: Its client has too many.
    CLIENT = "too many of one client"
    #: Its TLS handshake did not end, in time or before others needed the room.
    HANDSHAKE = "handshake"
    #: It waited longest for a request, or took its answer slowest, when there were too many.
    IDLE = "room for others"


class ClosedConnections:
    """For the event loop of the server.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._told_at = -TELL_SECONDS
        self._untold: Counter[ClosedFor] = Counter()

    def note(self, cause: ClosedFor) -> None:
        """One was closed. It is counted at once, and logged with others that follow soon."""
        REGISTRY.count(WEB_CLOSED.series(cause.value))
        self._untold[cause] += 1
        now = self._clock()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            told = ", ".join(f"{count} ({one.value})" for one, count in sorted(self._untold.items()))
            self._untold.clear()
            log.warning("Connections of web clients were closed since the last message: %s", told)
