# SPDX-License-Identifier: Apache-2.0
"""The ASGI application (`make_app`). Each group of routes has a function ``routes(site)``.

First the application, then answers in pieces and hosts that are allowed, then the endpoints of 11.0.0, then health.
"""

from __future__ import annotations

import ipaddress
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodepool.clock import monotonic, wall_time
from nodepool.listing.images import build_table, image_status_table, upload_table
from nodepool.listing.nodes import NodeFacts, node_table
from nodepool.listing.requests import label_table, request_table
from nodepool.listing.table import Place, Table, render, selected, shown
from nodepool.web import metrics, stream, writes
from nodepool.web.answers import http_error, prefers_json
from nodepool.web.api import routes as api_routes
from nodepool.web.changes import making
from nodepool.web.logins import Logins
from nodepool.web.pages import all_pages, overview
from nodepool.web.pages.frame import KeptAnswers, KeptParts
from nodepool.web.pages.overview import History, sampling
from nodepool.web.server import ON_STOP
from nodepool.web.site import Site
from nodepool.web.stream import EventHub, running

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

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
        health_routes(site),
        metrics.routes(site),
        routes(site),
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


# The endpoints of Nodepool 11.0.0, as its clients know them (reference/commands 6; WP-1 to WP-8).

#: All of them do the same.
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
#: For so long an answer is given again.
CACHE_SECONDS: Final = 1
#: Answers that are kept at a time, each of at most `MOST_BYTES`.
MOST_ANSWERS: Final = 8
MOST_BYTES: Final = 8_000_000
_TEXT: Final = "text/plain; charset=UTF-8"
_JSON: Final = "application/json"


@dataclass(frozen=True)
class Question:
    """What a client asks for.

    :param fields: keys of the columns of a text table; empty = all.
    :param node_id: the only node that is wanted; empty = all.
    """

    as_json: bool
    fields: tuple[str, ...] = ()
    node_id: str = ""


#: The snapshot, and what is asked for -> all columns of the table that Nodepool 11.0.0 has.
_Look = Callable[["WebSnapshot", Question], Table]


def _images(snapshot: WebSnapshot, question: Question) -> Table:
    return upload_table(snapshot.images, snapshot.observed.now, moments=question.as_json)


def _builds(snapshot: WebSnapshot, question: Question) -> Table:
    return build_table(snapshot.images, snapshot.observed.now, moments=question.as_json, pauses=False)


def _image_status(snapshot: WebSnapshot, question: Question) -> Table:
    return image_status_table(snapshot.images, snapshot.observed.now, moments=question.as_json)


def _nodes(snapshot: WebSnapshot, question: Question) -> Table:
    seen = snapshot.observed
    wanted = [seen.nodes[question.node_id]] if question.node_id in seen.nodes else []
    nodes = wanted if question.node_id else list(seen.nodes.values())
    return node_table(nodes, NodeFacts(set(seen.locked)), seen.now, detail=True)


def _requests(snapshot: WebSnapshot, question: Question) -> Table:
    return request_table(snapshot.observed.requests.values(), snapshot.observed.now)


def _labels(snapshot: WebSnapshot, question: Question) -> Table:
    return label_table(snapshot.observed.registered)


_LOOKS: Final[Mapping[str, _Look]] = {
    "/image-list": _images,
    "/dib-image-list": _builds,
    "/image-status": _image_status,
    "/node-list": _nodes,
    "/request-list": _requests,
    "/label-list": _labels,
}


@dataclass(frozen=True)
class KeptAnswer:
    """A body, and when it was made, in whole seconds since the epoch."""

    body: bytes
    made_at: int


class RecentAnswers:
    """Answers of the last second. Any thread.

    :param now: seconds since the epoch.
    """

    def __init__(self, now: Callable[[], float] = wall_time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, Question], tuple[float, KeptAnswer]] = {}

    def get(self, path: str, question: Question, make: Callable[[], bytes]) -> KeptAnswer:
        """The answer that is there, or a new one; two threads may make it at a time.

        :param make: makes the body.
        """
        now = self._now()
        with self._lock:
            made_at, answer = self._answers.get((path, question), (0.0, None))
        if answer is not None and 0 <= now - made_at < CACHE_SECONDS:
            return answer
        answer = KeptAnswer(make(), int(now))
        with self._lock:
            self._answers = {key: kept for key, kept in self._answers.items() if 0 <= now - kept[0] < CACHE_SECONDS}
            if len(answer.body) <= MOST_BYTES and len(self._answers) < MOST_ANSWERS:
                self._answers[(path, question)] = (now, answer)
        return answer


