# SPDX-License-Identifier: Apache-2.0
"""`BoundedConnection`: a connection of a client, which cannot stay open for nothing. There are not too many of them.

The daemon needs its file descriptors for ZooKeeper and for clouds.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from nodepool.web.closed_connections import ClosedFor
from nodepool.web.open_connections import OpenConnections

#: A client has so long to send a request, from its first byte to its last.
REQUEST_SECONDS: Final = 15.0
#: With more open ones another one is closed, see `BoundedConnection._make_room`.
MOST_OPEN: Final = 550


class _Errors(logging.LoggerAdapter[logging.Logger]):
    """uvicorn's own log without what any client can cause as often as it likes, e.g. by requests that are none."""

    #: uvicorn asks for it.
    level = logging.ERROR

    def isEnabledFor(self, level: int) -> bool:
        return level >= logging.ERROR


_ERRORS: Final = cast("logging.Logger", _Errors(logging.getLogger("uvicorn.error"), {}))


class BoundedConnection(H11Protocol):
    """For the event loop. uvicorn closes connections by itself only between two requests.

    :param opened: is notified that the handshake of a connection has ended.
    """

    def __init__(self, *arguments: Any, opened: OpenConnections, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._opened = opened
        self.logger = _ERRORS
        #: Runs while a request is awaited, or a part of it.
        self._deadline: asyncio.TimerHandle | None = None
        #: When something came last, in seconds of the event loop.
        self.active_at = self.loop.time()
        #: It was closed to make room. uvicorn still has it until the event loop turns.
        self.dropped = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._opened.established(transport.get_extra_info("socket").fileno())
        if len(self.connections) > MOST_OPEN:
            self._make_room()
        if not self.dropped:
            self._watch()

    def _make_room(self) -> None:
        """Close one of those that are open. Several may come before the event loop turns: each closes another one.

        It is the one that has waited longest for a request; if none waits, a client goes that does not take its answer;
        if there is none, the new one.
        """
        there = [one for one in self.connections if isinstance(one, BoundedConnection) and not one.dropped]
        if len(there) <= MOST_OPEN:
            return
        ranks = [(rank, one) for one in there if (rank := one._rank()) is not None]
        _, oldest = min(ranks, key=lambda pair: (pair[0], pair[1].active_at), default=(0, self))
        self._opened.closed_by_us.note(ClosedFor.TOO_MANY if oldest is self else ClosedFor.IDLE)
        oldest.dropped = True
        oldest.transport.abort()

    def _rank(self) -> int | None:
        """Those with the lowest rank go first; None = not at all, because it is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            # The client may still take what was sent last.
            return 1 if self.transport.get_write_buffer_size() else 0
        return 2 if self.flow.write_paused else None

    def data_received(self, data: bytes) -> None:
        self.active_at = self.loop.time()
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._cancel()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._on_deadline)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        self.transport.close()
