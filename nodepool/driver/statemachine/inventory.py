# SPDX-License-Identifier: Apache-2.0
"""One list of instances that serves all launches and deletions of a provider (O-8).

While something waits for an instance, a thread lists them: often when changes can be expected, seldom when it takes
long, and not at all when nothing waits. If the cloud can list changes, most lists only ask for changes. Such a list
also shows deleted instances. From time to time all instances are listed, because a change can be overlooked.

A list may be late, or overlook an instance. So an instance that a list does not show may still be there: whether it is
deleted is proved otherwise, see `nodepool.driver.statemachine.InstanceCloud.begin_proof`. After the
`Inventory` come when it lists, and inventories that watches feed. Last calls that serve many orders (`Batches`).
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Set
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, cast

from nodepool.clock import monotonic
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.rate import HeldTime, HeldTogether, Hold, held_work, working_for
from nodepool.exceptions import CloudUnavailableException, NotFound
from nodepool.guard import ERRORS, as_exception, settle
from nodepool.plan.retries import Backoff

log = logging.getLogger("nodepool.driver.statemachine.Inventory")

#: How old the last complete list may become while something waits.
COMPLETE_SECONDS: Final = 20.0
#: Several are asked for one by one if there are so many times as many.
SINGLY_OF: Final = 10
#: How long it is known that an instance has ended.
GONE_SECONDS: Final = 900.0


class InventoryRecord(Protocol):
    """What a list says of an instance. Records are values: two that are equal are no news."""

    @property
    def id(self) -> str:
        """External id of the instance."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """As given to `Adapter.getCreateStateMachine`: it says whose the instance is."""

    @property
    def status(self) -> str:
        """In the cloud's words, for people."""

    @property
    def gone(self) -> bool:
        """Does the cloud say that the instance does not exist any more?"""

    @property
    def updated(self) -> str:
        """When it changed last, as a text that grows with time; "" where the cloud cannot list changes."""


T = TypeVar("T")


class CloudRecord:
    """Something as a cloud lists it: a value. The constructor of a subclass takes the fields out of the cloud's words.

    Without other words of its own it is of a cloud that lists neither what is deleted nor what changed.
    """

    gone: bool = False
    updated: str = ""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"

    def _replace(self, **changes: Any) -> Self:
        """The same with other fields."""
        made = object.__new__(type(self))
        made.__dict__ = self.__dict__ | changes
        return made


#: The records of a driver.
R = TypeVar("R", bound=InventoryRecord)


class ChangesNotListed(Exception):
    """The cloud refuses to list changes: all instances are listed from now on. The text says why."""


def no_changes(_latest: str) -> str | None:
    """For clouds that cannot list changes."""
    return None


