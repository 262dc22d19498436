# SPDX-License-Identifier: Apache-2.0
"""`AllowedHosts`: requests for a name that is not ours are refused: the defence against DNS rebinding (ADR 21)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: For probes of load balancers, which often send no name that means something.
OPEN_PATHS: Final = ("/health/", "/ready")


class AllowedHosts:
    """Middleware.

    :param hosts: names of these pages; ``*.example.org`` = all below it. Addresses and ``localhost`` are always
        allowed: nobody can make them mean another host.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._suffixes = tuple(host[1:] for host in self._hosts if host.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(OPEN_PATHS):
            given = Headers(scope=scope).get("host", "")
            if not self.allows(given):
                text = "This name is none of webapp.allowed-hosts.\n"
                await PlainTextResponse(text, 421)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def allows(self, given: str) -> bool:
        """May a request have this ``Host``?"""
        host = _name(given)
        return bool(host) and (
            host == "localhost" or host in self._hosts or host.endswith(self._suffixes or ("\0",)) or _is_address(host)
        )


def _name(given: str) -> str:
    """The host of a ``Host`` header, without port."""
    if given.startswith("["):
        return given[1:].partition("]")[0]
    return given.partition(":")[0].lower().rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
