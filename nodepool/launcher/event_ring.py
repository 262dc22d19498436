# SPDX-License-Identifier: Apache-2.0
"""`EventRing`: the last events of a launcher, in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from nodepool.clock import wall_time
from nodepool.model.event import Event, What, clipped

#: Events that are kept.
SIZE: Final = 2000
#: The same event of another request or node within so many seconds is counted, not kept again. It is looked for among
#: as many of the last events.
JOIN_SECONDS: Final = 60.0
JOIN_DEPTH: Final = 20
#: Kinds of subjects that come in hundreds for one cause.
_MANY: Final = frozenset({"request", "node"})


class EventRing:
    """Any thread may add and read; neither blocks. ``_lock`` is held for a few operations of the memory.

    :param size: how many events are kept; older ones are forgotten.
    :param clock: seconds since the epoch.
    """

    def __init__(self, size: int = SIZE, clock: Callable[[], float] = wall_time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=size)
        #: Called after each event, in the thread that adds it; must not block.
        self.on_event: Callable[[], None] = lambda: None

    def add(self, actor: str, subject: str, what: What, text: str = "", code: str = "") -> None:
        """Note what happened now. Parameters as for `Event`."""
        self.put(Event(self._clock(), actor, subject, what.value, code, clipped(text)))

    def put(self, event: Event) -> None:
        """Note an event that is made already."""
        with self._lock:
            self._events.append(self._joined(replace(event, text=clipped(event.text))))
        self.on_event()

    def _joined(self, event: Event) -> Event:
        """An event together with one that it repeats, which is not kept any more."""
        if event.kind not in _MANY:
            return event
        for back in range(1, min(len(self._events), JOIN_DEPTH) + 1):
            earlier = self._events[-back]
            if event.at - earlier.at < JOIN_SECONDS and event.repeats(earlier):
                del self._events[-back]
                return event.joined_to(earlier)
        return event

    def last(self, count: int) -> list[Event]:
        """The newest events, the oldest of them first."""
        with self._lock:
            events = list(self._events)
        return events[-count:] if count else []
