# SPDX-License-Identifier: Apache-2.0
"""`Pieces`: long answers are sent piece by piece, so that a client that does not read keeps only one in memory."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: The server waits before each piece until the client has taken those before, in bytes.
PIECE: Final = 1 << 16
_BODY: Final = "http.response.body"


class Pieces:
    """Middleware. All clients of one answer share its text; without pieces the server copies it for each of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = message.get("body", b"") if message["type"] == _BODY else b""
            if len(body) <= PIECE:
                await send(message)
                return
            for begin in range(0, len(body), PIECE):
                more = begin + PIECE < len(body) or message.get("more_body", False)
                await send({"type": _BODY, "body": body[begin : begin + PIECE], "more_body": more})

        await self._app(scope, receive, send_pieces if scope["type"] == "http" else send)
