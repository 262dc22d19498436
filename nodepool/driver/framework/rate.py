# SPDX-License-Identifier: Apache-2.0
"""How often a cloud is asked, and in which threads (reference/driver 12).

First the rate limit of 11.0.0, then the pace of each class of calls (`RateClasses`, `TokenBucket`), then the time that
launches and uploads wait for ourselves, then the threads in which the calls are made (`SharedThreads`), and when the
steps of launches and deletions are due (`Scheduler`, `Driven`).
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from nodepool.clock import monotonic, next_tick, sleep
from nodepool.driver import gateway
from nodepool.guard import Guard, settle
from nodepool.plan import launch as plan
from nodepool.plan.retries import Backoff

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("nodepool.driver.framework.rate")


class RateLimiter:
    """Lets at most ``rate`` calls a second begin; ``with limiter:`` blocks until it is our turn.

    Threads get their turns in the order in which they came.

    :param name: of the provider, for the log.
    :param rate: calls per second; 0 or less = no limit.
    """

    def __init__(self, name: str, rate: float, sleep: Callable[[float], None] = sleep) -> None:
        self.name = name
        self.rate = rate
        self._calls = RateClasses({}, BucketSize(1, rate), sleep)

    def wait(self) -> float:
        """Block until it is our turn; returns the seconds that this took."""
        begun = monotonic()
        self._calls.wait("")
        return monotonic() - begun

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
        started = monotonic()
        outcome = "failed after"
        try:
            yield
            outcome = "in"
        finally:
            log_method("%s: %s %s %.3f s, waited %.3f s", self.name, text, outcome, monotonic() - started, waited)


# `RateClasses`: paces the calls to a cloud, each class of calls separately.

#: A pause is up to so much longer than reported, in seconds: several launchers shall not all come at once.
SPREAD_SECONDS: Final = 0.1


class Call:
    """A call whose turn has come. Tell it what the cloud made of it: `throttled` or `worked`.

    :param lock: guards the bucket.
    :ivar spare: the part of the calls that may begin at once that there was before it: 1 = all; 0 = its turn did not
        come at once, so the cloud is asked as often as it allows.
    """

    def __init__(self, bucket: TokenBucket, lock: threading.Lock, turn: Turn, *, waited: bool) -> None:
        self._bucket = bucket
        self._lock = lock
        self._turn = turn
        self.spare = 0.0 if waited else turn.spare

    def throttled(self, seconds: float | None) -> float:
        """The cloud puts calls of this class off; returns for how long none of them begins, in seconds.

        :param seconds: as the cloud reported, e.g. in ``Retry-After``; None = it did not.
        """
        told = None if seconds is None else seconds + random.uniform(0, SPREAD_SECONDS)
        with self._lock:
            return self._bucket.throttled(monotonic(), self._turn, told)

    def worked(self) -> None:
        """The cloud did not put it off."""
        with self._lock:
            self._bucket.worked(self._turn)


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
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self._sizes = dict(sizes)
        self._default = default
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
                now = monotonic()
                if kind not in self._buckets:
                    self._buckets[kind] = TokenBucket(self._sizes.get(kind, self._default), now)
                bucket = self._buckets[kind]
                turn = bucket.take(now)
            if turn.at > now:
                waited = True
                with held_up():
                    self._sleep(turn.at - now)
            with self._lock:
                if bucket.round == turn.round:
                    return Call(bucket, self._lock, turn, waited=waited)


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
        :param seconds: as the cloud reported; None = it did not.
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

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits = 0
        self._since = 0.0
        self._seconds = 0.0

    def begin(self) -> None:
        """It waits. Does not block."""
        with self._lock:
            if not self._waits:
                self._since = monotonic()
            self._waits += 1

    def end(self) -> None:
        """The wait is over."""
        with self._lock:
            self._waits -= 1
            if not self._waits:
                self._seconds += monotonic() - self._since

    @property
    def seconds(self) -> float:
        """In all, with the wait that has not ended."""
        with self._lock:
            return self._seconds + (monotonic() - self._since if self._waits else 0.0)


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

    def __init__(self, seconds: float, held: HeldTime) -> None:
        self._held = held
        self._end = monotonic() + seconds - held.seconds

    @property
    def left(self) -> float:
        """Seconds; may be negative."""
        return self._end + self._held.seconds - monotonic()


def held_work() -> tuple[HeldTime, ...]:
    """Of all that this thread works for now."""
    work: tuple[HeldTime, ...] = getattr(_thread, "work", ())
    return work


def held_here() -> HeldTime:
    """That of the work of this thread; one of its own if it works for nothing that has one."""
    return next(iter(held_work()), None) or HeldTime()


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


# `SharedThreads`: the threads of one provider, shared by all that it does.

threads_log = logging.getLogger("nodepool.driver.framework.SharedThreads")

#: Threads of one provider, unless its driver asks for more.
MAX_THREADS: Final = 20
#: A thread that had nothing to do for so long ends.
IDLE_SECONDS: Final = 60.0


class _Work:
    """One call that was submitted. For a free thread it waits with the work that it is for."""

    __slots__ = ("call", "future", "hold", "number", "share")

    def __init__(self, share: ThreadShare, number: int, call: Callable[[], Any], future: Future[Any]) -> None:
        self.share = share
        self.number = number
        self.call = call
        self.future = future
        self.hold = Hold()

    def run(self) -> None:
        self.hold.end()
        if self.future.set_running_or_notify_cancel():
            with working_for(self.hold.work):
                settle((self.future,), self.call)


class _Idle:
    """A thread that waits for work; it is given when ``signal`` is released, None = it ends."""

    __slots__ = ("signal", "work")

    def __init__(self) -> None:
        self.signal = threading.Lock()
        self.signal.acquire()
        self.work: _Work | None = None


class ThreadShare(Executor):
    """An executor whose calls run in threads that it shares with others; made by `SharedThreads.share`.

    :param limit: calls that may run at once.
    :param reserved: so many may always run, whatever the others do.
    """

    def __init__(self, threads: SharedThreads, kind: str, limit: int, reserved: int) -> None:
        self.kind = kind
        self.limit = limit
        self.reserved = reserved
        self.queue: deque[_Work] = deque()
        self.running = 0
        self.closed = False
        self._threads = threads

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `concurrent.futures.Executor`. Does not block."""
        return self._threads.submit(self, lambda: fn(*args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `concurrent.futures.Executor`. The threads are left to the others."""
        self._threads.shut_down(self, wait, cancel_futures)


class SharedThreads:
    """Threads that begin when there is work for them, and end when there was none for a while.

    What is slow must not keep the rest from being done: each kind of work has a share, with a number of threads that
    are reserved for it, and a limit. What is not reserved goes to who was first. ``_lock`` guards everything; it is
    not held while a call runs.

    :param name: for the names of the threads.
    :param maximum: threads at most; fewer than that are never reserved.
    """

    def __init__(self, name: str, maximum: int = MAX_THREADS, idle_seconds: float = IDLE_SECONDS) -> None:
        self._name = name
        self._maximum = maximum
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._ended_one = threading.Condition(self._lock)
        self._shares: list[ThreadShare] = []
        self._threads: set[threading.Thread] = set()
        #: The one that waits for the shortest time is last, and gets the next work: the others end.
        self._idle: list[_Idle] = []
        self._numbers = 0
        self._closed = False

    def share(self, kind: str, limit: int, reserved: int) -> ThreadShare:
        """Make an executor for one kind of work; ``maximum`` grows if it is too small for all that is reserved."""
        share = ThreadShare(self, kind, limit, reserved)
        with self._lock:
            self._shares.append(share)
            self._maximum = max(self._maximum, sum(each.reserved for each in self._shares))
        return share

    @property
    def count(self) -> int:
        """Threads that there are now. It is not the length: an object of length 0 is false."""
        with self._lock:
            return len(self._threads)

    def close(self) -> None:
        """Take no more work, and end the threads; blocks until what runs has ended."""
        with self._lock:
            self._closed = True
            self._end_idle_threads()
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join()

    # -- for the shares --

    def submit(self, share: ThreadShare, call: Callable[[], T]) -> Future[T]:
        """See `ThreadShare.submit`."""
        future: Future[T] = Future()
        with self._lock:
            if share.closed or self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._numbers += 1
            mine = _Work(share, self._numbers, call, future)
            share.queue.append(mine)
            # What is older waits if there was no thread for it.
            while (work := self._next_work()) is not None:
                if not self._hand_over(work) or work is mine:
                    break
        return future

    def shut_down(self, share: ThreadShare, wait: bool, cancel: bool) -> None:
        """See `ThreadShare.shutdown`."""
        with self._lock:
            share.closed = True
            cancelled = list(share.queue) if cancel else []
            if cancel:
                share.queue.clear()
        for work in cancelled:
            work.hold.end()
            work.future.cancel()
        with self._lock:
            if all(each.closed and not each.queue for each in self._shares):
                self._end_idle_threads()
            while wait and (share.queue or share.running):
                self._ended_one.wait()

    # -- with the lock --

    def _may_run(self, share: ThreadShare) -> bool:
        if share.running >= share.limit:
            return False
        if share.running < share.reserved:
            return True
        free = self._maximum - sum(each.reserved for each in self._shares)
        return sum(max(0, each.running - each.reserved) for each in self._shares) < free

    def _next_work(self) -> _Work | None:
        """Take the oldest work that may be done now; it counts as running from now on."""
        ready = [share for share in self._shares if share.queue and self._may_run(share)]
        if not ready:
            return None
        share = min(ready, key=lambda each: each.queue[0].number)
        share.running += 1
        return share.queue.popleft()

    def _hand_over(self, work: _Work) -> bool:
        """Give work to a thread; False = there is none for it, and it waits again."""
        if self._idle:
            idle = self._idle.pop()
            idle.work = work
            idle.signal.release()
            return True
        thread = threading.Thread(target=self._run, args=(work,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no more threads just now. The next thread that is free does it, or the next that starts.
            threads_log.exception("%s: %d threads", self._name, len(self._threads))
            work.share.running -= 1
            work.share.queue.appendleft(work)
            return False
        self._threads.add(thread)
        return True

    def _end_idle_threads(self) -> None:
        for idle in self._idle:
            idle.signal.release()
        self._idle.clear()

    # -- a thread --

    def _run(self, work: _Work | None) -> None:
        thread, idle = threading.current_thread(), _Idle()
        while work is not None:
            thread.name = f"{self._name}-{work.share.kind}"
            work.run()
            share = work.share
            # Not kept while the thread waits: neither the call nor its result.
            del work
            work = self._after(share, idle)
        with self._lock:
            self._threads.discard(thread)

    def _after(self, share: ThreadShare, idle: _Idle) -> _Work | None:
        """The next work of a thread; None = it ends. Waits for it."""
        with self._lock:
            share.running -= 1
            self._ended_one.notify_all()
            work = self._next_work()
            if work is not None:
                return work
            if self._closed or all(each.closed and not each.queue for each in self._shares):
                return None
            idle.work = None
            self._idle.append(idle)
        threading.current_thread().name = f"{self._name}-idle"
        if not idle.signal.acquire(timeout=self._idle_seconds):
            with self._lock:
                if idle in self._idle:
                    self._idle.remove(idle)
                    return None
            # Work came at the last moment.
            idle.signal.acquire()
        return idle.work


# `Scheduler`: runs many small tasks, each when it is due, in such threads.

scheduler_log = logging.getLogger("nodepool.driver.statemachine.Scheduler")

#: What a task returns that waits for `Scheduler.wake`: it is looked at again after this time, to be safe.
WHEN_WOKEN_SECONDS: Final = 10.0
#: Steps for which there is so much time are taken together with others, up to `STEPS_TOGETHER_SECONDS` later.
LONG_SECONDS: Final = 5.0
STEPS_TOGETHER_SECONDS: Final = 1.0


class Task(Protocol):
    """Work that is done in steps."""

    def step(self) -> float | None:
        """Do what can be done now.

        :return: seconds until the next step is due; None = the task is over.
        """


class Flow:
    """A task whose steps are those of a generator, which yields the seconds until it goes on.

    :param steps: makes it; gets what makes the next step due now.
    """

    def __init__(self, scheduler: Scheduler, steps: Callable[[Callable[[], None]], Iterator[float]]) -> None:
        self._steps = steps(lambda: scheduler.wake(self))

    def step(self) -> float | None:
        return next(self._steps, None)


def ended(future: Future[T], wake: Callable[[], None]) -> Generator[float, None, T]:
    """Wait for the end of a call, in steps; its result. Raises what the call raises."""
    future.add_done_callback(lambda _: wake())
    while not future.done():
        yield WHEN_WOKEN_SECONDS
    return future.result()


@dataclass(eq=False, slots=True)
class _Entry:
    """A task and when it is due. ``turn`` tells an entry of the heap that is out of date."""

    task: Task
    work: tuple[HeldTime, ...]
    turn: int = 0
    running: bool = False
    woken: bool = False


class Scheduler:
    """One thread waits for what is due; the executor does it. A task never runs twice at once.

    The thread is started with the first task. ``_condition`` guards everything; it is not held while a task runs.

    :param name: of the thread.
    :param executor: runs the steps; it is shut down at the end.
    :param on_end: called once, in the scheduler's thread, when nothing will run any more.
    """

    def __init__(self, name: str, executor: Executor, on_end: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._guard = Guard(scheduler_log, "%s: a task ended with an error of its own", name)
        self._on_end = on_end
        self._condition = threading.Condition()
        self._entries: dict[Task, _Entry] = {}
        self._heap: list[tuple[float, int, _Entry, int]] = []
        self._order = itertools.count()
        self._waiting_until = float("inf")
        self._draining = False
        self._abandoned = False
        self._ended = False
        self._thread: threading.Thread | None = None
        self._executor = executor

    def __len__(self) -> int:
        """Tasks that are not over."""
        return len(self._entries)

    def add(self, task: Task, *work: HeldTime) -> bool:
        """Take on a task, due now. Any thread; does not block. False = too late, everything has ended.

        :param work: what the task is for, if it has a time-out. A step that is due may have to wait for a thread.
        """
        with self._condition:
            if self._ended or self._abandoned:
                return False
            if self._thread is None:
                self._start()
            entry = self._entries[task] = _Entry(task, work)
            self._dispatch(entry)
            return True

    def wake(self, task: Task) -> None:
        """A task is due now. Any thread; does not block. Nothing happens to one that is over."""
        with self._condition:
            entry = self._entries.get(task)
            if entry is None:
                return
            if entry.running:
                entry.woken = True
            elif not self._abandoned:
                self._dispatch(entry)

    def drain(self) -> None:
        """End when the last task is over. Does not block."""
        with self._condition:
            self._draining = True
            self._start_ending()

    def abandon(self) -> None:
        """Run nothing more; steps that run end by themselves. Does not block."""
        with self._condition:
            self._abandoned = True
            self._start_ending()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end, after `drain` or `abandon`."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _start_ending(self) -> None:
        if self._thread is None and not self._ended:
            # Nothing ever ran; the end is still reported in a thread of ours, because it may block.
            self._start()
        self._condition.notify()

    def _start(self) -> None:
        """Raises RuntimeError, and the next call tries again: the system may have no more threads just now."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def _dispatch(self, entry: _Entry) -> None:
        """Let a task take its step as soon as a thread is free: no other thread need wake for that."""
        entry.turn += 1
        entry.running = True
        entry.woken = False
        try:
            with working_for(entry.work):
                self._executor.submit(self._step, entry)
        except RuntimeError:
            # No more threads can be made just now. The step is in the executor's queue all the same.
            scheduler_log.exception("%s: %d tasks", self._name, len(self._entries))

    def _push(self, entry: _Entry, due: float) -> None:
        entry.turn += 1
        heapq.heappush(self._heap, (due, next(self._order), entry, entry.turn))
        if due < self._waiting_until:
            self._condition.notify()

    def _run(self) -> None:
        with self._condition:
            while True:
                self._dispatch_due()
                if self._abandoned or (self._draining and not self._entries):
                    self._ended = True
                    break
                self._waiting_until = self._heap[0][0] if self._heap else float("inf")
                wait = min(self._waiting_until - monotonic(), threading.TIMEOUT_MAX) if self._heap else None
                self._condition.wait(wait)
                self._waiting_until = float("-inf")
        self._executor.shutdown(wait=True, cancel_futures=True)
        with Guard(scheduler_log, "%s: error at the end", self._name):
            self._on_end()

    def _dispatch_due(self) -> None:
        now = monotonic()
        while self._heap and not self._abandoned:
            due, _, entry, turn = self._heap[0]
            is_current = turn == entry.turn and not entry.running and entry.task in self._entries
            if is_current and due > now:
                break
            # One that is out of date goes, too: the thread need not wake for it.
            heapq.heappop(self._heap)
            if is_current:
                self._dispatch(entry)

    def _step(self, entry: _Entry) -> None:
        wait: float | None = None
        with self._guard:
            wait = entry.task.step()
        with self._condition:
            entry.running = False
            if wait is None:
                del self._entries[entry.task]
                if self._draining:
                    self._condition.notify()
            elif (entry.woken or wait <= 0) and not self._abandoned:
                self._dispatch(entry)
            else:
                due = monotonic() + wait
                self._push(entry, due if wait < LONG_SECONDS else next_tick(due, STEPS_TOGETHER_SECONDS))


# `Driven`: the pace of a machine, in its launch or deletion.


class Driven:
    """A state machine and its pace. Used by one task, one step at a time.

    :param wake: makes the task's next step due now.
    """

    def __init__(self, provider_name: str, machine: Any, wake: Callable[[], None]) -> None:
        machine.wake = wake
        self._provider_name = provider_name
        self.machine = machine
        self._quiet = 0

    def advance(self) -> tuple[Any, float]:
        """Advance once; what it returned, and seconds until the next time. Raises what the machine raises."""
        before = self.machine.state
        result = gateway.advance(self._provider_name, self.machine)
        if self.machine.state != before:
            self._quiet = 0
        self._quiet += 1
        hint = getattr(self.machine, "next_advance_seconds", None)
        return result, plan.PACE.pause(self._quiet) if hint is None else max(0.0, hint)
