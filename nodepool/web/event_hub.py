# SPDX-License-Identifier: Apache-2.0
"""`EventHub`: makes the messages of the stream of events, once for all viewers."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from anyio import CapacityLimiter

from nodepool.clock import monotonic
from nodepool.guard import Guard, OnError
from nodepool.web.event_messages import EVENT, HELLO, RESET, Message, MessageLog, NewEvents, of_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.web.changed_records import RecordKind
    from nodepool.web.site import Snapshots
    from nodepool.web.snapshot import WebSnapshot

log = logging.getLogger("nodepool.web")

#: Viewers at a time. For one more, the client with most of them loses its oldest one, or the new one is refused.
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
RETRY_SECONDS: Final = 10.0


class TooManyViewers(Exception):
    """No more viewers can be served, or the server stops."""


class Viewer:
    """One stream. For the event loop.

    :param seq: of the last message that it has.
    :param client: its address.
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

    def __init__(self, snapshots: Snapshots, version: str, clock: Callable[[], float] = monotonic) -> None:
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

    @property
    def viewers(self) -> int:
        """How many there are."""
        return len(self._viewers)

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

    async def messages(self, viewer: Viewer) -> AsyncIterator[Message]:
        """What follows for a viewer, until it is dropped or the hub stops."""
        while True:
            missing = self._log.missing(viewer.seq)
            if viewer.ended or missing is None:
                return
            if missing:
                message = self._log.get(viewer.seq + 1)
                yield message
                viewer.seq = message.seq
            else:
                viewer.woken.clear()
                await viewer.woken.wait()

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
            with Guard(log, "Error while looking for events; trying again in %g s", RETRY_SECONDS) as looked:
                await anyio.to_thread.run_sync(self._snapshots.refresh, limiter=self._thread)
                await asyncio.sleep(READ_SECONDS)
                await self.look()
            await asyncio.sleep(RETRY_SECONDS if looked.error else LOOK_SECONDS - READ_SECONDS)

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


def _snapshot(snapshots: Snapshots, with_changes: bool) -> tuple[WebSnapshot, Mapping[RecordKind, frozenset[str]]]:
    """The latest snapshot and what it has that those before had not."""
    snapshot = snapshots.latest(FRESH_SECONDS)
    return snapshot, snapshots.take_changes() if with_changes else {}


@asynccontextmanager
async def running(hub: EventHub) -> AsyncIterator[None]:
    """A task that runs the hub meanwhile."""
    task: asyncio.Task[Any] = asyncio.create_task(hub.run(), name="EventHub")
    try:
        yield
    finally:
        hub.stop()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