class Inventory(Generic[R]):
    """Instances of one provider, as last seen. Thread-safe.

    ``_changed`` guards everything; it is not held while the cloud is asked.

    :param provider: its name.
    :param fetch: lists instances, all (None) or those changed since a time; blocks. Raises `ChangesNotListed`, or what
        the cloud says.
    :param since: makes the time to ask for changes from, out of the latest ``updated`` of all records; None = all.
    :param lag_seconds: what happened so long before a list begins may be missing in it.
    """

    #: So long an instance whose deletion was accepted is in no list before it is asked for; lists may prove it earlier.
    absent_seconds: ClassVar[float] = float("inf")

    def __init__(
        self,
        provider: str,
        fetch: Callable[[str | None], Iterable[R]],
        since: Callable[[str], str | None] = no_changes,
        lag_seconds: float = 0.0,
    ) -> None:
        self.provider = provider
        self._fetch = fetch
        self._since = since
        self._lag_seconds = lag_seconds
        self._changed = threading.Condition()
        self._records: dict[str, R] = {}
        #: When the list began in which an instance was last seen.
        self._seen: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        #: Those of them that no one has seen.
        self._never_seen: set[str] = set()
        #: When the latest list, and the latest complete list, began.
        self.listed_at = float("-inf")
        self.complete_at = float("-inf")
        #: The same of the complete list before.
        self._complete_before = float("-inf")
        self._latest_change = ""
        self._by_changes = since is not no_changes
        #: When it lists. Its settings are set before the first list.
        self.pace = ListPace()
        #: All that wait for an instance here wait while this does.
        self.held = HeldTogether(self._work)
        #: Until when the thread waits; the past while it does not.
        self._waiting_until = float("-inf")
        #: Lists that failed since the beginning.
        self.failed_lists = 0
        #: Gives one instance as it is now; blocks. Raises NotFound when it has ended: that is the proof.
        self.look_at: Callable[[str], R] = lambda _: cast("R", None)
        #: While at most so many instances are waited for, each is asked for, in place of a list; 0 = never.
        self.looks_singly = 0
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._complete: Fact[None] = Fact(lambda: self.refresh(complete=True))
        #: Called after each list, in the thread that listed, with instances that are new or changed, or have ended.
        self.on_news: Callable[[list[R]], None] = lambda records: None
        #: Called after each list, in the thread that listed, whether anything changed or not.
        self.on_list: Callable[[], None] = lambda: None

    # -- who waits --

    def wait_for(
        self,
        kind: str,
        wake: Callable[[], None],
        record_id: str | None = None,
        complete: bool = False,
        not_before: float = float("-inf"),
    ) -> Waiter:
        """Begin to wait; ends with `done`, or when the waiter is not touched any more. Starts the thread.

        Parameters as those of `Waiter`.

        :param not_before: an earlier list is of no use, in monotonic seconds.
        """
        waiter = Waiter(kind, wake, max(monotonic(), not_before), record_id, complete)
        with self._changed:
            self._add(waiter)
            if self._thread is None and not self._stopped:
                self._thread = self._start()
        self.held.join(waiter.work)
        return waiter

    def _add(self, waiter: Waiter) -> None:
        """Called with the lock. The thread looks at all waiters when it is woken: only if it has to list earlier."""
        self.pace.add(waiter)
        if self.pace.next_for(waiter, monotonic(), self.listed_at) < self._waiting_until:
            self._changed.notify_all()

    def _start(self) -> threading.Thread | None:
        """The thread that lists; tests have none."""
        thread = threading.Thread(target=self._run, name=f"{self.provider}-list", daemon=True)
        thread.start()
        return thread

    def touch(self, waiter: Waiter) -> None:
        """The waiter still waits."""
        with self._changed:
            waiter.touched = monotonic()
            if waiter.told or not self.pace.has(waiter):
                waiter.told = False
                self._add(waiter)

    def need_complete(self, waiter: Waiter) -> None:
        """What is waited for may not show as a change: complete lists are needed from now on."""
        with self._changed:
            waiter.complete = True
            self._add(waiter)

    def done(self, waiter: Waiter, happened: bool = True) -> None:
        """The wait is over.

        :param happened: what was waited for came; False = it was given up.
        """
        with self._changed:
            self.pace.done(waiter, monotonic(), happened)

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

    def get(self, record_id: str) -> R | None:
        """An instance as last seen; None = not seen, or deleted."""
        with self._changed:
            return self._records.get(record_id)

    def is_gone(self, record_id: str) -> bool:
        """Did the cloud say that the instance does not exist any more? Its absence from a list does not count."""
        with self._changed:
            return record_id in self._gone

    def absence_is_certain(self, since: float) -> bool:
        """Would lists have shown an instance that was there at that time?

        After a complete list that lacks it there must have been one of changes, which may say that it is deleted. While
        something needs complete lists, and there are no others, a second one must do.
        """
        since += self._lag_seconds
        with self._changed:
            another = self.listed_at > self.complete_at or self._complete_before > since
            return self.complete_at > since and (another or not self._by_changes)

    def made(self, record_id: str, since: float) -> None:
        """A creation that began then has made an instance. Where ids are names, an earlier one may be deleted."""
        with self._changed:
            if self._gone.get(record_id, since) < since:
                del self._gone[record_id]
                self._never_seen.discard(record_id)

    def set_gone(self, record_id: str, was_there: bool = True) -> None:
        """The cloud stated so elsewhere.

        :param was_there: someone has seen the instance. Else it may come yet: where ids are names, an order that was
            given up may be late. Then a list that begins later, and has it, counts.
        """
        with self._changed:
            self._records.pop(record_id, None)
            self._gone[record_id] = monotonic()
            if was_there:
                self._never_seen.discard(record_id)
            else:
                self._never_seen.add(record_id)

    def known(self) -> list[R]:
        """All instances as last seen. Does not block."""
        with self._changed:
            return list(self._records.values())

    def all(self, max_age: float) -> list[R]:
        """All instances; asks the cloud unless the last complete list began at most ``max_age`` seconds ago. Blocks.

        Of those who ask at the same time one asks the cloud. Raises what the cloud says.
        """
        with self._changed:
            fresh = monotonic() - self.complete_at <= max_age
        if not fresh:
            self._complete.get_new()
        return self.known()

    # -- lists --

    def refresh(self, complete: bool) -> None:
        """Ask the cloud now; blocks. Raises what the cloud says.

        :param complete: all instances; else the changed ones, if there is a time to ask from.
        """
        started = monotonic()
        with self._changed:
            latest = "" if complete or not self._by_changes else self._latest_change
        since = self._since(latest) if latest else None
        try:
            records = self._ask(lambda: list(self._fetch(since)))
        except ChangesNotListed as reason:
            log.info("Provider %s: changes are not listed, all instances are: %s", self.provider, reason)
            with self._changed:
                self._by_changes = False
            since = None
            records = self._ask(lambda: list(self._fetch(None)))
        self._tell(*self._take(records, started, complete=since is None))

    def _ask(self, ask: Callable[[], T]) -> T:
        """Ask the cloud, for the caller and for all that wait."""
        with working_for((*held_work(), self.held)):
            return ask()

    def _work(self) -> set[HeldTime]:
        with self._changed:
            return self.pace.work()

    def _tell(self, news: list[R], wake: list[Waiter]) -> None:
        if news:
            self.on_news(news)
        for waiter in wake:
            waiter.wake()
        self.on_list()

    def _take(
        self, records: list[R], started: float, complete: bool, gone: Iterable[str] = ()
    ) -> tuple[list[R], list[Waiter]]:
        """Store a list; returns what is new, and who is to be woken.

        :param gone: instances of which the cloud says so.
        """
        news: list[R] = []
        changed: set[str] = set()
        with self._changed:
            for record in records:
                if self._seen.get(record.id, float("-inf")) > started:
                    continue
                self._latest_change = max(self._latest_change, record.updated)
                if record.gone:
                    self._never_seen.discard(record.id)
                    if record.id not in self._gone:
                        changed.add(record.id)
                        self._gone[record.id] = started
                        news.append(record)
                    self._records.pop(record.id, None)
                    self._seen.pop(record.id, None)
                    continue
                self._seen[record.id] = started
                if record.id in self._never_seen and self._gone.get(record.id, started) < started:
                    self._never_seen.discard(record.id)
                    del self._gone[record.id]
                if record.id not in self._gone and self._records.get(record.id) != record:
                    self._records[record.id] = record
                    changed.add(record.id)
                    news.append(record)
            for record_id in gone:
                if self._seen.get(record_id, float("-inf")) > started:
                    # A list that began later shows it. Who still waits for it asks once more.
                    continue
                self._records.pop(record_id, None)
                self._seen.pop(record_id, None)
                self._gone[record_id] = started
                changed.add(record_id)
            if complete:
                self._forget_absent(started, changed)
            self.listed_at = max(self.listed_at, started)
            self.pace.listed()
            wake = self.pace.to_wake(changed)
        return news, wake

    def _forget_absent(self, started: float, changed: set[str]) -> None:
        """A complete list lacks these. Called with the lock."""
        for record_id in [key for key, seen in self._seen.items() if seen < started]:
            del self._seen[record_id]
            self._records.pop(record_id, None)
            changed.add(record_id)
        if started > self.complete_at:
            self._complete_before, self.complete_at = self.complete_at, started
        for record_id in [key for key, when in self._gone.items() if when < started - GONE_SECONDS]:
            del self._gone[record_id]
        self._never_seen.intersection_update(self._gone)

    # -- the thread --

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and (pause := self._pause()) > 0:
                    self._waiting_until = monotonic() + pause
                    self._changed.wait(None if pause == float("inf") else pause)
                    self._waiting_until = float("-inf")
                if self._stopped:
                    return
            self.poll(self.complete_is_due())

    def complete_is_due(self) -> bool:
        """Are all instances to be listed now, and not only the changed ones?"""
        with self._changed:
            return monotonic() - self.complete_at > COMPLETE_SECONDS or self.pace.complete_wanted()

    def _few(self) -> Set[str]:
        """Which instances to ask for one by one; none = list.

        One that no list has shown is not asked for: a list shows it, and what else there is.
        """
        with self._changed:
            awaited, known = self.pace.awaited(), self._records.keys()
            if not awaited or len(awaited) > self.looks_singly or not awaited <= known:
                return set()
            return awaited if len(awaited) == 1 or len(awaited) * SINGLY_OF <= len(known) else set()

    def _look(self, record_ids: Iterable[str]) -> tuple[list[R], list[str]]:
        """Instances as they are, and the ids of those that are deleted; blocks. Raises what the cloud says."""
        found, gone = [], []
        for record_id in record_ids:
            try:
                found.append(self.look_at(record_id))
            except NotFound:
                gone.append(record_id)
        return found, gone

    def _pause(self) -> float:
        """Seconds until the next list; infinite while nothing waits. Called with the lock."""
        now = monotonic()
        return self.pace.next_list(now, self.listed_at) - now

    def poll(self, complete: bool) -> None:
        """One turn of the thread: list, and decide when to list again. Does not raise."""
        started, held = monotonic(), self.held.seconds
        try:
            if not complete and (few := self._few()):
                found, gone = self._ask(partial(self._look, few))
                self._tell(*self._take(found, started, complete=False, gone=gone))
            elif complete or not self._by_changes:
                # Others may want one, too, and no one lists beside them.
                self._complete.get_new()
            else:
                self.refresh(complete=False)
        # Whatever it is, also sys.exit() of a library: the thread goes on, and so do all who wait for it.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - logged below
            with self._changed:
                self.failed_lists += 1
                pause = self.pace.failed(monotonic())
            log.warning("%s; listed again in %g s", error if str(error) else repr(error), pause)
        else:
            with self._changed:
                now = monotonic()
                # What the list waited for in our own limits says nothing of how busy the cloud is.
                self.pace.worked(now, took=now - started - (self.held.seconds - held))


