# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/events/stream``: Server-Sent Events, by which pages and programs learn at once that something changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import anyio
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from nodepool.clock import wall_time
from nodepool.web.event_hub import EventHub, TooManyViewers, Viewer
from nodepool.web.logins import user_of
from nodepool.web.problem import problem_response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from nodepool.web.event_messages import Message

#: The name of the hub in the state of the application's lifespan.
HUB: Final = "event_hub"
#: A comment is sent so often, so that nothing between server and viewer takes the connection for dead.
PING_SECONDS: Final = 15
#: A viewer that was refused may try again after so long.
RETRY_SECONDS: Final = 10


class EventStream(EventSourceResponse):
    """The answer to one viewer.

    :param first: what it is told first.
    :param seconds: the stream ends after so long, with the login of the viewer; None = there is none.
    """

    def __init__(self, hub: EventHub, viewer: Viewer, first: Sequence[Message], seconds: float | None = None) -> None:
        super().__init__(
            _encoded(hub, viewer, first),
            ping=PING_SECONDS,
            ping_message_factory=lambda: ServerSentEvent(comment="ping"),
        )
        self._hub = hub
        self._viewer = viewer
        self._seconds = seconds

    @staticmethod
    async def _listen_for_exit_signal() -> None:
        """Never ends: the hub ends the streams, and no task has to look for signals, which the daemon has."""
        await anyio.sleep_forever()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with anyio.move_on_after(self._seconds) as login:
                await super().__call__(scope, receive, send)
            if login.cancelled_caught:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._hub.leave(self._viewer)


def routes() -> list[BaseRoute]:
    """The stream. The application has the hub in the state of its lifespan."""

    async def stream(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        hub: EventHub | None = getattr(request.state, HUB, None)
        if hub is None:
            return _refused()
        try:
            viewer, first = await hub.join(
                request.headers.get("last-event-id"), request.client.host if request.client else ""
            )
        except TooManyViewers:
            return _refused()
        return EventStream(hub, viewer, first, _login_seconds(request))

    return [Route("/api/v1/events/stream", stream, methods=["GET"])]


def _login_seconds(request: Request) -> float | None:
    """How long the login of a viewer is still good; None = nobody has logged in."""
    user = user_of(request)
    return None if user is None else max(1.0, user.expires - wall_time())


def _refused() -> Response:
    text = "There are too many viewers of events, or the server stops."
    return problem_response(503, text, {"Retry-After": str(RETRY_SECONDS)})


async def _encoded(hub: EventHub, viewer: Viewer, first: Sequence[Message]) -> AsyncIterator[bytes]:
    for message in first:
        yield _bytes(hub, message)
    async for message in hub.messages(viewer):
        yield _bytes(hub, message)


def _bytes(hub: EventHub, message: Message) -> bytes:
    return b"id: %s-%d\r\n%s" % (hub.boot.encode(), message.seq, message.text)
