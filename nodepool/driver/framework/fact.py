# SPDX-License-Identifier: Apache-2.0
"""One answer of a cloud, shared by all callers (`Fact`); then two limits of what is logged again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from nodepool.clock import monotonic
from nodepool.guard import OnError

T = TypeVar("T")

#: How old an answer may be, in seconds, unless somebody says otherwise.
MAX_AGE_SECONDS: Final = 600.0


class Fact(Generic[T]):
    """One answer of the cloud.

    Thread-safe. If several threads ask at the same time, one of them asks the cloud, and the others wait for its
    answer.

    ``_lock`` guards the fields; it is not held while the cloud is asked.
    """

    def __init__(self, ask: Callable[[], T], clock: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: Future[T] | None = None
        self._asked_at = float("-inf")
        #: The latest answer that there was, and when it was asked for; minus infinity = it was cleared.
        self._known: tuple[T, float] | None = None

    def get(self, max_age: float = MAX_AGE_SECONDS) -> T:
        """The answer, at most ``max_age`` seconds old; may block. Raises what the cloud's API raises."""
        with self._lock:
            answer = self._answer
            mine = answer is None or (answer.done() and self._clock() - self._asked_at > max_age)
            if mine:
                answer = self._begin()
        assert answer is not None
        return self._ask_for(answer) if mine else answer.result()

    def get_new(self) -> T:
        """The answer to a question that is asked from now on; may block for two of them. Raises what `get` does."""
        since = self._clock()
        while True:
            with self._lock:
                answer, new = self._answer, self._asked_at >= since
                mine = answer is None or (answer.done() and not new)
                if mine:
                    answer = self._begin()
            assert answer is not None
            if mine:
                return self._ask_for(answer)
            if new:
                return answer.result()
            # Of those who wait for the end of an older question one asks the next, for all of them.
            answer.exception()

    def _begin(self) -> Future[T]:
        answer = self._answer = Future()
        self._asked_at = self._clock()
        return answer

    def _ask_for(self, answer: Future[T]) -> T:
        with OnError(lambda error: self._failed(answer, error)):
            found = self._ask()
        with self._lock:
            if self._answer is answer:
                self._known = found, self._asked_at
            elif self._known is None:
                self._known = found, float("-inf")
        answer.set_result(found)
        return found

    def _failed(self, answer: Future[T], error: BaseException) -> None:
        with self._lock:
            if self._answer is answer:
                self._answer = None
        answer.set_exception(error)

    def known(self, max_age: float = float("inf")) -> T | None:
        """The latest answer, if it is not too old; also while a newer one is asked for. Does not block.

        :param max_age: seconds; what was cleared is too old for any but the default.
        """
        with self._lock:
            known, now = self._known, self._clock()
        return None if known is None or now - known[1] > max_age else known[0]

    def clear(self) -> None:
        """Ask again next time."""
        with self._lock:
            self._answer = None
            if self._known is not None:
                self._known = self._known[0], float("-inf")


# Limits how often a persistent error is logged.

#: So often the log is reminded of trouble that lasts, in seconds.
REMIND_SECONDS: Final = 60.0


class Repeats:
    """Decides whether an error is logged again. Thread-safe, does not block; ``_lock`` guards the times."""

    def __init__(self, seconds: float = REMIND_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[Hashable, float] = {}

    def worth_saying(self, key: Hashable) -> bool:
        """Is it the first time, or long ago? Then it counts as said."""
        with self._lock:
            now = self._clock()
            if now - self._said.get(key, float("-inf")) < self._seconds:
                return False
            self._said[key] = now
            return True

    def over(self, key: Hashable) -> bool:
        """The trouble has ended: the next time is the first again. Returns whether there was any."""
        with self._lock:
            return self._said.pop(key, None) is not None


# `ToldOnce`: what lists show again and again is reported once, such as instances that ended.

#: With more ids than these, those that the latest list does not show are forgotten.
MANY: Final = 5000


class ToldOnce:
    """Which of the ids in a list are new. Thread-safe, does not block; ``_lock`` guards the ids.

    What the first list shows was there before: it is not new. Lists may come in another order than they were begun, so
    an id that a list lacks does not become new again.

    :param many: see `MANY`.
    """

    def __init__(self, many: int = MANY) -> None:
        self._many = many
        self._lock = threading.Lock()
        self._told: frozenset[str] | None = None

    def new(self, found: Collection[str]) -> list[str]:
        """Those that no list has shown before, sorted.

        :param found: ids of a list.
        """
        with self._lock:
            before = self._told
            kept = before if before is not None and len(before) < self._many else frozenset()
            self._told = kept.union(found)
        return [] if before is None else sorted(set(found) - before)
