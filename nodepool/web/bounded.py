# SPDX-License-Identifier: Apache-2.0
"""What bounds connections and requests inside the web server: their time, their number and their length.

The thread of the server imports it, as it needs uvicorn and Starlette: first one connection, then requests when there
are too many connections, then requests that are too long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import h11
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from nodepool.web.connections import ClosedFor, OpenConnections

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

# `BoundedConnection`: a connection of a client, which cannot stay open for nothing. There are not too many of them.
#
# The daemon needs its file descriptors for ZooKeeper and for clouds.

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


# `Overload`: too many connections are open, so most requests are refused, and those of probes are not.

#: A launcher whose pages are busy is not to be ended for it.
PROBES: Final = "/health/"


class Overload:
    """Middleware, the outermost one.

    :param connections: how many are open.
    :param most: of more, requests are answered with status 503.
    """

    def __init__(self, app: ASGIApp, connections: Callable[[], int], most: int) -> None:
        self._app = app
        self._connections = connections
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._connections() >= self._most and not scope["path"].startswith(PROBES):
            text = "Too many connections are open. Try again later.\n"
            answer = PlainTextResponse(text, 503, {"Connection": "close", "Retry-After": "10"})
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


# `LongRequests`: requests whose address or headers are very long are refused before they are read.

#: Of path and query. The API takes 8,000 bytes of query.
MOST_ADDRESS: Final = 12_000
#: Of all headers. A token has 16 KiB at most. The parser of the server has a bound only for headers that come in parts.
MOST_HEADERS: Final = 40_000


class LongRequests:
    """Middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = _refusal(scope) if scope["type"] == "http" else None
        if status is None:
            await self._app(scope, receive, send)
        else:
            headers = {"Connection": "close", "Cache-Control": "no-store"}
            await PlainTextResponse(f"{status.phrase}\n", status, headers)(scope, receive, send)


def _refusal(scope: Scope) -> HTTPStatus | None:
    """The status of a request that is too long; None = it is not."""
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MOST_ADDRESS:
        return HTTPStatus.REQUEST_URI_TOO_LONG
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADERS:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return None
