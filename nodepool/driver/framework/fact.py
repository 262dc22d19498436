# SPDX-License-Identifier: Apache-2.0
"""Answers of a cloud that are kept; then a cache for drivers, and two limits of what is logged again and again.

A `Fact` is waited for by all who ask. What is `Known` is returned at once, and asked for again in the background.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Collection, Hashable, Iterator
from concurrent.futures import Executor, Future
from typing import Final, Generic, ParamSpec, TypeVar, cast

from nodepool.clock import monotonic
from nodepool.exceptions import LaunchError
from nodepool.guard import ERRORS, OnError, as_exception

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

log = logging.getLogger("nodepool.driver.framework.rate")

#: How old an answer may be, in seconds, unless the caller names another age.
MAX_AGE_SECONDS: Final = 600.0
#: Longest wait for the very first answer, in seconds.
FIRST_ANSWER_SECONDS: Final = 5.0
#: Pause after an error before the same question is asked again, in seconds.
ERROR_SECONDS: Final = 2.0


class Fact(Generic[T]):
    """One answer of the cloud.

    Thread-safe. If several threads ask at the same time, one of them asks the cloud, and the others wait for its
    answer.

    ``_lock`` guards the fields; it is not held while the cloud is asked.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._answer: Future[T] | None = None
        self._asked_at = float("-inf")
        #: The latest answer that there was, and when it was asked for; minus infinity = it was cleared.
        self._known: tuple[T, float] | None = None

    def get(self, max_age: float = MAX_AGE_SECONDS) -> T:
        """The answer, at most ``max_age`` seconds old; may block. Raises what the cloud's API raises."""
        with self._lock:
            answer = self._answer
            mine = answer is None or (answer.done() and monotonic() - self._asked_at > max_age)
            if mine:
                answer = self._begin()
        assert answer is not None
        return self._ask_for(answer) if mine else answer.result()

    def get_new(self) -> T:
        """The answer to a question that is asked from now on; may block for two of them. Raises what `get` does."""
        since = monotonic()
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
        self._asked_at = monotonic()
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
            known, now = self._known, monotonic()
        return None if known is None or now - known[1] > max_age else known[0]

    def clear(self) -> None:
        """Ask again next time."""
        with self._lock:
            self._answer = None
            if self._known is not None:
                self._known = self._known[0], float("-inf")


class NotKnown(Exception):
    """There is no answer yet. The text says why."""


