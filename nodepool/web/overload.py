# SPDX-License-Identifier: Apache-2.0
"""`Overload`: too many connections are open, so most requests are refused, and those of probes are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

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
