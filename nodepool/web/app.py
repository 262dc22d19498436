# SPDX-License-Identifier: Apache-2.0
"""`make_app`: the ASGI application. Each group of routes has a module with ``routes(site)``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodepool.clock import monotonic
from nodepool.web import health, metrics, released, stream, writes
from nodepool.web.api import routes as api_routes
from nodepool.web.event_hub import EventHub, running
from nodepool.web.history import History, sampling
from nodepool.web.logins import Logins
from nodepool.web.pages import all_pages, charts
from nodepool.web.pages.kept_answers import KeptAnswers
from nodepool.web.pages.kept_parts import KeptParts
from nodepool.web.pending_changes import making
from nodepool.web.pieces import Pieces
from nodepool.web.problem import http_error
from nodepool.web.server import ON_STOP
from nodepool.web.site import Site

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
        health.routes(site),
        metrics.routes(site),
        released.routes(site),
        stream.routes(),
        charts.routes(history),
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
