# SPDX-License-Identifier: Apache-2.0
"""`Inventory`: one list of instances that serves all launches and deletions of a provider (O-8).

While something waits for an instance, a thread lists them: often when news can be expected, seldom when it takes long,
and not at all when nothing waits. If the cloud can list changes, most lists only ask for changes. Such a list also
shows deleted instances. From time to time all instances are listed, because a change can be overlooked.

A list may be late, or overlook an instance. So an instance that a list does not show may still be there: whether it is
gone is proved otherwise, see `nodepool.driver.statemachine.instance_cloud.InstanceCloud.get_record`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.held_time import HeldTime, HeldTogether, held_work, working_for
from nodepool.driver.statemachine import metadata
from nodepool.driver.statemachine.list_pace import ListPace, Waiter
from nodepool.driver.statemachine.single_looks import SingleLooks

log = logging.getLogger("nodepool.driver.statemachine.Inventory")

#: How old the last complete list may become while something waits.
COMPLETE_SECONDS: Final = 20.0
#: How long it is known that an instance is gone.
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
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.provider = provider
        self._fetch = fetch
        self._since = since
        self._lag_seconds = lag_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._records: dict[str, R] = {}
        #: When the list began in which an instance was last seen.
        self._seen: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        #: Those of them that nobody has seen.
        self._never_seen: set[str] = set()
        #: When the latest list, and the latest complete list, began.
        self.listed_at = float("-inf")
        self.complete_at = float("-inf")
        #: The same of the complete list before.
        self._complete_before = float("-inf")
        self._latest_change = ""
        self._by_changes = since is not no_changes
        self._pace = ListPace()
        #: All that wait for an instance here wait while this does.
        self.held = HeldTogether(self._work)
        #: Until when the thread waits; the past while it does not.
        self._waiting_until = float("-inf")
        #: Lists in a row that failed.
        self.failures = 0
        #: Lists that failed since the beginning.
        self.failed_lists = 0
        self._looks: SingleLooks[R] | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._complete: Fact[None] = Fact(lambda: self.refresh(complete=True), clock)
        #: Called after each list, in the thread that listed, with instances that are new or changed, or have ended.
        self.on_news: Callable[[list[R]], None] = lambda records: None
        #: Called after each list, in the thread that listed, whether anything changed or not.
        self.on_list: Callable[[], None] = lambda: None

    def set_pace(self, shortest_seconds: float, price_seconds: float) -> None:
        """How much time there is between two lists at least, and what one costs, see `ListPace`. Before the first."""
        with self._changed:
            self._pace.shortest_seconds, self._pace.price_seconds = shortest_seconds, price_seconds

    def look_singly(self, looks: SingleLooks[R]) -> None:
        """Ask for few instances one by one. Before the first list."""
        self._looks = looks

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

        :param not_before: an earlier list is of no use, in seconds of the inventory's clock.
        """
        waiter = Waiter(kind, wake, max(self._clock(), not_before), record_id, complete)
        with self._changed:
            self._add(waiter)
            if self._thread is None and not self._stopped:
                self._thread = self._start()
        self.held.join(waiter.work)
        return waiter

    def _add(self, waiter: Waiter) -> None:
        """Called with the lock. The thread looks at all waiters when it is woken: only if it has to list earlier."""
        self._pace.add(waiter)
        if self._pace.next_for(waiter, self._clock(), self.listed_at) < self._waiting_until:
            self._changed.notify_all()

    def _start(self) -> threading.Thread | None:
        """The thread that lists; tests have none."""
        thread = threading.Thread(target=self._run, name=f"{self.provider}-list", daemon=True)
        thread.start()
        return thread

    def touch(self, waiter: Waiter) -> None:
        """The waiter still waits."""
        with self._changed:
            waiter.touched = self._clock()
            if waiter.told or not self._pace.has(waiter):
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
            self._pace.done(waiter, self._clock(), happened)

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
        """An instance as last seen; None = not seen, or gone."""
        with self._changed:
            return self._records.get(record_id)

    def is_gone(self, record_id: str) -> bool:
        """Did the cloud say that the instance does not exist any more? Its absence from a list does not count."""
        with self._changed:
            return record_id in self._gone

    def absence_is_certain(self, since: float) -> bool:
        """Would lists have shown an instance that was there at that time?

        After a complete list that lacks it there must have been one of changes, which may say that it is gone. While
        something needs complete lists, and there are no others, a second one must do.
        """
        since += self._lag_seconds
        with self._changed:
            another = self.listed_at > self.complete_at or self._complete_before > since
            return self.complete_at > since and (another or not self._by_changes)

    def set_gone(self, record_id: str, was_there: bool = True) -> None:
        """The cloud said so elsewhere.

        :param was_there: somebody has seen the instance. Else it may come yet: where ids are names, an order that was
            given up may be late. Then a list that begins later, and has it, counts.
        """
        with self._changed:
            self._records.pop(record_id, None)
            self._gone[record_id] = self._clock()
            if was_there:
                self._never_seen.discard(record_id)
            else:
                self._never_seen.add(record_id)

    def of_node(self, node_id: str) -> list[R]:
        """Instances whose metadata names a node of this provider."""
        with self._changed:
            records = list(self._records.values())
        return [record for record in records if metadata.node_id_of(record.metadata, self.provider) == node_id]

    def all(self, max_age: float) -> list[R]:
        """All instances; asks the cloud unless the last complete list began at most ``max_age`` seconds ago. Blocks.

        Of those who ask at the same time one asks the cloud. Raises what the cloud says.
        """
        with self._changed:
            fresh = self._clock() - self.complete_at <= max_age
        if not fresh:
            self._complete.get_new()
        with self._changed:
            return list(self._records.values())

    # -- lists --

    def refresh(self, complete: bool) -> None:
        """Ask the cloud now; blocks. Raises what the cloud says.

        :param complete: all instances; else the changed ones, if there is a time to ask from.
        """
        started = self._clock()
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
            return self._pace.work()

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

        :param gone: instances of which the cloud has said so.
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
            self._pace.listed()
            wake = self._pace.to_wake(changed)
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
                    self._waiting_until = self._clock() + pause
                    self._changed.wait(None if pause == float("inf") else pause)
                    self._waiting_until = float("-inf")
                if self._stopped:
                    return
            self.poll(self.complete_is_due())

    def complete_is_due(self) -> bool:
        """Are all instances to be listed now, and not only the changed ones?"""
        with self._changed:
            return self._clock() - self.complete_at > COMPLETE_SECONDS or self._pace.complete_wanted()

    def _few(self, looks: SingleLooks[R]) -> Set[str]:
        with self._changed:
            return looks.choose(self._pace.awaited(), self._records.keys())

    def _pause(self) -> float:
        """Seconds until the next list; infinite while nothing waits. Called with the lock."""
        now = self._clock()
        return self._pace.next_list(now, self.listed_at) - now

    def poll(self, complete: bool) -> None:
        """One turn of the thread: list, and decide when to list again. Does not raise."""
        started, held = self._clock(), self.held.seconds
        try:
            if self._looks is not None and not complete and (few := self._few(self._looks)):
                looked = self._ask(partial(self._looks.look, few))
                self._tell(*self._take(looked.found, started, complete=False, gone=looked.gone))
            elif complete or not self._by_changes:
                # Others may want one, too, and nobody lists beside them.
                self._complete.get_new()
            else:
                self.refresh(complete=False)
        # Whatever it is, also sys.exit() of a library: the thread goes on, and so do all who wait for it.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - logged below
            with self._changed:
                self.failures += 1
                self.failed_lists += 1
                pause = self._pace.failed(self._clock())
            log.warning("%s; listed again in %g s", error if str(error) else repr(error), pause)
        else:
            with self._changed:
                self.failures = 0
                now = self._clock()
                # What the list waited for in our own limits says nothing of how busy the cloud is.
                self._pace.worked(now, took=now - started - (self.held.seconds - held))
