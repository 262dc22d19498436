# SPDX-License-Identifier: Apache-2.0
"""The ASGI application of ``nodepool-web`` (`make_app`): pages, API, live events and logins."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodepool.web import api, changes, stream
from nodepool.web.answers import StaticFiles, http_error
from nodepool.web.logins import Logins
from nodepool.web.pages import subjects
from nodepool.web.pages.frame import Frame, MakePage
from nodepool.web.pages.login import LoginPages
from nodepool.web.pages.overview import MOST_SAMPLES, Sample, charts_route, overview_page, take_samples
from nodepool.web.served import THREADS, Pieces
from nodepool.web.server import ON_STOP
from nodepool.web.stream import HUB, EventHub

if TYPE_CHECKING:
    from nodepool.web.changes import Access
    from nodepool.web.snapshot import SnapshotMaker

#: Nothing is loaded from elsewhere, and no script stands within a page.
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class SecurityHeaders:
    """Middleware that adds `SECURITY_HEADERS` to each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


def make_app(
    snapshots: SnapshotMaker,
    version: str,
    served: Iterable[BaseRoute],
    *,
    zuul_url: str | None = None,
    builder_url: str | None = None,
    access: Access | None = None,
) -> Starlette:
    """The application of ``nodepool-web``; nothing runs yet. Blocks for the file system, which has templates and files.

    :param version: of this release.
    :param served: routes that other daemons have, too.
    :param zuul_url: where Zuul's pages are, for links; None = there are none.
    :param builder_url: where the logs of a builder are, with ``{}`` for its host; None = builders have none.
    :param access: None = everybody may look, and nobody can change anything.
    """
    history: deque[Sample] = deque(maxlen=MOST_SAMPLES)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        hub = EventHub(snapshots, version)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.run)
            tasks.start_soon(take_samples, history, snapshots)
            yield {HUB: hub, ON_STOP: [hub.stop]}
            hub.stop()
            tasks.cancel_scope.cancel()

    pages: list[tuple[str, MakePage]] = [
        ("/", overview_page),
        ("/requests", subjects.requests_page),
        ("/nodes", subjects.nodes_page),
        ("/providers", subjects.providers_page),
        ("/hosts", subjects.hosts_page),
        ("/labels", subjects.labels_page),
        ("/launchers", subjects.launchers_page),
        ("/images", subjects.images_page),
        ("/tenants", subjects.tenants_page),
        ("/events", subjects.events_page),
        # Names may have a "/" in them.
        ("/requests/{name:path}", partial(subjects.request_page, zuul_url=zuul_url)),
        ("/nodes/{name:path}", subjects.node_page),
        ("/providers/{name:path}", subjects.provider_page),
        ("/labels/{name:path}", subjects.label_page),
        ("/images/{name:path}", partial(subjects.image_page, builder_url=builder_url)),
    ]
    files = StaticFiles()
    frame = Frame(snapshots, version, files, logins=access is not None)
    routes = [
        # Before the API, which has the same addresses to look at.
        *([] if access is None else changes.routes(snapshots, access.actions)),
        *served,
        stream.route(),
        charts_route(history),
        *api.routes(snapshots, version, zuul_url, with_changes=access is not None),
        files.route(),
        *([] if access is None else LoginPages(frame, access).routes()),
        *(frame.route(path, make) for path, make in pages),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: http_error})
    # A path with a slash too many is another path, as in Nodepool 11.0.0; behind a proxy the redirect would be wrong.
    app.router.redirect_slashes = False
    # The last one is the first that sees a request.
    if access is not None:
        login = access.require_login
        app.add_middleware(Logins, verify=access.tokens.checked, require_login=login, origins=access.origins)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Pieces)
    return app