class Patience:
    """How long first answers of one cloud are waited for, all together. An answer, whichever, gives all of it back.

    ``_lock`` guards what is left.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = FIRST_ANSWER_SECONDS

    def wait(self, condition: threading.Condition, until: Callable[[], bool]) -> None:
        """Wait until something is true, or patience is at its end. ``condition`` is held."""
        with self._lock:
            left = self._left
        begun = monotonic()
        condition.wait_for(until, left)
        with self._lock:
            self._left = max(0.0, self._left - (monotonic() - begun))

    def restore(self) -> None:
        """The cloud has answered something."""
        with self._lock:
            self._left = FIRST_ANSWER_SECONDS


class Known(Generic[T]):
    """An answer of a cloud that may be a little old.

    `get` returns what is known and, when that is too old, has it asked for again in the background. Only the first
    answer is waited for, by the first caller, and not for long: a pool that waits serves no request. After an error the
    old answer stays. ``_condition`` guards everything; it is not held while the cloud is asked.

    :param ask: asks the cloud; may block and raise.
    :param seconds: how old an answer may be.
    :param submit: has a function called in another thread, as `Executor.submit` does. RuntimeError = not now.
    :param permanent: errors that are an answer, too: they are raised by `get` until it is time to ask again.
    :param error_seconds: pause after any other error; None = `ERROR_SECONDS`.
    :param each_seconds: how long the one who has it asked for again waits for the answer.
    :param patience: shared by all that is asked of one cloud.
    """

    def __init__(
        self,
        ask: Callable[[], T],
        seconds: float,
        submit: Callable[[Callable[[], None]], object],
        *,
        permanent: tuple[type[Exception], ...] = (),
        error_seconds: float | None = None,
        each_seconds: float = 0.0,
        patience: Patience | None = None,
    ) -> None:
        self._ask = ask
        self._seconds = seconds
        self._submit = submit
        self._permanent = permanent
        self._error_seconds = error_seconds
        self._each_seconds = each_seconds
        self._patience = patience or Patience()
        self._condition = threading.Condition()
        #: The latest answer, which may be a permanent error; None = there is none.
        self._answer: tuple[T | Exception] | None = None
        #: The latest error; None = there was an answer since.
        self._error: Exception | None = None
        self._asking = False
        #: Was it out of date when it was being asked for?
        self._expired = False
        self._due = float("-inf")
        self._tried = self._waited = False

    def get(self) -> T:
        """The answer; blocks at most a few seconds, and only for the first one.

        :raises NotKnown: the cloud has not answered yet.
        :raises Exception: one of ``permanent``.
        """
        begun = self.refresh()
        with self._condition:
            if not self._tried and not self._waited:
                self._patience.wait(self._condition, lambda: self._tried)
                self._waited = True
            elif begun and self._each_seconds:
                self._condition.wait_for(lambda: not self._asking, self._each_seconds)
            if self._answer is None:
                raise NotKnown(str(self._error or "the cloud has not answered yet"))
            value = self._answer[0]
            if isinstance(value, self._permanent):
                raise value.with_traceback(None)
            return cast("T", value)

    def refresh(self) -> bool:
        """Ask if what is known is too old; was it so? Does not block."""
        with self._condition:
            if self._asking or monotonic() < self._due:
                return False
            self._asking, self._expired = True, False
        try:
            self._submit(self._run)
        except RuntimeError:
            # The provider was stopped, or the system has no more threads just now.
            with self._condition:
                self._end(self._pause)
            return False
        return True

    def expire(self) -> None:
        """What is known is out of date, also what is being asked for just now. Does not block."""
        with self._condition:
            self._due = float("-inf")
            self._expired = True

    @property
    def answered(self) -> bool:
        """Is there an answer?"""
        return self._answer is not None

    def put(self, value: T | Exception) -> None:
        """This is the answer. Does not block."""
        self._patience.restore()
        with self._condition:
            self._answer, self._error = (value,), None
            self._end(self._seconds)

    @property
    def _pause(self) -> float:
        """After an error, in seconds."""
        return ERROR_SECONDS if self._error_seconds is None else self._error_seconds

    def _end(self, seconds: float) -> None:
        """Called with the lock."""
        self._asking, self._tried = False, True
        if not self._expired:
            self._due = monotonic() + seconds
        self._condition.notify_all()

    def _run(self) -> None:
        try:
            self.put(self._ask())
        except ERRORS as error:
            # Who waits is given it, or looks at `error`.
            if isinstance(error, self._permanent):
                self.put(error)
                return
            with self._condition:
                self._error = as_exception(error)
                self._end(self._pause)


# A cache that refreshes in the background, for drivers of the released interface.


class LazyExecutorTTLCache:
    """Decorator for functions and bound methods whose results may be a little old.

    In the body of a class it would keep each object, as the arguments of its results: wrap the method of an object.

    The first call (per combination of arguments, which must be hashable) blocks and raises what the function raises.
    Later calls never block: a result older than ``ttl`` is returned once more while ``executor`` gets a new one. When
    that fails the old result stays, and it is tried again after ``ttl``.

    :param ttl: seconds.
    :param executor: runs the refreshes.
    """

    def __init__(self, ttl: float, executor: Executor) -> None:
        self._ttl = ttl
        self._executor = executor

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        #: The lock of each result is held during its first call only.
        results: dict[Hashable, tuple[threading.Lock, Known[R]]] = {}
        lock = threading.Lock()

        @functools.wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            call = functools.partial(function, *args, **kwargs)
            key = args, tuple(sorted(kwargs.items()))
            with lock:
                if key not in results:
                    results[key] = threading.Lock(), self._known(call)
                first, known = results[key]
            with first:
                if not known.answered:
                    known.put(call())
            return known.get()

        return cached

    def _known(self, call: functools.partial[R]) -> Known[R]:
        def again() -> R:
            text = "%s could not be refreshed, the old value is used: %s"
            with OnError(lambda error: log.error(text, call.func, error)):
                return call()

        def submit(refresh: Callable[[], None]) -> None:
            try:
                self._executor.submit(refresh)
            except RuntimeError as error:
                log.warning("%s is not refreshed any more: %s", call.func, error)
                raise

        # After an error too: a cloud that is down is not asked again at once.
        return Known(again, self._ttl, submit, error_seconds=self._ttl)


# Limits how often a persistent error is logged.

#: So often the log is reminded of trouble that lasts, in seconds.
REMIND_SECONDS: Final = 60.0


class Repeats:
    """Decides whether an error is logged again. Thread-safe, does not block; ``_lock`` guards the times."""

    def __init__(self, seconds: float = REMIND_SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._said: dict[Hashable, float] = {}

    def worth_saying(self, key: Hashable) -> bool:
        """Is it the first time, or long ago? Then it counts as logged."""
        with self._lock:
            now = monotonic()
            if now - self._said.get(key, float("-inf")) < self._seconds:
                return False
            self._said[key] = now
            return True

    @contextlib.contextmanager
    def logged(self, key: Hashable, warn: Callable[..., object], text: str, *args: object) -> Iterator[None]:
        """Inside is something without which work goes on. That the cloud refuses it is logged when it is worth saying.

        :param warn: of a logger; ``text`` gets ``args`` and the error.
        """
        try:
            yield
        except LaunchError as error:
            if self.worth_saying(key):
                warn(text, *args, error)
        else:
            self.over(key)

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
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: frozenset[str] | None = None

    def new(self, found: Collection[str]) -> list[str]:
        """Those that no list has shown before, sorted.

        :param found: ids of a list.
        """
        with self._lock:
            before = self._told
            kept = before if before is not None and len(before) < MANY else frozenset()
            self._told = kept.union(found)
        return [] if before is None else sorted(set(found) - before)
