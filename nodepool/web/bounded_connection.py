# SPDX-License-Identifier: Apache-2.0
"""`BoundedConnection`: a connection of a client, which cannot stay open for nothing. There are not too many of them.

The daemon needs its file descriptors for ZooKeeper and for clouds.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

#: A client has so long to send a request, from its first byte to its last.
REQUEST_SECONDS: Final = 15.0
#: With more open ones the connection is closed that has waited longest for a request; if none waits, the new one.
MOST_OPEN: Final = 550


class BoundedConnection(H11Protocol):
    """For the event loop. uvicorn closes connections by itself only between two requests."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        #: Runs while a request is awaited, or a part of it.
        self._deadline: asyncio.TimerHandle | None = None
        #: When something came last, in seconds of the event loop.
        self.active_at = self.loop.time()
        #: It was closed to make room. uvicorn still has it until the event loop turns.
        self.dropped = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_OPEN:
            self._make_room()
        if not self.dropped:
            self._watch()

    def _make_room(self) -> None:
        """Close one of those that are open. Several may come before the event loop turns: each closes another one."""
        there = [one for one in self.connections if isinstance(one, BoundedConnection) and not one.dropped]
        if len(there) > MOST_OPEN:
            oldest = min((one for one in there if one.waiting), key=lambda one: one.active_at, default=self)
            oldest.dropped = True
            oldest.transport.abort()

    @property
    def waiting(self) -> bool:
        """Is nothing being answered?"""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

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