def routes(site: Site, now: Callable[[], float] = wall_time) -> list[BaseRoute]:
    """The listings, and ``/ready``.

    :param now: seconds since the epoch.
    """
    recent = RecentAnswers(now)

    def listing(path: str, look: _Look) -> Route:
        def endpoint(request: Request) -> Response:
            question = question_of(request)
            answer = recent.get(path, question, lambda: _body(look(site.snapshots.latest(), question), question))
            return _response(request, answer, as_json=question.as_json)

        return Route(path, endpoint, methods=_METHODS)

    def ready(request: Request) -> Response:
        if not site.daemon.ready.is_set():
            return PlainTextResponse("503 Service Unavailable\n", 503)
        return _response(request, KeptAnswer(b"OK", int(now())), as_json=question_of(request).as_json)

    return [
        *(listing(path, look) for path, look in _LOOKS.items()),
        Route("/ready", ready, methods=_METHODS),
    ]


def question_of(request: Request) -> Question:
    """What a request asks for; of a parameter that is there twice the last one counts."""
    query = request.scope["query_string"].decode("latin-1").replace(";", "&")
    given = dict(parse_qsl(query, keep_blank_values=True))
    fields = tuple(given["fields"].split(",")) if given.get("fields") else ()
    return Question(prefers_json(request.headers.get("accept")), fields, given.get("node_id", ""))


def _body(table: Table, question: Question) -> bytes:
    table = shown(table, Place.TABLE)
    if question.as_json:
        keys = [column.key for column in table.columns]
        return json.dumps([dict(zip(keys, row, strict=True)) for row in table.rows]).encode()
    if question.fields:
        wanted = [column.key for column in table.columns if column.key in question.fields]
        if not wanted:
            # What the table of no column of Nodepool 11.0.0 looks like: with a line for each row.
            return b"++\n||\n++\n" + b"\n" * len(table.rows) + b"++"
        table = selected(table, wanted)
    return render(table).encode("utf-8", "replace")


def _response(request: Request, answer: KeptAnswer, *, as_json: bool) -> Response:
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Cache-Control": f"max-age={CACHE_SECONDS}, public",
        "Last-Modified": formatdate(answer.made_at, usegmt=True),
        "Expires": formatdate(answer.made_at + CACHE_SECONDS, usegmt=True),
    }
    if _has(request, answer):
        return Response(status_code=304, headers=headers)
    return Response(answer.body, headers={**headers, "Content-Type": _JSON if as_json else _TEXT})


def _has(request: Request, answer: KeptAnswer) -> bool:
    """Does the client have this answer already (If-Modified-Since)?"""
    text = request.headers.get("if-modified-since")
    if text is None or request.method not in ("GET", "HEAD"):
        return False
    try:
        return answer.made_at <= parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return False


# ``/health/live``, ``/health/ready`` and ``/health/status``, as Zuul's components have them.


def health_routes(site: Site) -> list[BaseRoute]:
    """For load balancers, systemd and orchestrators. None of them blocks or makes a snapshot."""

    async def live(_request: Request) -> Response:
        return _answer(site.alive)

    async def ready(_request: Request) -> Response:
        return _answer(site.ready)

    async def status(_request: Request) -> Response:
        state = "running" if site.daemon.ready.is_set() else "initializing"
        return JSONResponse(
            {
                "kind": site.daemon.kind,
                "version": site.version,
                "state": state,
                "live": site.alive,
                "ready": site.ready,
                "connected": site.daemon.connected,
                "reload_errors": list(site.daemon.reload_errors),
                "loop_age_seconds": round(site.loop_age_seconds, 3),
            }
        )

    return [Route("/health/live", live), Route("/health/ready", ready), Route("/health/status", status)]


def _answer(ok: bool) -> Response:
    return PlainTextResponse("OK", 200) if ok else PlainTextResponse("not ok", 503)