# When to list the instances of a cloud: who waits for one, and for how long such waits took lately.

#: Between two lists while something is about to happen; and when all have waited for long.
SHORTEST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 3.0
#: The pause is this part of the time that the youngest waiter has waited.
PAUSE_SHARE: Final = 1 / 10
#: Each wait that ends with news pays for this part of a list that comes sooner, and each list uses up one; so many can
#: be paid for in advance, or be owed.
LISTS_PER_WAIT: Final = 0.24
PAID_LISTS: Final = 10.0
#: What the waiters of a list that is paid for must be expected to have lost together, in seconds, to be worth it.
PRICE_SECONDS: Final = 0.03
#: From the beginning of one list to that of the next one that is paid for.
PAID_PAUSE_SECONDS: Final = 0.03
#: More waiters than these share the cost of a list: pauses are shorter then, down to this part of their length.
MANY_WAITERS: Final = 40
SHORTEST_PART: Final = 0.4
#: The number of waiters counts as before for a while: with each list it may fall by no more than to this part.
FALL: Final = 0.95
#: From a list that failed to the next one.
RETRY: Final = Backoff(1.0, 15.0)
#: A waiter that did not look for so long does not wait any more. Machines are advanced every few seconds.
FORGOTTEN_SECONDS: Final = 20.0
#: The shortest of so many latest waits says when to begin to look. The last waits of a burst are its longest.
REMEMBERED_WAITS: Final = 100


