# SPDX-License-Identifier: Apache-2.0
"""Addresses that a client names and that we send a browser to: never those of another site."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from starlette.requests import Request


def own_address(request: Request, wanted: str) -> str:
    """An address of ours, below the place where a proxy has put these pages.

    :param wanted: path and query below that place. A scheme or a host in it becomes part of a path.
    """
    path = "/" + wanted.replace("\\", "/").lstrip("/")
    return f"{request.scope.get('root_path', '')}{quote(path, safe='/?=&%:@+,;~!$()*-._', errors='replace')}"
