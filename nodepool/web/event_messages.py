# SPDX-License-Identifier: Apache-2.0
"""Messages of the stream of events: what became of two snapshots, and the last ones of them by number."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sse_starlette.event import ServerSentEvent

from nodepool.model.status import MAX_EVENTS
from nodepool.web.any_json import to_json

if TYPE_CHECKING:
    from nodepool.model.event import Event
    from nodepool.model.status import LauncherStatus
    from nodepool.web.changed_records import RecordKind

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
    def text(self) -> bytes:
        """Name and content as a Server-Sent Event without its id; made once for all viewers."""
        return ServerSentEvent(to_json(self.data).decode(), event=self.name).encode()


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
