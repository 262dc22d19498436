# SPDX-License-Identifier: Apache-2.0
"""`ServerList`: one list of servers that serves all launches and deletions of a provider (O-8).

While somebody waits for a server, a thread lists them: often when something can be expected to happen, seldom when
it takes long, and not at all when nobody waits. Most of these lists only ask for what changed, and then tell even of
servers that are gone; from time to time all servers are listed, because what changed can be overlooked.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.openstack.errors import CloudRefused
from nodepool.driver.openstack.views import Server

log = logging.getLogger("nodepool.driver.openstack.servers")

#: Between two lists while something is about to happen; and when all have waited for long.
SHORTEST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 3.0
#: Many share the cost of a list: pauses are shorter when more than so many wait, down to a part of their length.
CROWD: Final = 40
SHORTEST_PART: Final = 0.4
#: The last of a crowd are still part of it: with each list it is only so much smaller.
CROWD_SHRINKS: Final = 0.95
#: The pause is this part of the time that the youngest has waited.
PAUSE_SHARE: Final = 1 / 10
#: After an error; doubled after each further one.
ERROR_PAUSE_SECONDS: Final = 1.0
LONGEST_ERROR_PAUSE_SECONDS: Final = 15.0
#: How old the last complete list may become while somebody waits.
COMPLETE_SECONDS: Final = 20.0
#: Changes are asked for from so long before the latest one that was seen: services round to seconds, clocks differ.
OVERLAP: Final = timedelta(seconds=5)
#: How long it is known that a server is gone.
GONE_SECONDS: Final = 900.0
#: Whoever did not look for so long does not wait any more. All who do are advanced every few seconds.
FORGOTTEN_SECONDS: Final = 20.0
#: Of so many latest waits the shortest one says when to begin to look. The last ones of a burst are its longest.
REMEMBERED_WAITS: Final = 100


class Watch:
    """Somebody who waits for a server; made by `ServerList.watch`.

    :param kind: what for; waits of one kind are expected to take about equally long.
    :param wake: called in the thread of the list when there is news; must not block.
    :param server_id: only news of this server; None = woken after each list.
    :param complete: complete lists are needed: it looks for something that may have been overlooked, or is absent.
    """

    def __init__(
        self, kind: str, wake: Callable[[], None], now: float, server_id: str | None = None, complete: bool = False
    ) -> None:
        self.kind = kind
        self.wake = wake
        self.since = now
        self.touched = now
        self.server_id = server_id
        self.complete = complete


class ServerList:
    """Servers of one provider, as last seen. Thread-safe.

    ``_changed`` guards everything; it is not held while the cloud is asked.

    :param fetch: lists servers, all or those changed since a time; blocks.
    """

    def __init__(
        self,
        provider: str,
        fetch: Callable[[str | None], Iterable[Server]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.provider = provider
        self._fetch = fetch
        self._clock = clock
        self._changed = threading.Condition()
        self._servers: dict[str, Server] = {}
        #: When the list began in which a server was last seen.
        self._seen: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        #: When the latest list, and the latest complete list, began.
        self.listed_at = float("-inf")
        self.complete_at = float("-inf")
        #: The same of the complete list before.
        self._complete_before = float("-inf")
        self._latest_change = ""
        self._by_changes = True
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._waits: dict[str, deque[float]] = {}
        self._next = float("-inf")
        #: How many wait, or waited a moment ago.
        self._crowd = 0.0
        #: Until when the thread waits; the past while it does not.
        self._waiting_until = float("-inf")
        #: Lists in a row that failed.
        self.failures = 0
        #: Lists that failed since the beginning.
        self.failed_lists = 0
        self._thread: threading.Thread | None = None
        self._stopped = False
        #: Told after each list, in the thread that listed: servers that are new or changed.
        self.on_news: Callable[[list[Server]], None] = lambda servers: None

    # -- who waits --

    def watch(self, kind: str, wake: Callable[[], None], server_id: str | None = None, complete: bool = False) -> Watch:
        """Begin to wait; ends with `done`, or when the watch is not touched any more. Starts the thread.

        Parameters as those of `Watch`.
        """
        watch = Watch(kind, wake, self._clock(), server_id, complete)
        with self._changed:
            self._add(watch)
            if self._thread is None and not self._stopped:
                self._thread = self._start()
        return watch

    def _add(self, watch: Watch) -> None:
        """Called with the lock. The thread looks at all watches when it is woken: only if it has to list earlier."""
        self._watches.add(watch)
        if max(self._due(watch, self._clock()), self._next) < self._waiting_until:
            self._changed.notify_all()

    def _start(self) -> threading.Thread | None:
        """The thread that lists; tests have none."""
        thread = threading.Thread(target=self._run, name=f"openstack-list-{self.provider}", daemon=True)
        thread.start()
        return thread

    def touch(self, watch: Watch) -> None:
        """The watch is still needed."""
        with self._changed:
            watch.touched = self._clock()
            if watch not in self._watches:
                self._add(watch)

    def done(self, watch: Watch, happened: bool = True) -> None:
        """The wait is over.

        :param happened: what was waited for came; False = it was given up.
        """
        with self._changed:
            self._watches.discard(watch)
            if happened:
                waits = self._waits.setdefault(watch.kind, deque(maxlen=REMEMBERED_WAITS))
                waits.append(self._clock() - watch.since)

    def stop(self) -> None:
        """End the thread; it is not waited for."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the thread, after `stop`."""
        with self._changed:
            thread = self._thread
        if thread is not None:
            thread.join()

    # -- what is known --

    def get(self, server_id: str) -> Server | None:
        """A server as last seen; None = not seen, or gone."""
        with self._changed:
            return self._servers.get(server_id)

    def is_gone(self, server_id: str) -> bool:
        """Did the cloud say that the server does not exist any more? Its absence from a list does not count."""
        with self._changed:
            return server_id in self._gone

    def absence_is_certain(self, since: float) -> bool:
        """Would a server that was there at that time have been seen since?

        After a complete list that lacks it there must have been one of changes, which may say that it is gone. While
        somebody needs complete lists, and there are no others, a second one must do.
        """
        with self._changed:
            another = self.listed_at > self.complete_at or self._complete_before > since
            return self.complete_at > since and (another or not self._by_changes)

    def set_gone(self, server_id: str) -> None:
        """The cloud said so elsewhere."""
        with self._changed:
            self._servers.pop(server_id, None)
            self._gone[server_id] = self._clock()

    def of_node(self, node_id: str) -> list[Server]:
        """Servers whose metadata names a node."""
        with self._changed:
            return [server for server in self._servers.values() if server.metadata.get("nodepool_node_id") == node_id]

    def all(self, max_age: float) -> list[Server]:
        """All servers; asks the cloud unless the last complete list is at most ``max_age`` seconds old. Blocks."""
        with self._changed:
            fresh = self._clock() - self.complete_at <= max_age
        if not fresh:
            self.refresh(complete=True)
        with self._changed:
            return list(self._servers.values())

    # -- lists --

    def refresh(self, complete: bool) -> None:
        """Ask the cloud now; blocks.

        :param complete: all servers; else the changed ones, if there is a time to ask from.
        """
        started = self._clock()
        with self._changed:
            since = "" if complete or not self._by_changes else _minus(self._latest_change)
        try:
            servers = list(self._fetch(since or None))
        except CloudRefused as error:
            if not since:
                raise
            log.info("Provider %s: the cloud does not list changes, all servers are listed: %s", self.provider, error)
            with self._changed:
                self._by_changes = False
            since = ""
            servers = list(self._fetch(None))
        news, wake = self._take(servers, started, complete=not since)
        if news:
            self.on_news(news)
        for watch in wake:
            watch.wake()

    def _take(self, servers: list[Server], started: float, complete: bool) -> tuple[list[Server], list[Watch]]:
        """Store a list; returns what is new, and who is to be woken."""
        news: list[Server] = []
        changed: set[str] = set()
        with self._changed:
            for server in servers:
                if self._seen.get(server.id, float("-inf")) > started:
                    continue
                self._latest_change = max(self._latest_change, server.updated)
                if server.gone:
                    if server.id not in self._gone:
                        changed.add(server.id)
                        self._gone[server.id] = started
                    self._servers.pop(server.id, None)
                    self._seen.pop(server.id, None)
                    continue
                self._seen[server.id] = started
                if server.id not in self._gone and self._servers.get(server.id) != server:
                    self._servers[server.id] = server
                    changed.add(server.id)
                    news.append(server)
            if complete:
                for server_id in [key for key, seen in self._seen.items() if seen < started]:
                    del self._seen[server_id]
                    self._servers.pop(server_id, None)
                    changed.add(server_id)
                if started > self.complete_at:
                    self._complete_before, self.complete_at = self.complete_at, started
                for server_id in [key for key, when in self._gone.items() if when < started - GONE_SECONDS]:
                    del self._gone[server_id]
            self.listed_at = max(self.listed_at, started)
            self._crowd = max(len(self._watches), self._crowd * CROWD_SHRINKS)
            wake = [w for w in self._watches if w.server_id is None or w.complete or w.server_id in changed]
        return news, wake

    # -- the thread --

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and (pause := self._pause()) > 0:
                    self._waiting_until = self._clock() + pause
                    self._changed.wait(None if pause == float("inf") else pause)
                    self._waiting_until = float("-inf")
                if self._stopped:
                    return
                now = self._clock()
                complete = now - self.complete_at > COMPLETE_SECONDS or any(w.complete for w in self._watches)
            self.poll(complete)

    def poll(self, complete: bool) -> None:
        """One turn of the thread: list, and decide when to list again. Does not raise."""
        started = self._clock()
        try:
            self.refresh(complete)
        # Whatever it is: the thread goes on, and so do all who wait for it.
        except Exception as error:  # noqa: BLE001 - logged below
            with self._changed:
                self.failures += 1
                self.failed_lists += 1
                pause = min(LONGEST_ERROR_PAUSE_SECONDS, ERROR_PAUSE_SECONDS * 2.0 ** min(self.failures - 1, 10))
                self._next = self._clock() + pause
            log.warning("%s; listed again in %g s", error, pause)
        else:
            with self._changed:
                self.failures = 0
                took = self._clock() - started
                # A busy API must not be asked all the time; the longer the pause, the later is news of everybody.
                self._next = self._clock() + max(SHORTEST_PAUSE_SECONDS * self._haste, took)

    @property
    def _haste(self) -> float:
        """Pauses are this part of their length."""
        return min(1.0, max(SHORTEST_PART, CROWD / max(1.0, self._crowd)))

    def _pause(self) -> float:
        """Seconds until the next list; infinite while nobody waits. Called with the lock."""
        now = self._clock()
        for watch in [w for w in self._watches if now - w.touched > FORGOTTEN_SECONDS]:
            self._watches.discard(watch)
        due = min((self._due(watch, now) for watch in self._watches), default=float("inf"))
        return max(due, self._next) - now

    def _due(self, watch: Watch, now: float) -> float:
        """When to list for one watch: seldom before about the shortest time that such a wait took lately.

        But not never: the cloud may have been busier then.
        """
        waits = self._waits.get(watch.kind)
        begin = watch.since + (0.7 * min(waits) if waits else 0.0)
        if now < begin and not watch.complete:
            return min(begin, max(watch.since, self.listed_at) + LONGEST_PAUSE_SECONDS)
        waited = max(0.0, now - max(begin, watch.since))
        pause = min(LONGEST_PAUSE_SECONDS, max(SHORTEST_PAUSE_SECONDS, waited * PAUSE_SHARE))
        return max(watch.since, self.listed_at + pause * self._haste)


def _minus(stamp: str) -> str:
    """A time of Nova, a little earlier; "" when it is none."""
    try:
        when = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return ""
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - OVERLAP).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
