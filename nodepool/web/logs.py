# SPDX-License-Identifier: Apache-2.0
"""The pages of a builder: its build logs, and what a build that runs is writing just now."""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from nodepool.builder.image_files import all_logs, open_log
from nodepool.listing import table
from nodepool.listing.table import Column, Table, printable_log, size
from nodepool.web.answers import StaticFiles, root_of
from nodepool.web.app import THREADS, SecurityHeaders
from nodepool.web.pages.frame import LongText, Templates, address, table_view
from nodepool.web.server import ON_STOP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request


#: Logs that the list has; the newest are in it.
MOST_LOGS: Final = 500
#: The end of a log that its page has at first, in bytes.
TAIL_BYTES: Final = 1 << 16
#: What a viewer is sent at a time, in bytes.
_CHUNK: Final = 1 << 16
#: Between two looks at a log that grows.
LOOK_SECONDS: Final = 0.5
#: A comment is sent when nothing was written for so many looks, so that a viewer that has gone is noticed.
_LOOKS_PER_PING: Final = 30
MOST_VIEWERS: Final = 50
_STOP: Final = "stop_event"


@dataclass(frozen=True)
class LogSite:
    """What the pages are about.

    :param host: of the builder. ``directory``: ``build-log-dir``. ``running``: ids of the builds that run; any thread.
    :param now: seconds since the epoch.
    """

    host: str
    version: str
    directory: str
    running: Callable[[], Collection[str]]
    now: Callable[[], float]

    def is_running(self, name: str) -> bool:
        """Is the build of a log running?"""
        return name.rpartition("-")[2] in self.running()


class LogPages:
    """Endpoints. The constructor blocks for the file system."""

    def __init__(self, site: LogSite) -> None:
        self._site = site
        self._files = StaticFiles()
        self._templates = Templates(self._files, site.version)
        #: Of streams. Only the event loop changes it.
        self._viewers = 0

    def routes(self) -> list[Route]:
        return [
            self._files.route(),
            Route("/", self._list),
            Route("/logs/{name}", self._log),
            Route("/logs/{name}/text", self._text),
            Route("/logs/{name}/stream", self._stream),
        ]

    def _list(self, request: Request) -> Response:
        logs = all_logs(self._site.directory)[:MOST_LOGS]
        columns = (
            Column("Build", "name"),
            Column("State", "state"),
            Column("Written", "modified", table.since(self._site.now())),
            Column("Size", "size", size),
        )
        rows = [
            [log.name, "building" if self._site.is_running(log.name) else None, log.modified, log.size] for log in logs
        ]
        view = table_view("Build logs", Table(columns, rows), {"name": lambda name, _row: address("logs", name)})
        return self._page(request, "logs.html", f"Build logs of {self._site.host}", view=view)

    def _log(self, request: Request) -> Response:
        name = request.path_params["name"]
        running = self._site.is_running(name)
        try:
            text, end = tail(self._site.directory, name)
        except OSError:
            text = f"There is no log of {name} on {self._site.host}."
            return self._page(request, "no_log.html", "Not found", 404, text=text)
        values: dict[str, Any] = {"running": running, "tail": LongText(text), "stream": None}
        if running:
            values["stream"] = f"{address('logs', name, 'stream')}?from={end}"
        return self._page(request, "log.html", f"Log of {name}", text=address("logs", name, "text"), **values)

    def _page(self, request: Request, template: str, title: str, status: int = 200, **values: Any) -> Response:
        content = self._templates.render(
            template, title=title, root=root_of(request), navigation=(("", "Build logs"),), here="", **values
        )
        return Response(content, status, {"Cache-Control": "no-cache"}, "text/html; charset=utf-8")

    def _text(self, request: Request) -> Response:
        """All of a log, as it is."""
        try:
            file = open_log(self._site.directory, request.path_params["name"])
        except OSError:
            return PlainTextResponse("There is no such log.", 404)

        def chunks() -> Iterator[bytes]:
            with file:
                while chunk := file.read(_CHUNK):
                    yield chunk

        return StreamingResponse(
            chunks(), media_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-cache"}
        )

    async def _stream(self, request: Request) -> Response:
        """What is added to a log, from a byte on, as Server-Sent Events."""
        begin = request.headers.get("last-event-id") or request.query_params.get("from") or "0"
        if not (begin.isascii() and begin.isdigit() and len(begin) < 16):
            return PlainTextResponse("from must be a number of bytes.", 400)
        stop: anyio.Event | None = getattr(request.state, _STOP, None)
        if stop is None or self._viewers >= MOST_VIEWERS:
            return PlainTextResponse("There are too many viewers, or the server stops.", 503)
        messages = self._messages(request.path_params["name"], int(begin), stop)
        return StreamingResponse(messages, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _messages(self, name: str, begin: int, stop: anyio.Event) -> AsyncIterator[str]:
        self._viewers += 1
        looks = 0
        tail = LogTail(self._site.directory, name, begin)
        try:
            while not stop.is_set():
                # Asked first: what was written before the build ended is read below.
                running = self._site.is_running(name)
                text = await anyio.to_thread.run_sync(tail.read)
                if text:
                    looks = 0
                    yield f"id: {tail.position}\ndata: {json.dumps(text)}\n\n"
                elif not running:
                    yield "event: end\ndata: {}\n\n"
                    return
                else:
                    looks += 1
                    if looks % _LOOKS_PER_PING == 0:
                        yield ": ping\n\n"
                    with anyio.move_on_after(LOOK_SECONDS):
                        await stop.wait()
        finally:
            self._viewers -= 1


class LogTail:
    """Reads on in a log. For one thread at a time.

    :param position: the next byte; `read` moves it on.
    """

    def __init__(self, directory: str, name: str, position: int) -> None:
        self._directory = directory
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._read_to = position

    @property
    def position(self) -> int:
        """Behind the last whole character that was read."""
        return self._read_to - len(self._decoder.getstate()[0])

    def read(self) -> str:
        """What follows; empty = nothing, or the log is not there. Blocks for the file system."""
        try:
            with open_log(self._directory, self._name) as file:
                file.seek(self._read_to)
                data = file.read(_CHUNK)
        except OSError:
            return ""
        self._read_to += len(data)
        return printable_log(self._decoder.decode(data))


def tail(directory: str, name: str) -> tuple[str, int]:
    """The end of a log from the begin of a line on, and its size in bytes. Blocks for the file system.

    :raises OSError: there is no such log.
    """
    with open_log(directory, name) as file:
        end = file.seek(0, 2)
        begin = max(0, end - TAIL_BYTES)
        file.seek(begin)
        data = file.read(end - begin)
    if begin:
        data = data.partition(b"\n")[2]
    return printable_log(data.decode("utf-8", "replace")), end


def make_logs_app(site: LogSite, more: Sequence[Route] = ()) -> Starlette:
    """The application of a builder; nothing runs yet.

    :param more: further routes.
    """

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        stop = anyio.Event()
        ends: Sequence[Callable[[], None]] = [stop.set]
        yield {_STOP: stop, ON_STOP: ends}
        stop.set()

    app = Starlette(routes=[*LogPages(site).routes(), *more], lifespan=lifespan)
    app.router.redirect_slashes = False
    app.add_middleware(SecurityHeaders)
    return app
