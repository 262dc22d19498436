# SPDX-License-Identifier: Apache-2.0
"""`make_app`: the ASGI application. Each group of routes has a module with ``routes(site)``."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodepool.clock import monotonic
from nodepool.web import metrics, released, stream, writes
from nodepool.web.answers import http_error
from nodepool.web.api import routes as api_routes
from nodepool.web.changes import making
from nodepool.web.logins import Logins
from nodepool.web.pages import all_pages, overview
from nodepool.web.pages.frame import KeptAnswers, KeptParts
from nodepool.web.pages.overview import History, sampling
from nodepool.web.server import ON_STOP
from nodepool.web.site import Site
from nodepool.web.stream import EventHub, running

#: Endpoints that compute run in so many threads at most, so that they leave room for the daemon.
THREADS: Final = 2
#: Nothing is loaded from elsewhere, and no script stands within a page.
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


_SECURITY_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


class SecurityHeaders:
    """Middleware that adds `SECURITY_HEADERS` to each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                missing = [header for header in _SECURITY_HEADERS if header[0] not in there]
                message = {**message, "headers": [*message["headers"], *missing]}
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


def make_app(site: Site) -> Starlette:
    """The application of a daemon; nothing runs yet."""
    history = History()
    kept = KeptAnswers(monotonic)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        hub = EventHub(site.snapshots, site.version)
        pending = None if site.access is None else site.access.pending
        waiting = nullcontext() if pending is None else making(pending)
        async with running(hub), sampling(history, site.snapshots), waiting:
            yield {stream.HUB: hub, ON_STOP: [hub.stop]}

    groups = [
        released.health_routes(site),
        metrics.routes(site),
        released.routes(site),
        stream.routes(),
        overview.routes(history),
        api_routes.routes(site),
        all_pages.routes(site, kept),
    ]
    if site.access is not None:
        # Before the API, which has the same addresses to look at.
        groups.insert(0, writes.routes(site, site.access.actions))
    app = Starlette(
        routes=[route for group in groups for route in group],
        lifespan=lifespan,
        exception_handlers={HTTPException: http_error},
    )
    # A path with a slash too many is another path, as in Nodepool 11.0.0; behind a proxy the redirect would be wrong.
    app.router.redirect_slashes = False
    # The last one is the first that sees a request.
    app.add_middleware(KeptParts, kept=kept, current=site.snapshots.current)
    if site.access is not None:
        app.add_middleware(
            Logins,
            verify=site.access.user,
            require_login=site.access.require_login,
            origins=site.access.origins,
        )
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Pieces)
    return app


# `Pieces`: long answers are sent piece by piece, so that a client that does not read keeps only one in memory.

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


# `AllowedHosts`: requests for a name that is not ours are refused: the defence against DNS rebinding (ADR 21).

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