class Waiter:
    """Something that waits for news of an instance.

    :param kind: what for; waits of one kind are expected to take about equally long.
    :param wake: called in the thread that listed when there is news; must not block.
    :param since: when the wait began, monotonic seconds.
    :param record_id: only news of this instance; None = woken after each list.
    :param complete: complete lists are needed: it looks for something that may have been overlooked, or is absent.
    """

    def __init__(
        self, kind: str, wake: Callable[[], None], since: float, record_id: str | None = None, complete: bool = False
    ) -> None:
        self.kind = kind
        self.wake = wake
        self.since = since
        self.touched = since
        self.record_id = record_id
        self.complete = complete
        #: Was it woken, and has not stated yet that it still waits?
        self.told = False
        #: Whose it is: they wait as long as a list waits for its turn.
        self.work = held_work()
        self._held_before = self._held()

    def waited(self, now: float) -> float:
        """Seconds that it waited for the cloud: the time in our own limits says nothing of the next wait."""
        return now - self.since - (self._held() - self._held_before)

    def _held(self) -> float:
        return max((held.seconds for held in self.work), default=0.0)


class ListPace:
    """The waiters of one inventory, and the time of its next list.

    Not thread-safe: the inventory guards it. All times are monotonic seconds. A waiter that no one holds any more is
    forgotten.
    """

    def __init__(self) -> None:
        #: A pause is not shorter, however many share a list; those that are paid for are.
        self.shortest_seconds = 0.0
        #: As `PRICE_SECONDS`, for this cloud.
        self.price_seconds = PRICE_SECONDS
        self._waiters: weakref.WeakSet[Waiter] = weakref.WeakSet()
        #: By the id of the one instance whose news concern them, None = any news do: a watch tells of one instance at a
        #: time, and a thousand may wait.
        self._by_record: dict[str | None, weakref.WeakSet[Waiter]] = {}
        self._durations: dict[str, deque[float]] = {}
        #: The shortest of them; each waiter is judged by it with each list.
        self._shortest: dict[str, float] = {}
        #: The number of waiters, now or a moment ago.
        self._many = 0.0
        #: Lists that are paid for; less than zero: that are owed.
        self._paid = 0.0
        #: No list before; and none that is paid for.
        self._not_before = float("-inf")
        self._paid_not_before = float("-inf")
        #: Lists that failed, in a row.
        self.failures = 0

    # -- who waits --

    def add(self, waiter: Waiter) -> None:
        """Also for one that needs complete lists from now on."""
        self._waiters.add(waiter)
        self._by_record.setdefault(None if waiter.complete else waiter.record_id, weakref.WeakSet()).add(waiter)

    def _discard(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)
        for record_id in {None, waiter.record_id}:
            if (others := self._by_record.get(record_id)) is not None:
                others.discard(waiter)
                if not others:
                    del self._by_record[record_id]

    def has(self, waiter: Waiter) -> bool:
        return waiter in self._waiters

    def done(self, waiter: Waiter, now: float, happened: bool) -> None:
        """A wait is over.

        :param happened: what was waited for came; False = it was given up.
        """
        self._discard(waiter)
        if happened:
            durations = self._durations.setdefault(waiter.kind, deque(maxlen=REMEMBERED_WAITS))
            durations.append(waiter.waited(now))
            self._shortest[waiter.kind] = min(durations)
            self._paid = min(PAID_LISTS, self._paid + LISTS_PER_WAIT)

    def work(self) -> set[HeldTime]:
        """Of all waiters."""
        return {held for waiter in self._waiters for held in waiter.work}

    def awaited(self) -> set[str] | None:
        """The instances of which news are waited for; None = someone waits for something else."""
        found = {record_id for record_id, known in self._by_record.items() if known}
        return None if None in found else cast("set[str]", found)

    def complete_wanted(self) -> bool:
        """Does a waiter need complete lists?"""
        return any(waiter.complete for waiter in self._waiters)

    def to_wake(self, changed: Collection[str]) -> list[Waiter]:
        """Whom a list concerns that changed what is known of these instances."""
        found: dict[Waiter, None] = {}
        for record_id in (None, *changed):
            if record_id in self._by_record:
                found.update(dict.fromkeys(self._by_record[record_id]))
        for waiter in found:
            waiter.told = True
        return list(found)

    # -- lists --

    def listed(self) -> None:
        """A list was stored."""
        self._many = max(len(self._waiters), self._many * FALL)
        self._paid = max(-PAID_LISTS, self._paid - 1)

    def worked(self, now: float, took: float) -> None:
        """A list was answered, ``took`` seconds after it was asked for.

        A busy API must not be asked all the time; the longer the pause, the later is news of everybody.
        """
        self.failures = 0
        self._not_before = now + max(SHORTEST_PAUSE_SECONDS * self._part(), took, self.shortest_seconds - took)
        self._paid_not_before = now - took + max(PAID_PAUSE_SECONDS, 2 * took)

    def failed(self, now: float) -> float:
        """A list failed. Returns the seconds until the next one."""
        self.failures += 1
        pause = RETRY.pause(self.failures)
        self._not_before = self._paid_not_before = now + pause
        return pause

    def next_list(self, now: float, listed_at: float) -> float:
        """When to list again; infinite while no one waits. Lets go of forgotten waiters.

        :param listed_at: when the latest list began.
        """
        due, part = float("inf"), self._part()
        for waiter in list(self._waiters):
            if now - waiter.touched > FORGOTTEN_SECONDS:
                self._discard(waiter)
            elif due > self._not_before:
                # Else it makes no difference; hundreds may wait.
                due = min(due, self._due(waiter, now, listed_at, part))
        if len(self._by_record) > 2 * len(self._waiters):
            # Of waiters that no one held any more.
            self._by_record = {record_id: known for record_id, known in self._by_record.items() if known}
        return min(max(due, self._not_before), self._next_paid(listed_at))

    def next_for(self, waiter: Waiter, now: float, listed_at: float) -> float:
        """When to list again because of a waiter that is new, or waits again."""
        due = self._due(waiter, now, listed_at, self._part())
        return min(max(due, self._not_before), self._next_paid(listed_at))

    def _next_paid(self, listed_at: float) -> float:
        """When the next list is worth its price, if it is paid for; else infinite.

        Where few instances follow each other quickly, each one that is noticed late keeps its place from the next.
        """
        # Lists of many are long, and shared already.
        if self._paid < 1 or self._many > MANY_WAITERS:
            return float("inf")
        ends = [
            max(listed_at, waiter.since + self._shortest[waiter.kind])
            for waiter in self._waiters
            if not waiter.told and waiter.kind in self._shortest
        ]
        return max(worth_a_list(ends, self.price_seconds), self._paid_not_before)

    def _due(self, waiter: Waiter, now: float, listed_at: float, part: float) -> float:
        """When to list for one waiter: seldom before about the shortest time that such a wait took lately.

        But not never: the cloud may have been busier then.

        :param part: see `_part`.
        """
        begin = waiter.since + 0.7 * self._shortest.get(waiter.kind, 0.0)
        if now < begin and not waiter.complete:
            return min(begin, max(waiter.since, listed_at) + LONGEST_PAUSE_SECONDS)
        pause = min(LONGEST_PAUSE_SECONDS, max(SHORTEST_PAUSE_SECONDS, (now - begin) * PAUSE_SHARE))
        return max(waiter.since, listed_at + pause * part)

    def _part(self) -> float:
        """Pauses are this part of their length."""
        return min(1.0, max(SHORTEST_PART, MANY_WAITERS / max(1.0, self._many)))


