# SPDX-License-Identifier: Apache-2.0
"""What every daemon serves beside its metrics: health, and what Nodepool 11.0.0 serves.

First the application, then health, then the listings, then which form of an answer a client prefers, then the build
logs of a builder.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodepool.builder.image_files import all_logs, open_log
from nodepool.clock import monotonic, wall_time
from nodepool.config.webapp import wrong_host
from nodepool.listing.images import build_table, image_status_table, upload_table
from nodepool.listing.nodes import NodeFacts, node_table
from nodepool.listing.requests import label_table, request_table
from nodepool.listing.table import Place, Table, render, selected, shown
from nodepool.web.answers import KEPT_SECONDS, KeptAnswer, KeptAnswers
from nodepool.web.server import ON_STOP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.runtime.daemon import ConnectedDaemon
    from nodepool.web.snapshot import SnapshotMaker, WebSnapshot

#: Answers are made in so many threads at most, so that they leave room for the daemon.
THREADS: Final = 2


def make_app(routes: Sequence[BaseRoute]) -> Starlette:
    """The application of a launcher or a builder; nothing runs yet."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        stop = anyio.Event()
        yield {_STOP: stop, ON_STOP: [stop.set]}

    app = Starlette(routes=routes, lifespan=lifespan)
    # A path with a slash too many is another path, as in Nodepool 11.0.0.
    app.router.redirect_slashes = False
    app.add_middleware(Pieces)
    return app


# Parts of an answer that are sent one after the other, each when the client has read the one before.

PIECE: Final = 64 * 1024
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


