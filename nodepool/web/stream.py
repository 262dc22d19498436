# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/events/stream``: Server-Sent Events, by which pages and programs learn at once that something changed.

A page is sent its live part itself, which is made once for all who look at it. First the route, then the messages for
all viewers (`EventHub`), then the messages themselves.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nodepool.clock import monotonic, wall_time
from nodepool.guard import Guard, OnError
from nodepool.web.answers import WebProblem, to_json
from nodepool.web.logins import user_of
from nodepool.web.snapshot import ANY, RecordKind, SnapshotMaker, WebSnapshot

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send


#: The name of the hub in the state of the application's lifespan.
HUB: Final = "event_hub"
#: A comment is sent so often, so that nothing between server and viewer takes the connection for dead.
PING_SECONDS: Final = 15
_PING: Final = b": ping\r\n\r\n"
#: A viewer that was refused may try again after so long.
RETRY_SECONDS: Final = 10


class EventStream(StreamingResponse):
    """The answer to one viewer.

    :param first: what it gets first.
    :param seconds: the stream ends after so long, with the login of the viewer; None = there is none.
    """

    media_type = "text/event-stream"

    def __init__(self, hub: EventHub, viewer: Viewer, first: Sequence[Message], seconds: float | None = None) -> None:
        # Nothing between server and viewer keeps what is sent.
        super().__init__(_encoded(hub, viewer, first), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._hub = hub
        self._viewer = viewer
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with anyio.move_on_after(self._seconds) as login:
                await super().__call__(scope, receive, send)
            if login.cancelled_caught:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._hub.leave(self._viewer)


def route(page_of: Callable[[Request], LivePage | None]) -> Route:
    """The stream. The application has the hub in the state of its lifespan.

    :param page_of: the page whose live part a viewer wants; None = it wants to be notified only.
    """

    async def stream(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        hub: EventHub = getattr(request.state, HUB)
        client = request.client.host if request.client else ""
        viewer, first = await hub.join(request.headers.get("last-event-id"), client, page_of(request))
        user = user_of(request)
        return EventStream(hub, viewer, first, None if user is None else max(1.0, user.expires - wall_time()))

    return Route("/api/v1/events/stream", stream, methods=["GET"])


async def _encoded(hub: EventHub, viewer: Viewer, first: Sequence[Message]) -> AsyncIterator[bytes]:
    for message in first:
        yield message.encoded(hub.boot)
    async for one in viewer.messages():
        yield _PING if one is None else one.encoded(hub.boot)


# `EventHub`: makes the messages of the stream of events, once for all viewers.

log = logging.getLogger("nodepool.web")

#: Viewers at a time.
MOST_VIEWERS: Final = 200
#: A viewer that is so many messages behind is dropped. It may come back.
MOST_BEHIND: Final = 1000
#: How often the snapshot is looked at while there are viewers and nothing changes.
LOOK_SECONDS: Final = 0.25
#: So long before a look ZooKeeper is asked for what is known to have changed and was not read yet.
READ_SECONDS: Final = 0.1
#: Least time between two messages about records of one kind. A page that follows them shows a change within a second.
CHANGES_SECONDS: Final = 0.7
#: What viewers are notified of is not older. All of them ask for parts of pages then, made of the same snapshot.
FRESH_SECONDS: Final = 0.2
#: After an error the next look is so much later.
LOOK_AGAIN_SECONDS: Final = 10.0


class LivePage(NamedTuple):
    """A page that has a viewer.

    :param place: of two with the same one the live parts are the same.
    :param make: makes the part: the kinds of records that it shows, and its HTML; empty = its viewers have the same,
        which happens only if the argument, whether there is a new one, is False.
    """

    place: str
    make: Callable[[bool], tuple[Collection[str], str]]


#: What a page is taken to show until its first part is made.
_EVERYTHING: Final = frozenset(RecordKind)


class Viewer:
    """One stream. For the event loop.

    :param client: its address. ``page``: it gets the live part of this one; None = it is notified of changes.
    """

    def __init__(self, client: str = "", page: LivePage | None = None) -> None:
        self.client = client
        self.page = page
        #: The page shows such records, as far as that is known yet.
        self.kinds: frozenset[str] = _EVERYTHING
        #: Messages that it has not got yet.
        self.waiting: deque[Message] = deque()
        #: Set when there are messages, or `ended` is.
        self.woken = asyncio.Event()
        #: It gets no more messages.
        self.ended = False

    async def messages(self) -> AsyncIterator[Message | None]:
        """What follows, until it is dropped or the hub stops; None = there was nothing for some time."""
        while not self.ended:
            if self.waiting:
                yield self.waiting.popleft()
                continue
            self.woken.clear()
            with anyio.move_on_after(PING_SECONDS) as waited:
                await self.woken.wait()
            if waited.cancelled_caught:
                yield None


class EventHub:
    """For one event loop. It looks at the snapshots only while there are viewers.

    :param version: of this release, for the viewers.
    """

    def __init__(self, snapshots: SnapshotMaker, version: str) -> None:
        self._snapshots = snapshots
        self._version = version
        #: Distinguishes numbers of this hub from those of another process, or of one before.
        self.boot = secrets.token_hex(4)
        #: Number of the last message; 0 = there was none.
        self._seq = 0
        #: In the order in which they came.
        self._viewers: dict[Viewer, None] = {}
        self._someone = asyncio.Event()
        self._stopping = False
        self._looking = asyncio.Lock()
        # Not one of the threads in which answers are made: those may be busy.
        self._thread = CapacityLimiter(1)
        self._changes_at = -CHANGES_SECONDS
        #: Number of the snapshot of the last look.
        self._snapshot_number = 0

    async def join(
        self, last_id: str | None, client: str = "", page: LivePage | None = None
    ) -> tuple[Viewer, Sequence[Message]]:
        """A new viewer, and what it gets first. The caller calls `leave` at the end.

        :param last_id: of the last message that the viewer got, as it reports; None = it comes for the first time.
        :param client: its address. ``page``: see `Viewer`.
        :raises WebProblem: it is refused.
        """
        if self._stopping or (len(self._viewers) >= MOST_VIEWERS and not self._make_room(client)):
            text = "There are too many viewers of events, or the server stops."
            raise WebProblem(503, text, headers={"Retry-After": str(RETRY_SECONDS)})
        viewer = Viewer(client, page)
        self._viewers[viewer] = None
        if not self._someone.is_set():
            # There was no look for some time: has a viewer that comes back missed something?
            with OnError(lambda _error: self.leave(viewer)), Guard(log, "Error while looking for events"):
                await self.look()
            self._someone.set()
        viewer.waiting.clear()
        # A page that shows another snapshot was made before, and does not know what has changed since.
        content = {"seq": self._seq, "version": self._version, "snapshot": self._snapshot_number}
        first = [Message(self._seq, HELLO, content)]
        if last_id is not None and last_id != f"{self.boot}-{self._seq}":
            first.append(Message(self._seq, RESET, {"seq": self._seq}))
        return viewer, first

    def _make_room(self, client: str) -> bool:
        """For a viewer of a client. A few addresses must not take the streams of all others."""
        counts = Counter(viewer.client for viewer in self._viewers)
        most, count = counts.most_common(1)[0]
        if count <= counts[client] + 1:
            return False
        self.leave(next(viewer for viewer in self._viewers if viewer.client == most))
        return True

    def leave(self, viewer: Viewer) -> None:
        """The viewer has left, or is dropped; both may happen."""
        viewer.ended = True
        viewer.woken.set()
        self._viewers.pop(viewer, None)
        if not self._viewers:
            self._someone.clear()

    def stop(self) -> None:
        """End all streams. Call in the event loop."""
        self._stopping = True
        for viewer in list(self._viewers):
            self.leave(viewer)

    async def run(self) -> None:
        """Look at the snapshots for as long as there are viewers; ends when it is cancelled."""
        while True:
            await self._someone.wait()
            # A snapshot that is made before viewers may be notified would be old then.
            await asyncio.sleep(max(0.0, self._changes_at + CHANGES_SECONDS - READ_SECONDS - monotonic()))
            with Guard(log, "Error while looking for events; trying again in %g s", LOOK_AGAIN_SECONDS) as looked:
                await anyio.to_thread.run_sync(self._snapshots.refresh, limiter=self._thread)
                await asyncio.sleep(READ_SECONDS)
                await self.look()
            await asyncio.sleep(LOOK_AGAIN_SECONDS if looked.error else LOOK_SECONDS - READ_SECONDS)

    async def look(self) -> None:
        """Make messages of what changed since the last look, for all viewers, and drop those far behind."""
        async with self._looking:
            may_notify = monotonic() >= self._changes_at + CHANGES_SECONDS
            snapshot, changes = await anyio.to_thread.run_sync(self._shown, may_notify, limiter=self._thread)
            self._snapshot_number = snapshot.number
            for kind, ids in sorted(changes.items()):
                self._changes_at = monotonic()
                known = ids != ANY
                self._add(kind, {"count": len(ids) if known else None, "ids": sorted(ids)[:MOST_IDS] if known else []})
            await self._send_parts(changes.keys())
        for viewer in list(self._viewers):
            if len(viewer.waiting) > MOST_BEHIND:
                log.info("A viewer of events is dropped: it is %d messages behind", len(viewer.waiting))
                self.leave(viewer)

    def _shown(self, with_changes: bool) -> tuple[WebSnapshot, Mapping[RecordKind, frozenset[str]]]:
        """The latest snapshot and what it has that those before had not."""
        snapshot = self._snapshots.latest(FRESH_SECONDS)
        return snapshot, self._snapshots.take_changes() if with_changes else {}

    def _add(self, name: str, data: Mapping[str, Any]) -> None:
        self._seq += 1
        message = Message(self._seq, name, {"seq": self._seq, **data})
        for viewer in self._viewers:
            if viewer.page is None:
                viewer.waiting.append(message)
                viewer.woken.set()

    async def _send_parts(self, kinds: Collection[str]) -> None:
        """Send each page that shows such records its live part, made once for all its viewers."""
        viewers: defaultdict[str, list[Viewer]] = defaultdict(list)
        makers = {}
        for viewer in self._viewers:
            if viewer.page is not None and not viewer.kinds.isdisjoint(kinds):
                viewers[viewer.page.place].append(viewer)
                makers[viewer.page.place] = viewer.page.make
        for place, make in makers.items():
            with Guard(log, "The live part of a page cannot be made: %s", place):
                is_new = any(viewer.kinds is _EVERYTHING for viewer in viewers[place])
                shown, html = await anyio.to_thread.run_sync(make, is_new, limiter=self._thread)
                message = Message(self._seq, PART, {"seq": self._seq, "html": html})
                for viewer in viewers[place]:
                    viewer.kinds = frozenset(shown)
                    if html:
                        # Of a slow one only the last part waits.
                        viewer.waiting = deque([message])
                        viewer.woken.set()


# Messages of the stream of events.

#: Ids in one message. The viewers ask for what they show, whatever changed.
MOST_IDS: Final = 50

HELLO: Final = "hello"
RESET: Final = "reset"
#: The live part of a page.
PART: Final = "part"


@dataclass(frozen=True)
class Message:
    """One message, the same for all viewers.

    :param seq: number; each one has the next.
    :param data: what is sent.
    """

    seq: int
    name: str
    data: Mapping[str, Any]

    @cached_property
    def _text(self) -> bytes:
        """Name and content, without the id; made once for all viewers. A JSON text has one line."""
        return b"event: %s\r\ndata: %s\r\n\r\n" % (self.name.encode(), to_json(self.data))

    def encoded(self, boot: str) -> bytes:
        """A Server-Sent Event. ``boot``: of the hub."""
        return b"id: %s-%d\r\n%s" % (boot.encode(), self.seq, self._text)
