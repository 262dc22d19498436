# SPDX-License-Identifier: Apache-2.0
"""When to list the instances of a cloud: who waits for one, and for how long such waits took lately."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final

from nodepool.driver.framework.held_time import HeldTime, held_work
from nodepool.plan.backoff import Backoff

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
        #: Was it woken, and has not said yet that it still waits?
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

    Not thread-safe: the inventory guards it. All times are monotonic seconds. A waiter that nobody holds any more is
    forgotten.
    """

    def __init__(self) -> None:
        #: A pause is not shorter, however many share a list; those that are paid for are.
        self.shortest_seconds = 0.0
        #: As `PRICE_SECONDS`, for this cloud.
        self.price_seconds = PRICE_SECONDS
        self._waiters: weakref.WeakSet[Waiter] = weakref.WeakSet()
        #: Those that only news of one instance concern, by its id, and all others: a watch tells of one instance at a
        #: time, and a thousand may wait.
        self._by_record: dict[str, weakref.WeakSet[Waiter]] = {}
        self._of_any: weakref.WeakSet[Waiter] = weakref.WeakSet()
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
        self._failures = 0

    # -- who waits --

    def add(self, waiter: Waiter) -> None:
        """Also for one that needs complete lists from now on."""
        self._waiters.add(waiter)
        if waiter.record_id is None or waiter.complete:
            self._of_any.add(waiter)
        else:
            self._by_record.setdefault(waiter.record_id, weakref.WeakSet()).add(waiter)

    def _discard(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)
        self._of_any.discard(waiter)
        if waiter.record_id in self._by_record:
            others = self._by_record[waiter.record_id]
            others.discard(waiter)
            if not others:
                del self._by_record[waiter.record_id]

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
        """The instances of which news are waited for; None = somebody waits for something else."""
        found = {waiter.record_id for waiter in self._waiters if waiter.record_id is not None and not waiter.complete}
        others = any(waiter.record_id is None or waiter.complete for waiter in self._waiters)
        return None if others else found

    def complete_wanted(self) -> bool:
        """Does a waiter need complete lists?"""
        return any(waiter.complete for waiter in self._waiters)

    def to_wake(self, changed: Collection[str]) -> list[Waiter]:
        """Whom a list concerns that changed what is known of these instances."""
        # To walk through an empty one costs as much as the rest.
        found = dict.fromkeys(self._of_any) if len(self._of_any) else {}
        for record_id in changed:
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
        self._failures = 0
        self._not_before = now + max(SHORTEST_PAUSE_SECONDS * self._part(), took, self.shortest_seconds - took)
        self._paid_not_before = now - took + max(PAID_PAUSE_SECONDS, 2 * took)

    def failed(self, now: float) -> float:
        """A list failed. Returns the seconds until the next one."""
        self._failures += 1
        pause = RETRY.pause(self._failures)
        self._not_before = self._paid_not_before = now + pause
        return pause

    def next_list(self, now: float, listed_at: float) -> float:
        """When to list again; infinite while nobody waits. Lets go of forgotten waiters.

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
            # Of waiters that nobody held any more.
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
