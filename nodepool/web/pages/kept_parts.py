# SPDX-License-Identifier: Apache-2.0
"""`KeptParts`: live parts of pages that were made for one viewer just now, for all others.

With many viewers nearly all requests are for such a part. They need no thread, and no route is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from nodepool.web.pages.kept_answers import KeptAnswers

#: Of each answer with a page or a part of one.
HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-cache",
    "Vary": "HX-Request",
    "Content-Type": "text/html; charset=utf-8",
}
_RAW_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
#: How the script of the pages asks for a part.
_PART: Final = (b"hx-request", b"true")


class KeptParts:
    """Middleware: within those that say who may look, and outside of the routes.

    :param current: number of the snapshot of which answers may be given; None = a new one is due. It must not block.
    """

    def __init__(self, app: ASGIApp, kept: KeptAnswers, current: Callable[[], int | None]) -> None:
        self._app = app
        self._kept = kept
        self._current = current

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        content = self._found(scope) if scope["type"] == "http" else None
        if content is None:
            await self._app(scope, receive, send)
            return
        headers = [*_RAW_HEADERS, (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _found(self, scope: Scope) -> bytes | None:
        if scope["method"] != "GET" or _PART not in scope["headers"]:
            return None
        number = self._current()
        return None if number is None else self._kept.get(key_of(scope), number)


def key_of(scope: Scope) -> str:
    """What a part is asked for: path and query, as they were sent."""
    path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    query: bytes = scope["query_string"]
    return f"{path.decode('latin-1')}?{query.decode('latin-1')}"
