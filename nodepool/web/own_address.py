# SPDX-License-Identifier: Apache-2.0
"""Addresses of ours, as a browser behind any proxy finds them; those that a client names are never another site's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from starlette.requests import Request


def root_of(request: Request) -> str:
    """The way from a page to the root of the site, e.g. ``../``: a reverse proxy may have put it below a prefix."""
    return "../" * (_raw_path(request).count("/") - 1) or "./"


def place_of(request: Request) -> str:
    """Where a request asks: path and query, encoded, from the root of the site."""
    query: bytes = request.scope["query_string"]
    path = _raw_path(request).lstrip("/")
    return f"{path}?{query.decode('latin-1')}" if query else path


def own_address(request: Request, wanted: str) -> str:
    """An address of ours, relative to that of the request.

    :param wanted: path and query from the root of the site. A scheme or a host in it becomes part of a path.
    """
    path = wanted.replace("\\", "/").lstrip("/")
    return f"{root_of(request)}{quote(path, safe='/?=&%:@+,;~!$()*-._', errors='replace')}"


def _raw_path(request: Request) -> str:
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"], errors="replace").encode()
    return raw.partition(b"?")[0].decode("latin-1")