def worth_a_list(ends: Iterable[float], price: float) -> float:
    """When all together have lost the price; infinite if there are none.

    :param ends: from when on news of each can be expected: from then on time is lost.
    """
    lost, count, last = 0.0, 0, float("inf")
    for end in sorted(ends):
        if count and lost + count * (end - last) >= price:
            break
        lost += count * (end - last) if count else 0.0
        count, last = count + 1, end
    return last + (price - lost) / count if count else last


# `WatchedInventory`: an inventory for clouds that report changes by watches, so that they need not be asked.
#
# The driver puts in what its watches report. Instances are listed when a waiter needs a complete list. They are also
# listed when something waits and no watch has reported anything for long, because a watch can be dead without an error.

#: How long a watch may be silent while something waits, before instances are listed.
SILENT_SECONDS: Final = 30.0


class WatchedInventory(Inventory[R]):
    """Instances of one provider, as reported last. Thread-safe. Ids may be used again: `revive`.

    An instance can be asked for by its id: `InstanceCloud.get_instance`.

    Parameters as those of `Inventory`.
    """

    # A watch tells nothing of what was deleted before it began, and the next list is far away.
    absent_seconds = 0.5

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        #: Something is not reported by watches: instances are listed while something waits, as in `Inventory`.
        self.lists = False
        #: Called once, when someone waits for the first time: begin to watch. Must not block.
        self.on_start: Callable[[], None] = lambda: None
        #: Called, in the thread of the watch, with an instance that has ended, as it was known. Must not block.
        self.on_end: Callable[[R], None] = lambda record: None
        self._heard_at = float("-inf")

    # -- what watches tell --

    def put(self, record: R) -> None:
        """A watch reported an instance. One with the id of an instance that is deleted is another one."""
        with self._changed:
            now = self._heard_at = self.listed_at = monotonic()
            self._gone.pop(record.id, None)
            self._never_seen.discard(record.id)
            self._seen[record.id] = now
            news = self._records.get(record.id) != record
            self._records[record.id] = record
            wake = self.pace.to_wake({record.id}) if news else []
        if news:
            self.on_news([record])
        for waiter in wake:
            waiter.wake()

    def listed(self, records: Iterable[R], started: float) -> None:
        """A watch began with all instances, at that time."""
        taken = self._take(list(records), started, complete=True)
        self.heard()
        self._tell(*taken)

    def remove(self, record_id: str, another: bool = False, since: float = float("inf")) -> None:
        """A watch reported that an instance has ended, or lists it no more.

        :param another: an instance with the same id was made meanwhile, which the watch has not reported yet.
        :param since: when the watch's list began that lacks it: such a list says nothing of an instance that another
            list, which began later, has shown. Infinite = the watch reported the end itself.
        """
        with self._changed:
            if self._seen.get(record_id, float("-inf")) >= since:
                return
            now = self._heard_at = self.listed_at = monotonic()
            known = self._records.pop(record_id, None)
            self._seen.pop(record_id, None)
            if not another:
                self._gone[record_id] = now
                self._never_seen.discard(record_id)
            wake = self.pace.to_wake({record_id})
        if known is not None and not another:
            self.on_end(known)
        for waiter in wake:
            waiter.wake()

    def heard(self) -> None:
        """A watch gave a sign of life."""
        with self._changed:
            self._heard_at = monotonic()

    def revive(self, record_id: str) -> None:
        """An instance is about to be made whose id was that of another one, which is deleted."""
        with self._changed:
            self._gone.pop(record_id, None)

    # -- when to list --

    def _start(self) -> threading.Thread | None:
        self.on_start()
        return super()._start()

    def _add(self, waiter: Waiter) -> None:
        if self.lists or waiter.complete:
            super()._add(waiter)
            return
        self.pace.add(waiter)
        if self._heard_at + SILENT_SECONDS < self._waiting_until:
            self._changed.notify_all()

    def _pause(self) -> float:
        now = monotonic()
        due = self.pace.next_list(now, self.listed_at)
        if due != float("inf") and not self.lists and not self.pace.complete_wanted():
            due = max(due, self._heard_at + SILENT_SECONDS, self.complete_at + SILENT_SECONDS)
        return due - now


