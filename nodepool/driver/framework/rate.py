# SPDX-License-Identifier: Apache-2.0
"""How often a cloud is asked (reference/driver 12).

First the rate limit of 11.0.0 and a cache that refreshes in the background, then the pace of each class of calls
(`RateClasses`, `TokenBucket`), then the time that launches and uploads wait for ourselves.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from nodepool.clock import monotonic, next_tick, sleep
from nodepool.driver.framework.fact import Known
from nodepool.guard import OnError
from nodepool.plan.retries import Backoff

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

    def __exit__(self, *_: object) -> None:
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


class _CachedCall(Generic[P, R]):
    """A function whose results are kept; as an attribute of a class, each instance has results of its own.

    ``_lock`` guards the table of results. The lock of each result is held during its first call only.
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
        self._known: dict[Hashable, tuple[threading.Lock, Known[R]]] = {}
        self._attribute: str | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    def __get__(self, instance: Any, owner: type | None = None) -> _CachedCall[..., R]:
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
        call = functools.partial(self._function, *args, **kwargs)
        key = args, tuple(sorted(kwargs.items()))
        with self._lock:
            if key not in self._known:
                self._known[key] = threading.Lock(), self._make(call)
            first, known = self._known[key]
        with first:
            if not known.answered:
                known.put(call())
        return known.get()

    def _make(self, call: Callable[[], R]) -> Known[R]:
        def again() -> R:
            text = "%s could not be refreshed, the old value is used: %s"
            with OnError(lambda error: log.error(text, self._function, error)):
                return call()

        # After an error too: a cloud that is down is not asked again at once.
        return Known(again, self._ttl, self._submit, error_seconds=self._ttl, clock=self._clock)

    def _submit(self, refresh: Callable[[], None]) -> None:
        try:
            self._executor.submit(refresh)
        except RuntimeError as error:
            log.warning("%s is not refreshed any more: %s", self._function, error)
            raise


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


# `RateClasses`: paces the calls to a cloud, each class of calls separately.

#: A pause is up to so much longer than told, in seconds: several launchers shall not all come at once.
SPREAD_SECONDS: Final = 0.1


class Call:
    """A call whose turn has come. Tell it what the cloud made of it: `throttled` or `worked`.

    :ivar spare: the part of the calls that may begin at once that there was before it: 1 = all; 0 = its turn did not
        come at once, so the cloud is asked as often as it allows.
    """

    def __init__(self, classes: RateClasses, kind: str, turn: Turn, *, waited: bool) -> None:
        self._classes = classes
        self._kind = kind
        self._turn = turn
        self.spare = 0.0 if waited else turn.spare

    def throttled(self, seconds: float | None) -> float:
        """The cloud puts calls of this class off; returns for how long none of them begins, in seconds.

        :param seconds: as the cloud told, e.g. in ``Retry-After``; None = it did not.
        """
        return self._classes.throttled(self._kind, self._turn, seconds)

    def worked(self) -> None:
        """The cloud did not put it off."""
        self._classes.worked(self._kind, self._turn)


