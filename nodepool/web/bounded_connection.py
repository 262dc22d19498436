# SPDX-License-Identifier: Apache-2.0
"""`BoundedConnection`: a connection of a client, which cannot stay open for nothing. There are not too many of them.

The daemon needs its file descriptors for ZooKeeper and for clouds.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: A client has so long to send a request, from its first byte to its last.
REQUEST_SECONDS: Final = 15.0
#: Of more open connections new ones are closed at once, without an answer.
MOST_OPEN: Final = 550


class BoundedConnection(H11Protocol):
    """For the event loop. uvicorn closes connections by itself only between two requests."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        #: Runs while a request is awaited, or a part of it.
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_OPEN:
            transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
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
