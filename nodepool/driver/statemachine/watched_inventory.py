# SPDX-License-Identifier: Apache-2.0
"""`WatchedInventory`: an inventory for clouds that report changes by watches, so that they need not be asked.

The driver puts in what its watches report. Instances are listed when a waiter needs a complete list. They are also
listed when something waits and no watch has reported anything for long, because a watch can be dead without an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from nodepool.driver.statemachine.inventory import Inventory, R, no_changes
from nodepool.driver.statemachine.list_pace import Waiter

#: How long a watch may be silent while something waits, before instances are listed.
SILENT_SECONDS: Final = 30.0


class WatchedInventory(Inventory[R]):
    """Instances of one provider, as told last. Thread-safe. Ids may be used again: `revive`.

    An instance can be asked for by its id: `InstanceCloud.get_instance`.

    Parameters as those of `Inventory`.
    """

    # A watch tells nothing of what was gone before it began, and the next list is far away.
    absent_seconds = 0.5

    def __init__(
        self,
        provider: str,
        fetch: Callable[[str | None], Iterable[R]],
        since: Callable[[str], str | None] = no_changes,
        lag_seconds: float = 0.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if clock is None:
            super().__init__(provider, fetch, since, lag_seconds)
        else:
            super().__init__(provider, fetch, since, lag_seconds, clock)
        #: Something is not told by watches: instances are listed while something waits, as in `Inventory`.
        self.lists = False
        #: Called once, when somebody waits for the first time: begin to watch. Must not block.
        self.on_start: Callable[[], None] = lambda: None
        #: Called, in the thread of the watch, with an instance that has ended, as it was known. Must not block.
        self.on_end: Callable[[R], None] = lambda record: None
        self._heard_at = float("-inf")

    # -- what watches tell --

    def put(self, record: R) -> None:
        """A watch told of an instance. One with the id of an instance that is gone is another one."""
        with self._changed:
            now = self._heard_at = self.listed_at = self._clock()
            self._gone.pop(record.id, None)
            self._never_seen.discard(record.id)
            self._seen[record.id] = now
            news = self._records.get(record.id) != record
            self._records[record.id] = record
            wake = self._pace.to_wake({record.id}) if news else []
        if news:
            self.on_news([record])
        for waiter in wake:
            waiter.wake()

    def listed(self, records: Iterable[R], started: float) -> None:
        """A watch began with all instances, at that time."""
        news, wake = self._take(list(records), started, complete=True)
        self.heard()
        if news:
            self.on_news(news)
        for waiter in wake:
            waiter.wake()
        self.on_list()

    def remove(self, record_id: str, another: bool = False, since: float = float("inf")) -> None:
        """A watch told that an instance is gone, or lists it no more.

        :param another: an instance with the same id was made meanwhile, of which the watch has not told yet.
        :param since: when the watch's list began that lacks it: such a list says nothing of an instance that another
            list, which began later, has shown. Infinite = the watch told the end itself.
        """
        with self._changed:
            if self._seen.get(record_id, float("-inf")) >= since:
                return
            now = self._heard_at = self.listed_at = self._clock()
            known = self._records.pop(record_id, None)
            self._seen.pop(record_id, None)
            if not another:
                self._gone[record_id] = now
                self._never_seen.discard(record_id)
            wake = self._pace.to_wake({record_id})
        if known is not None and not another:
            self.on_end(known)
        for waiter in wake:
            waiter.wake()

    def heard(self) -> None:
        """A watch gave a sign of life."""
        with self._changed:
            self._heard_at = self._clock()

    def revive(self, record_id: str) -> None:
        """An instance is about to be made whose id was that of another one, which is gone."""
        with self._changed:
            self._gone.pop(record_id, None)

    def known(self) -> list[R]:
        """All instances as told last. Does not block."""
        with self._changed:
            return list(self._records.values())

    # -- when to list --

    def _start(self) -> threading.Thread | None:
        self.on_start()
        return super()._start()

    def _add(self, waiter: Waiter) -> None:
        if self.lists or waiter.complete:
            super()._add(waiter)
            return
        self._pace.add(waiter)
        if self._heard_at + SILENT_SECONDS < self._waiting_until:
            self._changed.notify_all()

    def _pause(self) -> float:
        now = self._clock()
        due = self._pace.next_list(now, self.listed_at)
        if due != float("inf") and not self.lists and not self._pace.complete_wanted():
            due = max(due, self._heard_at + SILENT_SECONDS, self.complete_at + SILENT_SECONDS)
        return due - now