class RateClasses:
    """Calls to one cloud, by class. Thread-safe; ``_lock`` guards the classes, no thread sleeps while holding it.

    :param sizes: of the classes, by name.
    :param default: of classes that are not named: each has a bucket of its own.
    :param sleep: waits for a turn; may raise, then there is no call.
    """

    def __init__(
        self,
        sizes: Mapping[str, BucketSize],
        default: BucketSize,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self._sizes = dict(sizes)
        self._default = default
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._buckets: dict[str, TokenBucket] = {}

    def wait(self, kind: str) -> Call:
        """Block until a call of a class may begin. Threads get their turns in the order in which they came.

        One that waits while the class is throttled gets a new turn after the pause.
        """
        waited = False
        while True:
            with self._lock:
                bucket, now = self._bucket(kind), self._clock()
                turn = bucket.take(now)
            if turn.at > now:
                waited = True
                with held_up():
                    self._sleep(turn.at - now)
            with self._lock:
                if bucket.round == turn.round:
                    return Call(self, kind, turn, waited=waited)

    def throttled(self, kind: str, turn: Turn, seconds: float | None) -> float:
        """See `Call.throttled`."""
        spread = random.uniform(0, SPREAD_SECONDS)
        with self._lock:
            told = None if seconds is None else seconds + spread
            return self._bucket(kind).throttled(self._clock(), turn, told)

    def worked(self, kind: str, turn: Turn) -> None:
        """See `Call.worked`."""
        with self._lock:
            self._bucket(kind).worked(turn)

    def _bucket(self, kind: str) -> TokenBucket:
        """Called with the lock."""
        if kind not in self._buckets:
            self._buckets[kind] = TokenBucket(self._sizes.get(kind, self._default), self._clock())
        return self._buckets[kind]


# `TokenBucket`: how many calls of one class a cloud takes. It is pure: each method gets the time.
#
# A class is what the cloud counts together: calls that read, calls that change, or the calls to one service. When the
# cloud throttles one of them (429, RequestLimitExceeded), the class as a whole slows down: if each caller went by its
# own answer, the others would go on asking, and the throttling would never end.
#
# A class without a rate is paced by what the cloud throttles only.

#: From a rate of zero back to the full one, in seconds.
RECOVERY_SECONDS: Final = 20.0
#: No class is made slower than this, in calls per second, or than this part of a full rate that is less.
LOWEST_RATE: Final = 2.0
LOWEST_PART: Final = 0.25
#: For how long calls are remembered, to tell the rate that was too high.
REMEMBERED_SECONDS: Final = 2.0
#: Calls that wait for longer than this begin together with others, once in such a period, and so do the steps that
#: follow their answers: one node after the other costs a fifth more CPU. With fewer calls per second there is nothing
#: to gain.
TOGETHER_SECONDS: Final = 0.25
TOGETHER_RATE: Final = 8.0
#: After a throttling that names no time; each further one in a row counts as a failure.
THROTTLED: Final = Backoff(1.0, 60.0)


@dataclass(frozen=True)
class BucketSize:
    """What is allowed of one class.

    :param burst: calls that may begin at once after a pause; at least 1.
    :param rate: calls per second in the long run; 0 or less = no limit.
    """

    burst: float
    rate: float


@dataclass(frozen=True)
class Turn:
    """When a call may begin, in seconds of the caller's clock.

    :param round: the turn is void when the bucket has another one by then: take a new turn.
    :param spare: the part of what may begin at once that there was before it: 1 = all, 0 = nothing.
    """

    at: float
    round: int
    spare: float = 1.0


class TokenBucket:
    """One class of calls."""

    def __init__(self, size: BucketSize, now: float) -> None:
        self._size = size
        self._tokens = max(1.0, size.burst)
        self._counted_at = now
        #: Changed with each pause: turns that were given out before are void.
        self.round = 0
        #: The round that began when the class was made slower the last time.
        self._lowered_in = 0
        self._held_until = float("-inf")
        #: Throttlings in a row.
        self._throttled = 0
        #: The rate after the latest throttling, None = the full one; and the rate that it returns to.
        self._lowered: float | None = None
        self._reference = size.rate
        self._begun: deque[float] = deque()
        #: The latest turn that is not void.
        self._latest = float("-inf")

    def rate(self, now: float) -> float:
        """Calls per second that are allowed now; infinite = no limit."""
        full = self._size.rate if self._size.rate > 0 else float("inf")
        if self._lowered is None:
            return full
        grown = self._lowered + self._reference * max(0.0, now - self._held_until) / RECOVERY_SECONDS
        # Without a limit of its own a class has one until it was twice as fast without a throttling.
        end = full if self._size.rate > 0 else 2 * self._reference
        if grown < end:
            return grown
        self._lowered = None
        return full

    def take(self, now: float) -> Turn:
        """The next turn of the class. Turns are given out in the order in which they are taken."""
        rate, begin = self.rate(now), max(now, self._held_until)
        at, spare = begin, 1.0
        if rate != float("inf"):
            self._tokens = min(self._burst(rate), self._tokens + max(0.0, begin - self._counted_at) * rate)
            self._counted_at = max(self._counted_at, begin)
            self._tokens -= 1.0
            wait = max(0.0, -self._tokens) / rate
            at = begin + wait
            if wait > TOGETHER_SECONDS and rate >= TOGETHER_RATE:
                at = next_tick(at, TOGETHER_SECONDS)
            # Who comes when the queue has become short does not overtake those who begin together.
            at = self._latest = max(at, self._latest)
            spare = max(0.0, min(1.0, (self._tokens + 1.0) / self._burst(rate)))
        self._remember(at)
        return Turn(at, self.round, spare)

    def throttled(self, now: float, turn: Turn, seconds: float | None) -> float:
        """A call was put off by the cloud; returns how long no call of the class begins, in seconds.

        Of calls that had begun together only the first one makes the class slower.

        :param turn: of the call.
        :param seconds: as the cloud told; None = it did not.
        """
        first = turn.round >= self._lowered_in
        if first:
            self._throttled += 1
            self._lower(now)
            self._lowered_in = self.round + 1
        if seconds is None:
            seconds = THROTTLED.pause(self._throttled) if first else 0.0
        until = now + min(seconds, THROTTLED.longest_seconds)
        if first or until > self._held_until:
            self.round += 1
            self._latest = float("-inf")
            # All turns that wait are void: what they took is given back.
            self._tokens = max(1.0, self._tokens)
            self._held_until = max(self._held_until, until)
        return max(0.0, self._held_until - now)

    def worked(self, turn: Turn) -> None:
        """A call was not put off."""
        if turn.round >= self._lowered_in:
            self._throttled = 0

    def _lower(self, now: float) -> None:
        """Half of what was asked; from then on nothing is left to begin at once with."""
        while self._begun and self._begun[0] < now - REMEMBERED_SECONDS:
            self._begun.popleft()
        asked = len(self._begun) / REMEMBERED_SECONDS
        full = self._size.rate
        lowest = min(LOWEST_RATE, full * LOWEST_PART) if full > 0 else LOWEST_RATE
        current = self.rate(now)
        if full <= 0 and self._lowered is None:
            self._reference = max(asked, LOWEST_RATE)
        self._lowered = max(lowest, min(current, asked) / 2)
        self._tokens = 1.0
        self._counted_at = now
        self._begun.clear()

    def _burst(self, rate: float) -> float:
        full = self._size.rate
        if self._lowered is None or full <= 0:
            return max(1.0, self._size.burst if self._lowered is None else 1.0)
        return max(1.0, self._size.burst * rate / full)

    def _remember(self, at: float) -> None:
        self._begun.append(at)
        while self._begun[0] < at - REMEMBERED_SECONDS:
            self._begun.popleft()


# How long launches, deletions and uploads wait for ourselves: such time does not count against their time-outs.
#
# A call waits for its turn in a rate limit, or for one of our threads. The cloud has not
# got it by then, so that says nothing of the cloud. What a thread works for is known in the thread, and goes with each
# call that is given to another one.

_thread: Final = threading.local()


class HeldTime:
    """Of one launch, deletion or upload. Thread-safe; waits at the same time count once."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waits = 0
        self._since = 0.0
        self._seconds = 0.0

    def begin(self) -> None:
        """It waits. Does not block."""
        with self._lock:
            if not self._waits:
                self._since = self._clock()
            self._waits += 1

    def end(self) -> None:
        """The wait is over."""
        with self._lock:
            self._waits -= 1
            if not self._waits:
                self._seconds += self._clock() - self._since

    @property
    def seconds(self) -> float:
        """In all, with the wait that has not ended."""
        with self._lock:
            return self._seconds + (self._clock() - self._since if self._waits else 0.0)


class HeldTogether(HeldTime):
    """Of what several wait for: they wait as long as that does.

    :param who: says whose time it is when a wait begins; those who come later `join`.
    """

    def __init__(self, who: Callable[[], Iterable[HeldTime]]) -> None:
        super().__init__()
        self._who = who
        self._held: set[HeldTime] = set()

    def begin(self) -> None:
        super().begin()
        self.join(self._who())

    def join(self, work: Iterable[HeldTime]) -> None:
        """More wait for it, too; nothing happens while it does not wait."""
        with self._lock:
            new = set(work) - self._held if self._waits else set()
        # Not under the lock, because each has one of its own. The wait may be over by then.
        for held in new:
            held.begin()
        with self._lock:
            joined = new - self._held if self._waits else set()
            self._held |= joined
        for held in new - joined:
            held.end()

    def end(self) -> None:
        super().end()
        with self._lock:
            if self._waits:
                return
            over, self._held = self._held, set()
        for held in over:
            held.end()


class TimeLimit:
    """A time-out that begins when it is made.

    :param seconds: of the time-out.
    :param held: time that does not count.
    """

    def __init__(self, seconds: float, held: HeldTime, clock: Callable[[], float] = monotonic) -> None:
        self._held = held
        self._clock = clock
        self._end = clock() + seconds - held.seconds

    @property
    def left(self) -> float:
        """Seconds; may be negative."""
        return self._end + self._held.seconds - self._clock()


def held_work() -> tuple[HeldTime, ...]:
    """Of all that this thread works for now."""
    work: tuple[HeldTime, ...] = getattr(_thread, "work", ())
    return work


def held_here(clock: Callable[[], float] = monotonic) -> HeldTime:
    """That of the work of this thread; one of its own if it works for nothing that has one."""
    return next(iter(held_work()), None) or HeldTime(clock)


@contextlib.contextmanager
def working_for(work: Iterable[HeldTime]) -> Iterator[None]:
    """Inside, this thread works for others than before."""
    before, _thread.work = held_work(), tuple(work)
    try:
        yield
    finally:
        _thread.work = before


class Hold:
    """The work of this thread waits from now on, until `end`, which any thread may call."""

    __slots__ = ("_waits", "work")

    def __init__(self) -> None:
        self.work = held_work()
        self._waits = False
        self.begin()

    def begin(self) -> None:
        """It waits again. Nothing happens if it waits."""
        if not self._waits:
            self._waits = True
            for held in self.work:
                held.begin()

    def end(self) -> None:
        """The wait is over. Nothing happens if it was over."""
        if self._waits:
            self._waits = False
            for held in self.work:
                held.end()


@contextlib.contextmanager
def held_up() -> Iterator[None]:
    """Inside, the work of this thread waits."""
    hold = Hold()
    try:
        yield
    finally:
        hold.end()