class AllowedHosts(TrustedHostMiddleware):
    """Middleware.

    :param hosts: names of these pages; ``*.example.org`` = all below it. What cannot be a name allows none. Addresses
        and ``localhost`` are always allowed: no attacker can make them mean another host.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        names = [host.lower().rstrip(".") for host in hosts if wrong_host(host) is None]
        super().__init__(app, [*names, "localhost"], www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "")
            if scope["path"].startswith(OPEN_PATHS) or _is_address(host):
                await self.app(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def _is_address(host: str) -> bool:
    """Is the host of a header ``Host`` an address?"""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# ``/health/live``, ``/health/ready`` and ``/health/status``, as Zuul's components have them.

#: A main loop that has not turned for so long is stuck.
STUCK_SECONDS: Final = 120.0


def health(daemon: ConnectedDaemon, version: str, complete: Callable[[], bool] = lambda: True) -> list[BaseRoute]:
    """For load balancers, systemd and orchestrators. None of them blocks or makes a snapshot.

    :param version: of this release.
    :param complete: are the caches complete?
    """

    def loop_age_seconds() -> float:
        return max(0.0, monotonic() - daemon.last_loop)

    def is_alive() -> bool:
        # A main loop that has not begun yet is not stuck.
        return not daemon.ready.is_set() or loop_age_seconds() < STUCK_SECONDS

    def is_ready() -> bool:
        return daemon.ready.is_set() and daemon.connected and complete()

    def probe(path: str, is_ok: Callable[[], bool]) -> Route:
        async def answer(_request: Request) -> Response:
            return PlainTextResponse("OK", 200) if is_ok() else PlainTextResponse("not ok", 503)

        return Route(path, answer)

    async def status(_request: Request) -> Response:
        return JSONResponse(
            {
                "kind": daemon.kind,
                "version": version,
                "state": "running" if daemon.ready.is_set() else "initializing",
                "live": is_alive(),
                "ready": is_ready(),
                "connected": daemon.connected,
                "reload_errors": list(daemon.reload_errors),
                "loop_age_seconds": round(loop_age_seconds(), 3),
            }
        )

    return [probe("/health/live", is_alive), probe("/health/ready", is_ready), Route("/health/status", status)]


# The endpoints of Nodepool 11.0.0, as its clients know them (reference/commands 6; WP-1 to WP-8).

#: All of them do the same.
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
#: For so long an answer is given again, see `KeptAnswers`.
CACHE_SECONDS: Final = int(KEPT_SECONDS)
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


def _nodes(snapshot: WebSnapshot, question: Question) -> Table:
    seen = snapshot.observed
    found = [seen.nodes.get(question.node_id)] if question.node_id else seen.nodes.values()
    return node_table([node for node in found if node is not None], NodeFacts(set(seen.locked)), seen.now, detail=True)


_LOOKS: Final[Mapping[str, _Look]] = {
    "/image-list": lambda shown, asked: upload_table(shown.images, shown.observed.now, moments=asked.as_json),
    "/dib-image-list": lambda shown, asked: build_table(
        shown.images, shown.observed.now, moments=asked.as_json, pauses=False
    ),
    "/image-status": lambda shown, asked: image_status_table(shown.images, shown.observed.now, moments=asked.as_json),
    "/node-list": _nodes,
    "/request-list": lambda shown, _asked: request_table(shown.observed.requests.values(), shown.observed.now),
    "/label-list": lambda shown, _asked: label_table(shown.observed.registered),
}


def listings(
    daemon: ConnectedDaemon, snapshots: SnapshotMaker, now: Callable[[], float] = wall_time
) -> list[BaseRoute]:
    """The listings, and ``/ready``.

    :param now: seconds since the epoch.
    """
    recent = KeptAnswers(now)

    def listing(path: str, look: _Look) -> Route:
        def endpoint(request: Request) -> Response:
            question = question_of(request)
            answer = recent.get((path, question))
            if answer is None:
                answer = recent.put((path, question), _body(look(snapshots.latest(), question), question))
            return _response(request, answer, as_json=question.as_json)

        return Route(path, endpoint, methods=_METHODS)

    def ready(request: Request) -> Response:
        if not daemon.ready.is_set():
            return PlainTextResponse("503 Service Unavailable\n", 503)
        return _response(request, KeptAnswer(now(), b"OK"), as_json=question_of(request).as_json)

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
    made_at = int(answer.made_at)
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Cache-Control": f"max-age={CACHE_SECONDS}, public",
        "Last-Modified": formatdate(made_at, usegmt=True),
        "Expires": formatdate(made_at + CACHE_SECONDS, usegmt=True),
    }
    if _has(request, made_at):
        return Response(status_code=304, headers=headers)
    return Response(answer.body, headers={**headers, "Content-Type": _JSON if as_json else _TEXT})


def _has(request: Request, made_at: int) -> bool:
    """Does the client have an answer of that time already (If-Modified-Since)?"""
    text = request.headers.get("if-modified-since")
    if text is None or request.method not in ("GET", "HEAD"):
        return False
    try:
        return made_at <= parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return False


# Which form of an answer a client prefers (RFC 9110, Accept).

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_RANGE: Final = re.compile(rf"(\*/\*|{_TOKEN}/(?:\*|{_TOKEN}))((?:\s*;\s*{_TOKEN}=(?:{_TOKEN}|\"[^\"]*\"))*)")
_WEIGHT: Final = re.compile(r";\s*q=([^\s;]*)", re.IGNORECASE)
_QUALITY: Final = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")
_TEXTS: Final = ("text/html", "text/plain")


def prefers_json(header: str | None) -> bool:
    """Does a client want JSON more than text?

    :param header: value of ``Accept``; None, and one that cannot be read, is no preference.
    """
    weights = _weights(header or "")

    def weight(media_type: str) -> float:
        """Of the range that names the type most exactly."""
        ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
        return next((weights[name] for name in ranges if name in weights), 0.0)

    return weight(_JSON) > max(map(weight, _TEXTS))


def _weights(header: str) -> dict[str, float]:
    """Each range of media types -> its weight, 0 to 1; empty if the header cannot be read. Parameters do not count."""
    found: dict[str, float] = {}
    for part in header.split(","):
        text = part.strip()
        if not text:
            continue
        match = _RANGE.fullmatch(text)
        weight = _WEIGHT.search(text)
        quality = "1" if weight is None else weight[1]
        if match is None or not _QUALITY.fullmatch(quality):
            return {}
        found[match[1].lower()] = float(quality)
    return found


# The build logs of a builder, as text. That of a running build grows while a client reads it.

#: Logs that the list has; the newest are in it.
MOST_LOGS: Final = 500
#: What is read at a time, in bytes.
_CHUNK: Final = 1 << 16
#: Between two looks at a log that grows.
LOOK_SECONDS: Final = 0.5
_STOP: Final = "stop_event"


def build_logs(directory: str, running: Callable[[], Collection[str]]) -> list[BaseRoute]:
    """The list of logs, and each log.

    :param directory: ``build-log-dir``.
    :param running: ids of the builds that run; any thread.
    """

    def listing(_request: Request) -> Response:
        return PlainTextResponse("".join(f"{log.name}\n" for log in all_logs(directory)[:MOST_LOGS]))

    def log(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            file = open_log(directory, name)
        except OSError:
            return PlainTextResponse("There is no such log.\n", 404)

        async def chunks() -> AsyncIterator[bytes]:
            with file:
                while True:
                    # Asked first: what was written before the build ended is read below.
                    grows = name.rpartition("-")[2] in running()
                    while chunk := await anyio.to_thread.run_sync(file.read, _CHUNK):
                        yield chunk
                    if not grows or stop.is_set():
                        return
                    with anyio.move_on_after(LOOK_SECONDS):
                        await stop.wait()

        stop: anyio.Event = getattr(request.state, _STOP)
        headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        return StreamingResponse(chunks(), media_type="text/plain; charset=utf-8", headers=headers)

    return [Route("/", listing), Route("/logs/{name}", log)]
