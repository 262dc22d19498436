# SPDX-License-Identifier: Apache-2.0
"""What all simulated services share: settings, clock, seeded chance, and the list of what happens next."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Generic, TypeVar

from nodepool.clock import monotonic, wall_time
from simulators.base.rules import Range, Rule
from simulators.base.settings import SimulatorSettings

K = TypeVar("K", bound=SimulatorSettings)
F = TypeVar("F")


class SimulationCore(Generic[K]):
    """Shared by the services of one cloud.

    `lock` guards everything in the cloud. The server's thread takes it for each request, others for a look or a change.

    :param seed: the same seed, settings and order of calls give the same times and faults.
    :param clock: seconds since the epoch; must not go back.
    """

    def __init__(self, knobs: K, seed: int, clock: Callable[[], float] | None = None) -> None:
        self.knobs = knobs
        self.lock = threading.RLock()
        #: What happened: things made and deleted, failures by kind.
        self.events: Counter[str] = Counter()
        self._seed = seed
        self._generators: dict[str, Random] = {}
        self._turns: dict[str, Iterator[int]] = {}
        self._offset = wall_time() - monotonic()
        self._clock = clock
        self._order = itertools.count()
        #: Called, with the lock held, when something is to happen sooner than all else that is due.
        self.sooner: list[Callable[[], None]] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock() if self._clock is not None else self._offset + monotonic()

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Has ``action`` called at that time, seen from outside: at the first request or look after it."""
        first = not self._due or when < self._due[0][0]
        heapq.heappush(self._due, (when, next(self._order), action))
        if first:
            for listener in tuple(self.sooner):
                listener()

    def after(self, range_seconds: Range, purpose: str, action: Callable[[], None]) -> None:
        """Has ``action`` called after a time drawn from the range."""
        self.at(self.now() + self.draw(range_seconds, purpose), action)

    def run_due(self) -> None:
        """Does what was due by now, in the order of time. The caller holds the lock."""
        now = self.now()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()

    def next_due_seconds(self) -> float | None:
        """Until the next thing is due; None = there is none. The caller holds the lock."""
        return max(0.0, self._due[0][0] - self.now()) if self._due else None

    def draw(self, range_seconds: Range, purpose: str) -> float:
        """A number from the range. Each purpose has its own generator: one does not disturb the other."""
        least, most = range_seconds
        return least if most <= least else self._generator(purpose).uniform(least, most)

    def happens(self, rate: float, purpose: str) -> bool:
        """True in ``rate`` of the calls."""
        return rate > 0 and (rate >= 1 or self._generator(purpose).random() < rate)

    def turn(self, what: str, *forms: F) -> F:
        """The next of the forms that an answer has; the tests of the driver name the source of each."""
        number = next(self._turns.setdefault(what, itertools.count()))
        return forms[number % len(forms)] if self.knobs.by_turns else forms[0]

    def sparse(self, what: str, document: Any) -> Any:
        """What an answer has, by turns with and without what is empty in it. It is not changed."""
        return document if self.turn(what, True, False) else without_empty(document)

    def applies(self, rule: Rule, purpose: str) -> bool:
        """Whether the rule applies to a matching event; counts it."""
        if (rule.count is not None and rule.count <= 0) or not self.happens(rule.rate, purpose):
            return False
        if rule.count is not None:
            rule.count -= 1
        return True

    def _generator(self, purpose: str) -> Random:
        if purpose not in self._generators:
            self._generators[purpose] = Random(f"{self._seed} {purpose}")
        return self._generators[purpose]


def without_empty(value: Any) -> Any:
    """A value of JSON without members that are null or have nothing in them. Pure."""
    if isinstance(value, list):
        return [without_empty(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    inner = {key: without_empty(entry) for key, entry in value.items()}
    return {key: entry for key, entry in inner.items() if entry is not None and entry not in ("", [], {})}
