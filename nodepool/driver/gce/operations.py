# SPDX-License-Identifier: Apache-2.0
"""`InsertOperations`: how the creations of instances end. An insert is accepted at once; whether there is quota and
capacity for it, only its operation says (GC-5).

One list of operations serves all creations of a provider in a zone. It is made with the lists of instances, while there
are creations in the zone whose operation is not over.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.gce.errors import operation_failure
from nodepool.exceptions import LaunchError
from nodepool.plan.backoff import Backoff

if TYPE_CHECKING:
    from nodepool.driver.gce.types import Operation

log = logging.getLogger("nodepool.driver.gce.operations")

#: From one list of operations to the next, in seconds.
PAUSE_SECONDS: Final = 1.0
#: An operation that was in no list for so long is asked for itself.
MISSING_SECONDS: Final = 20.0
#: So many operations of a zone are looked at, the newest first: two pages.
MOST_LISTED: Final = 1000
#: So many are asked for themselves at once, in each zone: lists of instances wait for them.
MOST_ASKED: Final = 10
#: For so long a zone that does not answer is not asked: the lists of instances of all zones wait for each attempt.
AWAY: Final = Backoff(15.0, 300.0)


class OperationCalls(Protocol):
    """What is used of `nodepool.driver.gce.client.ComputeEngine`."""

    def operations(self, zone: str, kind: str, what: str) -> Iterable[Operation]: ...

    def operation(self, zone: str, name: str) -> Operation: ...


class Insert:
    """One insert. ``done`` is set once, then ``failure`` says what was wrong; None = nothing. Any thread reads it.

    :param head: of errors: whose it is.
    :param wake: told when it is over. Must not block.
    """

    def __init__(self, operation: Operation, head: str, wake: Callable[[], None], now: float) -> None:
        self.name = operation.name
        self.zone = operation.zone
        self.instance = operation.target
        self.failure: CloudRefused | CloudAway | None = None
        self.done = False
        self._head = head
        self._wake = wake
        #: When it was asked for itself the last time.
        self.asked_at = now
        self.take(operation)

    def take(self, operation: Operation) -> None:
        """What was just seen of it."""
        if self.done or not operation.done:
            return
        self.failure = operation_failure(self._head, operation.data)
        self.done = True
        self._wake()

    def lost(self) -> None:
        """Compute Engine does not know the operation any more: the instance itself says how it ended."""
        self.done = True
        self._wake()


class _Away(NamedTuple):
    """What was not answered: how often in a row, until when it is not asked for, and what was said."""

    failures: int
    until: float
    error: CloudAway


class InsertOperations:
    """Of one provider. Thread-safe; ``_lock`` guards the table, and is not held during a call.

    An insert that nobody holds any more is forgotten.
    """

    def __init__(self, provider: str, calls: OperationCalls, clock: Callable[[], float] = monotonic) -> None:
        self._provider = provider
        self._calls = calls
        self._clock = clock
        self._lock = threading.Lock()
        self._open: weakref.WeakValueDictionary[str, Insert] = weakref.WeakValueDictionary()
        self._looked_at = float("-inf")
        #: What of which zone was not answered.
        self._away: dict[tuple[str, str], _Away] = {}
        self._repeats = Repeats(clock=clock)

    def watch(self, operation: Operation, head: str, wake: Callable[[], None]) -> Insert:
        """An insert was accepted. Does not block."""
        insert = Insert(operation, head, wake, self._clock())
        if not insert.done:
            with self._lock:
                self._open[insert.name] = insert
        return insert

    def runs_for(self, zone: str, instance: str) -> bool:
        """Is the insert of an instance under way? Then the instance may not be there yet."""
        with self._lock:
            found = list(self._open.values())
        return any((insert.zone, insert.instance) == (zone, instance) for insert in found)

    def look(self) -> None:
        """See which are over. Blocks; any thread. Trouble is logged: lists of instances go on."""
        now = self._clock()
        with self._lock:
            if not self._open or now - self._looked_at < PAUSE_SECONDS:
                return
            self._looked_at = now
            waiting = list(self._open.values())
        for zone in dict.fromkeys(insert.zone for insert in waiting):
            self._look_at(zone, {insert.name: insert for insert in waiting if insert.zone == zone}, now)
        with self._lock:
            for name in [name for name, insert in self._open.items() if insert.done]:
                self._open.pop(name, None)

    def _look_at(self, zone: str, missing: dict[str, Insert], now: float) -> None:
        """The inserts of a zone, by name."""
        trouble = self._try(("list", zone), lambda: self._list(zone, missing, now))
        # One may be found where a list of all that were ever made takes too long.
        due = [insert for insert in missing.values() if now - insert.asked_at >= MISSING_SECONDS]
        if due:
            trouble = self._try(("operation", zone), lambda: self._ask_each(zone, due[:MOST_ASKED], now)) or trouble
        if trouble is None:
            self._repeats.over(zone)
        elif self._repeats.worth_saying(zone):
            log.warning("Provider %s: the ends of creations in %s are not known: %s", self._provider, zone, trouble)

    def _try(self, what: tuple[str, str], ask: Callable[[], None]) -> LaunchError | None:
        """Ask for something of a zone, unless that is left alone because there was no answer.

        :return: what went wrong, now or the last time.
        """
        with self._lock:
            before = self._away.get(what)
        if before is not None and self._clock() < before.until:
            return before.error
        try:
            ask()
        except CloudAway as error:
            failures = 1 if before is None else before.failures + 1
            with self._lock:
                self._away[what] = _Away(failures, self._clock() + AWAY.pause(failures), error)
            return error
        except LaunchError as error:
            return error
        with self._lock:
            self._away.pop(what, None)
        return None

    def _ask_each(self, zone: str, due: Iterable[Insert], now: float) -> None:
        for insert in due:
            insert.asked_at = now
            try:
                insert.take(self._calls.operation(zone, insert.name))
            except CloudNotFound:
                insert.lost()

    def _list(self, zone: str, missing: dict[str, Insert], now: float) -> None:
        """See those that a list has; the others stay."""
        for operation in itertools.islice(self._calls.operations(zone, "insert", "listing operations"), MOST_LISTED):
            insert = missing.pop(operation.name, None)
            if insert is not None:
                insert.asked_at = now
                insert.take(operation)
            if not missing:
                # The newest come first.
                return
