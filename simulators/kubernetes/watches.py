# SPDX-License-Identifier: Apache-2.0
"""Watches: lines of JSON that come for as long as the client wants."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulators.base.messages import AnswerStream, ApiError
from simulators.kubernetes import settings as kinds
from simulators.kubernetes.errors import expired, status_object
from simulators.kubernetes.kinds import ObjectKind
from simulators.kubernetes.settings import WatchRule
from simulators.kubernetes.store import ADDED, DELETED, MODIFIED, ObjectEvent, ObjectTable, Store
from simulators.kubernetes.wire import text_of

Json = dict[str, Any]

#: How long before its end a watch has its last bookmark.
LAST_BOOKMARK_SECONDS = 2.0


@dataclass(frozen=True)
class WatchOrder:
    """What the client wants to see.

    :param kind: as the client calls it; ``table``: of the stored kind that it is a view of.
    :param matches: which objects; ``view``: how they look.
    :param version: it has seen all up to this one; None = what there is comes first.
    """

    kind: ObjectKind
    table: ObjectTable
    matches: Callable[[Json], bool]
    view: Callable[[Json], Json]
    version: int | None
    bookmarks: bool
    seconds: float


class WatchStream(AnswerStream):
    """One watch."""

    def __init__(self, store: Store, order: WatchOrder, rule: WatchRule | None, ended: Callable[[], None]) -> None:
        self._store = store
        self._core = store.core
        self._order = order
        self._rule = rule
        self._ended = ended
        self._lines: deque[str] = deque()
        self._wake: Callable[[], None] | None = None
        now = self._core.now()
        self._until = now + order.seconds
        self._rule_at = now + rule.after_seconds if rule is not None else None
        # As the real one: the last comes before the watch ends.
        self._bookmark_at = min(now + self._core.knobs.bookmark_seconds, self._until - LAST_BOOKMARK_SECONDS)
        self._silent = False

    def open(self, wake: Callable[[], None]) -> None:
        with self._core.lock:
            self._wake = wake
            self._begin()
            self._order.table.listeners.append(self._see)
            self._core.sooner.append(wake)

    def _begin(self) -> None:
        order = self._order
        if order.version is None:
            for content in tuple(order.table.objects.values()):
                if order.matches(content):
                    self._say(ADDED, order.view(content))
        elif order.version < order.table.oldest:
            self._expire()
        else:
            for event in order.table.events:
                if event.version > order.version:
                    self._take_in(event)

    def take(self) -> bytes:
        with self._core.lock:
            self._core.run_due()
            now = self._core.now()
            if self._rule_at is not None and now >= self._rule_at:
                self._apply_rule()
            if self._silent:
                return b""
            if self._order.bookmarks and now >= self._bookmark_at:
                next_at, last_at = now + self._core.knobs.bookmark_seconds, self._until - LAST_BOOKMARK_SECONDS
                self._bookmark_at = min(next_at, last_at) if now < last_at else next_at
                self._say_bookmark()
            if now >= self._until:
                self.over = True
            data = "".join(self._lines).encode()
            self._lines.clear()
            return data

    def wait_seconds(self) -> float | None:
        with self._core.lock:
            times = [self._until] if self._rule_at is None else [self._until, self._rule_at]
            if self._order.bookmarks:
                times.append(self._bookmark_at)
            due = self._core.next_due_seconds()
            wait = max(0.0, min(times) - self._core.now())
            return wait if due is None else min(wait, due)

    def close(self) -> None:
        with self._core.lock:
            if self._wake is None:
                return
            self._order.table.listeners.remove(self._see)
            self._core.sooner.remove(self._wake)
            self._wake = None
            self._ended()

    def _see(self, event: ObjectEvent) -> None:
        if self.over:
            return
        self._take_in(event)
        if self._lines and self._wake is not None:
            self._wake()

    def _take_in(self, event: ObjectEvent) -> None:
        matches = self._order.matches
        now = event.kind != DELETED and matches(event.content)
        before = event.before is not None and matches(event.before)
        if now:
            self._say(MODIFIED if before else ADDED, self._order.view(event.content))
        elif before:
            # Also an object that the selector matches no more.
            self._say(DELETED, self._order.view(event.content))

    def _say(self, kind: str, content: Json) -> None:
        self._lines.append(f'{{"type":"{kind}","object":{text_of(content)}}}\n')

    def _say_bookmark(self) -> None:
        kind = self._order.kind
        metadata = {"resourceVersion": str(self._store.version), "creationTimestamp": None}
        self._say("BOOKMARK", {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata})

    def _expire(self) -> None:
        text = f"too old resource version: {self._order.version or 0} ({self._order.table.oldest})"
        self._refuse(expired(text))

    def _refuse(self, error: ApiError) -> None:
        self._lines.append(f'{{"type":"ERROR","object":{text_of(status_object(error))}}}\n')
        self.over = True

    def _apply_rule(self) -> None:
        rule, self._rule, self._rule_at = self._rule, None, None
        if rule is None:
            return
        self._core.events[f"watches {rule.kind}"] += 1
        if rule.kind == kinds.EXPIRED:
            self._expire()
        elif rule.kind == kinds.SILENT:
            self._silent = True
        elif rule.kind == kinds.GARBAGE:
            self._lines.append("<html>502 Bad Gateway</html>\n")
            self.over = True
        else:
            self.over = True
            self.cut = rule.kind == kinds.CUT

    def cut_now(self) -> None:
        """The connection breaks. The caller holds the lock."""
        self._rule, self._rule_at = WatchRule(kind=kinds.CUT), self._core.now()
        if self._wake is not None:
            self._wake()
