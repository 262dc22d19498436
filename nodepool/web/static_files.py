# SPDX-License-Identifier: Apache-2.0
"""``/static``: style sheets and scripts. Their addresses have a hash, so that browsers keep them for ever."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

_DIRECTORY: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class StaticFile:
    """One file.

    :param digest: of its content.
    """

    content: bytes
    media_type: str
    digest: str


class StaticFiles:
    """All of them, in memory. The constructor blocks for the file system."""

    def __init__(self, directory: Path = _DIRECTORY) -> None:
        self._files: Mapping[str, StaticFile] = {
            path.relative_to(directory).as_posix(): _read(path)
            for path in sorted(directory.rglob("*"))
            if path.suffix in _TYPES
        }

    def address(self, name: str) -> str:
        """Where a file is, relative to the root of the site. Raises KeyError: there is none of this name."""
        return f"static/{name}?v={self._files[name].digest}"

    def route(self) -> Route:
        async def answer(request: Request) -> Response:
            file = self._files.get(request.path_params["name"])
            if file is None:
                return PlainTextResponse("There is no such file.", 404)
            same = request.query_params.get("v") == file.digest
            headers = {"Cache-Control": _FOR_EVER if same else "no-cache", "ETag": f'"{file.digest}"'}
            if request.headers.get("if-none-match") == headers["ETag"]:
                return Response(status_code=304, headers=headers)
            return Response(file.content, headers=headers, media_type=file.media_type)

        return Route("/static/{name:path}", answer)


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(content, _TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:16])