# `Batches`: orders of many that go to a cloud in few calls. All orders of a call end alike.

K = TypeVar("K", bound=Hashable)


class Batches(Generic[K]):
    """Gathers what is ordered while a call waits for its turn, or is under way. Thread-safe.

    ``_lock`` guards the orders; it is not held during a call. One thread at a time waits for a turn: a turn is taken
    only for orders that are there.

    :param send: makes one call: waits for its turn, asks its argument for the orders (maybe for at most so many), and
        returns what came of each; an exception = it failed; a future = it ends as that does; nothing = None. What it
        raises is the error of all of them. Blocks.
    :param executor: runs it.
    :param most: orders in a call.
    :param common: equal for orders that may go in one call.
    :param permit: asked of each order right before it is sent; what it raises is the order's error.
    :param at_once: as many calls are under way as the executor has threads; False = one after the other.
    """

    def __init__(
        self,
        send: Callable[[Callable[..., list[K]]], Mapping[K, Any]],
        executor: Executor,
        most: int,
        *,
        common: Callable[[K], Hashable] = lambda _: None,
        permit: Callable[[K], None] = lambda _: None,
        at_once: bool = False,
    ) -> None:
        self._send, self._executor, self._most = send, executor, most
        self._common, self._permit, self._at_once = common, permit, at_once
        self._lock = threading.Lock()
        #: By what they have in common; those whose turn is next are first. Those who ordered wait until it is sent.
        self._waiting: dict[Hashable, dict[K, tuple[Future[Any], list[Hold]]]] = {}
        #: Does a thread wait for a turn, or will one?
        self._running = False

    def add(self, order: K) -> Future[Any]:
        """Order something; does not block. An order of the same before it is sent gets the same future."""
        # Not under the lock, because these call others.
        hold, common = Hold(), self._common(order)
        with self._lock:
            future, holds = self._waiting.setdefault(common, {}).setdefault(order, (Future(), []))
            holds.append(hold)
            begin, self._running = not self._running, True
        if begin:
            self._begin()
        return future

    def next_call(self) -> int:
        """How many orders there are for the next call."""
        with self._lock:
            return len(next(iter(self._waiting.values()), ()))

    def _begin(self) -> None:
        try:
            # For all that order.
            with working_for(()):
                self._executor.submit(self._run).add_done_callback(self._ended)
        except RuntimeError:
            # It was shut down, or the system has no more threads.
            self._fail_left()

    def _run(self) -> None:
        while self._go_on():
            self._call()
            if self._at_once:
                return

    def _go_on(self) -> bool:
        with self._lock:
            self._running = bool(self._waiting)
            return self._running

    def _call(self) -> None:
        taken: dict[K, Future[Any]] = {}
        outcome: Future[Mapping[K, Any]] = Future()
        settle((outcome,), lambda: self._send(lambda most=self._most: self._take(taken, most)))
        error = outcome.exception()
        if error is not None and not taken:
            # It failed before its turn came.
            self._take(taken, self._most)
        for order, future in taken.items():
            end_with(future, error or outcome.result().get(order))

    def _take(self, taken: dict[K, Future[Any]], most: int) -> list[K]:
        """Orders that are still wanted; those of the others hear why not."""
        while not taken:
            with self._lock:
                if not self._waiting:
                    break
                common = next(iter(self._waiting))
                group = list(self._waiting.pop(common).items())
                if group[most:]:
                    # The others come first now.
                    self._waiting[common] = dict(group[most:])
            for order, (future, holds) in group[:most]:
                for hold in holds:
                    hold.end()
                try:
                    self._permit(order)
                    taken[order] = future
                except ERRORS as error:
                    # All who ordered it get it.
                    future.set_exception(as_exception(error))
        if self._at_once and self._go_on():
            # While this call is under way the next one waits for its turn.
            self._begin()
        return list(taken)

    def _ended(self, run: Future[None]) -> None:
        """Orders that are never sent, because the executor was shut down, must not be waited for."""
        if run.cancelled():
            self._fail_left()

    def _fail_left(self) -> None:
        with self._lock:
            left, self._waiting = self._waiting, {}
            self._running = False
        error = CloudUnavailableException("the provider was stopped")
        error.maybe_done = False
        for future, holds in [waiting for group in left.values() for waiting in group.values()]:
            for hold in holds:
                hold.end()
            future.set_exception(error)


def end_with(future: Future[Any], answer: Any) -> None:
    """:param answer: of `Batches`: an exception = it failed; a future = it ends as that does."""
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    elif isinstance(answer, Future):
        answer.add_done_callback(lambda one: settle((future,), one.result))
    else:
        future.set_result(answer)
