# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/events/stream``: Server-Sent Events, by which pages and programs learn at once that something changed.

First the route, then the messages for all viewers (`EventHub`), then the messages themselves.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nodepool.clock import monotonic, wall_time
from nodepool.guard import Guard, OnError
from nodepool.model.status import MAX_EVENTS
from nodepool.web.answers import WebProblem, to_json
from nodepool.web.logins import user_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from nodepool.model.event import Event
    from nodepool.model.status import LauncherStatus
    from nodepool.web.snapshot import RecordKind, SnapshotMaker, WebSnapshot

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


def route() -> Route:
    """The stream. The application has the hub in the state of its lifespan."""

    async def stream(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        hub: EventHub | None = getattr(request.state, HUB, None)
        client = request.client.host if request.client else ""
        try:
            if hub is None:
                raise TooManyViewers
            viewer, first = await hub.join(request.headers.get("last-event-id"), client)
        except TooManyViewers:
            text = "There are too many viewers of events, or the server stops."
            raise WebProblem(503, text, headers={"Retry-After": str(RETRY_SECONDS)}) from None
        user = user_of(request)
        return EventStream(hub, viewer, first, None if user is None else max(1.0, user.expires - wall_time()))

    return Route("/api/v1/events/stream", stream, methods=["GET"])


async def _encoded(hub: EventHub, viewer: Viewer, first: Sequence[Message]) -> AsyncIterator[bytes]:
    for message in first:
        yield message.encoded(hub.boot)
    async for one in hub.messages(viewer):
        yield _PING if one is None else one.encoded(hub.boot)


# `EventHub`: makes the messages of the stream of events, once for all viewers.

log = logging.getLogger("nodepool.web")

#: Viewers at a time.
MOST_VIEWERS: Final = 200
#: A viewer that comes back is told so many messages that it missed; of more only that there were.
MOST_MISSED: Final = 500
#: A viewer that is so many messages behind is dropped. It may come back.
MOST_BEHIND: Final = 1000
#: Messages that are kept. One look makes a few hundred at most.
KEPT_MESSAGES: Final = 2000
#: How often the snapshot is looked at while there are viewers and nothing changes.
LOOK_SECONDS: Final = 0.25
#: So long before a look ZooKeeper is asked for what is known to have changed and was not read yet.
READ_SECONDS: Final = 0.1
#: Least time between two messages about records of one kind. A page that follows them shows a change within a second.
CHANGES_SECONDS: Final = 0.7
#: What viewers are told of is not older. All of them ask for parts of pages then, which are made of the same snapshot.
FRESH_SECONDS: Final = 0.2
#: After an error the next look is so much later.
LOOK_AGAIN_SECONDS: Final = 10.0


class TooManyViewers(Exception):
    """No more viewers can be served, or the server stops."""


class Viewer:
    """One stream. For the event loop.

    :param seq: of the last message that it has. ``client``: its address.
    """

    def __init__(self, seq: int, client: str = "") -> None:
        self.seq = seq
        self.client = client
        #: Set when there are messages, or `ended` is.
        self.woken = asyncio.Event()
        #: It gets no more messages.
        self.ended = False

    def end(self) -> None:
        """Give it no more messages."""
        self.ended = True
        self.woken.set()


class EventHub:
    """For one event loop. It looks at the snapshots only while there are viewers.

    :param version: of this release, for the viewers.
    :param clock: monotonic seconds.
    """

    def __init__(self, snapshots: SnapshotMaker, version: str, clock: Callable[[], float] = monotonic) -> None:
        self._snapshots = snapshots
        self._version = version
        self._clock = clock
        #: Tells numbers of this hub from those of another process, or of one before.
        self.boot = secrets.token_hex(4)
        self._log = MessageLog(KEPT_MESSAGES)
        #: In the order in which they came.
        self._viewers: dict[Viewer, None] = {}
        self._someone = asyncio.Event()
        self._stopping = False
        self._looking = asyncio.Lock()
        # Not one of the threads in which answers are made: those may be busy.
        self._thread = CapacityLimiter(1)
        self._new_events: NewEvents | None = None
        self._changes_at = -CHANGES_SECONDS
        #: Number of the snapshot of the last look.
        self._snapshot_number = 0

    async def join(self, last_id: str | None, client: str = "") -> tuple[Viewer, Sequence[Message]]:
        """A new viewer, and what it is told first. Whoever calls it calls `leave` at the end.

        :param last_id: of the last message that the viewer got, as it tells; None = it comes for the first time.
        :param client: its address.
        :raises TooManyViewers: it is refused.
        """
        if self._stopping or (len(self._viewers) >= MOST_VIEWERS and not self._make_room(client)):
            raise TooManyViewers
        viewer = Viewer(self._log.seq, client)
        self._viewers[viewer] = None
        if not self._someone.is_set():
            # Nobody looked for some time. What happened meanwhile is for those who come back.
            with OnError(lambda _error: self.leave(viewer)), Guard(log, "Error while looking for events"):
                await self.look()
            self._someone.set()
        resumed = None if last_id is None else self._number(last_id)
        missed = None if resumed is None else self._log.missing(resumed)
        resumes = missed is not None and missed <= MOST_MISSED
        # A viewer that is lost before it has all that it missed must come back with the old number.
        viewer.seq = resumed if resumed is not None and resumes else self._log.seq
        # A page that shows another snapshot was made before, and was not told what has changed since.
        told = {"seq": viewer.seq, "version": self._version, "snapshot": self._snapshot_number}
        first = [Message(viewer.seq, HELLO, told)]
        if last_id is not None and not resumes:
            first.append(Message(viewer.seq, RESET, {"seq": viewer.seq}))
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
        """The viewer is gone; it may have been dropped already."""
        viewer.end()
        self._viewers.pop(viewer, None)
        if not self._viewers:
            self._someone.clear()

    async def messages(self, viewer: Viewer) -> AsyncIterator[Message | None]:
        """What follows for a viewer, until it is dropped or the hub stops; None = there was nothing for some time."""
        while True:
            missing = self._log.missing(viewer.seq)
            if viewer.ended or missing is None:
                return
            if missing:
                message = self._log.get(viewer.seq + 1)
                yield message
                viewer.seq = message.seq
                continue
            viewer.woken.clear()
            with anyio.move_on_after(PING_SECONDS) as waited:
                await viewer.woken.wait()
            if waited.cancelled_caught:
                yield None

    def stop(self) -> None:
        """End all streams. Call in the event loop."""
        self._stopping = True
        for viewer in list(self._viewers):
            self.leave(viewer)

    async def run(self) -> None:
        """Look at the snapshots for as long as there are viewers; ends when it is cancelled."""
        while True:
            await self._someone.wait()
            # A snapshot that is made before something may be told of it would be old then.
            await asyncio.sleep(max(0.0, self._tell_at() - READ_SECONDS - self._clock()))
            with Guard(log, "Error while looking for events; trying again in %g s", LOOK_AGAIN_SECONDS) as looked:
                await anyio.to_thread.run_sync(self._snapshots.refresh, limiter=self._thread)
                await asyncio.sleep(READ_SECONDS)
                await self.look()
            await asyncio.sleep(LOOK_AGAIN_SECONDS if looked.error else LOOK_SECONDS - READ_SECONDS)

    async def look(self) -> None:
        """Make messages of what changed since the last look, wake the viewers, and drop those far behind."""
        async with self._looking:
            work = partial(_snapshot, self._snapshots, self._clock() >= self._tell_at())
            snapshot, changes = await anyio.to_thread.run_sync(work, limiter=self._thread)
            self._snapshot_number = snapshot.number
            before = self._log.seq
            for name, data in of_changes(changes):
                self._changes_at = self._clock()
                self._log.add(name, data)
            self._add_events(snapshot)
        if self._log.seq == before:
            return
        for viewer in list(self._viewers):
            viewer.woken.set()
            if self._log.seq - viewer.seq > MOST_BEHIND:
                log.info("A viewer of events is dropped: it is %d messages behind", self._log.seq - viewer.seq)
                self.leave(viewer)

    def _tell_at(self) -> float:
        """When viewers may be told of changes again."""
        return self._changes_at + CHANGES_SECONDS

    def _add_events(self, snapshot: WebSnapshot) -> None:
        if self._new_events is None:
            self._new_events = NewEvents(snapshot.observed.now)
        events = self._new_events.take(snapshot.launchers)
        if events is None:
            self._log.add(RESET, {})
        for event in events or ():
            self._log.add(EVENT, event.to_dict())

    def _number(self, last_id: str) -> int | None:
        """The number in an id of ours; None = it is none."""
        boot, _, number = last_id.partition("-")
        valid = boot == self.boot and number.isascii() and number.isdigit() and len(number) < 20
        return int(number) if valid else None


def _snapshot(snapshots: SnapshotMaker, with_changes: bool) -> tuple[WebSnapshot, Mapping[RecordKind, frozenset[str]]]:
    """The latest snapshot and what it has that those before had not."""
    snapshot = snapshots.latest(FRESH_SECONDS)
    return snapshot, snapshots.take_changes() if with_changes else {}


# Messages of the stream of events: what changed between two snapshots, and the last ones of them by number.

#: Ids in one message. The viewers ask for what they show, whatever changed.
MOST_IDS: Final = 50
#: Events that are told one by one; more of them at a time cause a `RESET`.
MOST_EVENTS: Final = 200
#: Launchers that went whose last events are remembered, so that nothing is told again when they come back.
MOST_GONE: Final = 200

HELLO: Final = "hello"
EVENT: Final = "event"
RESET: Final = "reset"

#: Name and content of a message.
Told = tuple[str, dict[str, Any]]


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


class MessageLog:
    """The last messages. For one thread.

    :param size: how many are kept; older ones are forgotten.
    """

    def __init__(self, size: int) -> None:
        self._messages: deque[Message] = deque(maxlen=size)
        #: Number of the last message; 0 = there was none.
        self.seq = 0

    def add(self, name: str, data: Mapping[str, Any]) -> None:
        self.seq += 1
        self._messages.append(Message(self.seq, name, {"seq": self.seq, **data}))

    def missing(self, seq: int) -> int | None:
        """How many messages came after that number; None = some of them are forgotten, or it is to come."""
        count = self.seq - seq
        return count if 0 <= count <= len(self._messages) else None

    def get(self, seq: int) -> Message:
        """The message with that number, which is kept."""
        return self._messages[seq - self.seq - 1]


def of_changes(changes: Mapping[RecordKind, Set[str]]) -> Iterator[Told]:
    """One message for each kind of records of which something changed.

    :param changes: the ids that are known; '' = any may have changed.
    """
    for kind, ids in sorted(changes.items()):
        any_of_them = "" in ids
        shown = [] if any_of_them else sorted(ids)[:MOST_IDS]
        yield kind.value, {"count": None if any_of_them else len(ids), "ids": shown}


class NewEvents:
    """Finds the events that launchers report and had not reported before; each one once. For one thread.

    :param since: of a launcher that is seen for the first time, earlier events are not new; in seconds since the epoch.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        #: Host and process of each launcher -> the events that it told last.
        self._told: dict[tuple[str, int], frozenset[Event]] = {}

    def take(self, launchers: Sequence[LauncherStatus]) -> Sequence[Event] | None:
        """The new events of all launchers, the oldest first; None = some were lost, or there are too many to tell."""
        found: list[Event] = []
        complete = True
        for launcher in launchers:
            key = launcher.host, launcher.pid
            before = self._told.pop(key, None)
            now = frozenset(launcher.events)
            self._told[key] = now
            if before is None:
                found += [event for event in launcher.events if event.at >= self._since]
            elif now != before:
                found += [event for event in launcher.events if event not in before]
                complete = complete and not _overrun(before, now, launcher)
        # Those seen last are at the end.
        for key in list(self._told)[: max(0, len(self._told) - len(launchers) - MOST_GONE)]:
            del self._told[key]
        if not complete or len(found) > MOST_EVENTS:
            return None
        return sorted(found, key=lambda event: event.at)


def _overrun(before: Set[Event], now: Set[Event], launcher: LauncherStatus) -> bool:
    """May there have been events between two lists that neither has? Lists are bounded."""
    full = launcher.omitted > 0 or len(launcher.events) >= MAX_EVENTS
    return full and bool(before) and not before & now
