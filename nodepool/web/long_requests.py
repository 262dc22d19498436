# SPDX-License-Identifier: Apache-2.0
"""`LongRequests`: requests whose address or headers are very long are refused before anybody reads them."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

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
