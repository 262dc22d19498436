# SPDX-License-Identifier: Apache-2.0
"""`CountedListener`: a listening socket whose connections are counted from the moment in which they are accepted.

The server counts a connection when its TLS handshake has ended. A client that never ends it would cost a file
descriptor of the daemon, and nobody would know.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

from nodepool.web.closed_connections import ClosedFor
from nodepool.web.open_connections import OpenConnections, Pending

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
