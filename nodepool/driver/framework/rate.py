# SPDX-License-Identifier: Apache-2.0
"""How often a cloud is asked: a rate limit, and a cache that refreshes in the background (reference/driver 12)."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from nodepool.clock import monotonic, sleep
from nodepool.driver.framework.held_time import held_up
from nodepool.driver.framework.token_bucket import BucketSize, TokenBucket
from nodepool.guard import Guard
from nodepool.plan.aged_answer import AgedAnswer

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("nodepool.driver.framework.rate")


class RateLimiter:
    """Lets at most ``rate`` calls a second begin; ``with limiter:`` blocks until it is our turn.

    Threads get their turns in the order in which they came. ``_lock`` guards the bucket; nobody sleeps with it.

    :param name: of the provider, for the log.
    :param rate: calls per second; 0 or less = no limit.
    """

    def __init__(
        self,
        name: str,
        rate: float,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self.name = name
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._bucket = TokenBucket(BucketSize(1, rate), clock())

    def wait(self) -> float:
        """Block until it is our turn; returns the seconds that this took by plan."""
        with self._lock:
            now = self._clock()
            turn = self._bucket.take(now).at
        if turn > now:
            with held_up():
                self._sleep(turn - now)
        return turn - now

    def __enter__(self) -> RateLimiter:
        self.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    @contextlib.contextmanager
    def __call__(self, log_method: Callable[..., None], text: str) -> Iterator[None]:
        """Wait for our turn and log how long the call took.

        :param log_method: e.g. ``log.debug``.
        :param text: what the call did, e.g. ``"Listed servers"``.
        """
        waited = self.wait()
        started = self._clock()
        outcome = "failed after"
        try:
            yield
            outcome = "in"
        finally:
            log_method("%s: %s %s %.3f s, waited %.3f s", self.name, text, outcome, self._clock() - started, waited)


class _Slot:
    """What is known for one combination of arguments. ``lock`` is held during the first call only."""

    def __init__(self, ttl: float) -> None:
        self.lock = threading.Lock()
        # After an error too: a cloud that is down is not asked again at once.
        self.answer: AgedAnswer[Any] = AgedAnswer(ttl, ttl)


class _CachedCall(Generic[P, R]):
    """A function whose results are kept; as an attribute of a class, each instance has results of its own.

    ``_lock`` guards the table of results and the fields of each but its first value; no call is made under it.
    """

    def __init__(
        self, function: Callable[P, R], ttl: float, executor: Executor, clock: Callable[[], float] = monotonic
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._ttl = ttl
        self._executor = executor
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot] = {}
        self._attribute: str | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    @overload
    def __get__(self, instance: None, owner: type) -> _CachedCall[P, R]: ...

    @overload
    def __get__(self, instance: Any, owner: type | None = None) -> _CachedCall[..., R]: ...

    def __get__(self, instance: Any, owner: type | None = None) -> _CachedCall[P, R] | _CachedCall[..., R]:
        if instance is None:
            return self
        name = self._attribute or getattr(self._function, "__name__", "cached")
        with self._lock:
            # Kept in the instance: from now on Python finds it there, and it ends with the instance.
            if name not in vars(instance):
                bound = cast("Callable[..., R]", self._function.__get__(instance, owner))
                vars(instance)[name] = _CachedCall(bound, self._ttl, self._executor, self._clock)
        return cast("_CachedCall[..., R]", vars(instance)[name])

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            slot = self._slots.setdefault((args, tuple(sorted(kwargs.items()))), _Slot(self._ttl))
        if not slot.answer.known:
            with slot.lock:
                if not slot.answer.known:
                    self._store(slot, self._function(*args, **kwargs))
        with self._lock:
            value: R = slot.answer.value
            due = slot.answer.begin(self._clock())
        if due:
            self._start_refresh(slot, functools.partial(self._function, *args, **kwargs))
        return value

    def _store(self, slot: _Slot, value: R) -> None:
        with self._lock:
            slot.answer.answered(value, self._clock())

    def _start_refresh(self, slot: _Slot, call: Callable[[], R]) -> None:
        try:
            self._executor.submit(self._refresh, slot, call)
        except RuntimeError as error:
            # The executor was shut down: whoever still asks gets what was known last.
            log.warning("%s is not refreshed any more: %s", self._function, error)
            with self._lock:
                slot.answer.failed(error, self._clock())

    def _refresh(self, slot: _Slot, call: Callable[[], R]) -> None:
        # In a thread of the executor, for nobody in particular: any function, any error.
        with Guard(log, "%s could not be refreshed, the old value is used", self._function) as guard:
            self._store(slot, call())
        if guard.error is not None:
            with self._lock:
                slot.answer.failed(guard.error, self._clock())


class LazyExecutorTTLCache:
    """Decorator for functions and methods whose results may be a little old.

    The first call (per combination of arguments, which must be hashable) blocks and raises what the function raises.
    Later calls never block: a result older than ``ttl`` is returned once more while ``executor`` gets a new one. When
    that fails the old result stays, and it is tried again after ``ttl``.

    :param ttl: seconds.
    :param executor: runs the refreshes.
    """

    def __init__(self, ttl: float, executor: Executor, clock: Callable[[], float] = monotonic) -> None:
        self._ttl = ttl
        self._executor = executor
        self._clock = clock

    def __call__(self, function: Callable[P, R]) -> _CachedCall[P, R]:
        return _CachedCall(function, self._ttl, self._executor, self._clock)
