# SPDX-License-Identifier: Apache-2.0
"""`SharedThreads`: the threads of one provider, shared by all that it does."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, ParamSpec, TypeVar

from nodepool.driver.framework.rate import Hold, working_for
from nodepool.guard import settle

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("nodepool.driver.framework.SharedThreads")

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

    def run(self, own: Any) -> None:
        """:param own: ``telling`` is set when the call has ended, and whoever waits for it is told."""
        self.hold.end()
        if not self.future.set_running_or_notify_cancel():
            return

        def call() -> Any:
            try:
                return self.call()
            finally:
                own.telling = True

        with working_for(self.hold.work):
            settle((self.future,), call)


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

    def submit_next(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `submit`, for what is called at the end of a call that runs in one of the threads: no other is woken.

        The thread goes on with it, unless another one is free before.
        """
        return self._threads.submit(self, lambda: fn(*args, **kwargs), follows=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `concurrent.futures.Executor`. The threads are left to the others."""
        self._threads.shut_down(self, wait, cancel_futures)


class SharedThreads:
    """Threads that begin when there is work for them, and end when there was none for a while.

    What is slow must not keep the rest from being done: each kind of work has a share, with a number of threads that
    are reserved for it, and a limit. What is not reserved goes to whoever was first. ``_lock`` guards everything; it is
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
        #: Of each thread: is there work that it goes on with, and does it tell the end of what it did?
        self._own = threading.local()
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

    def submit(self, share: ThreadShare, call: Callable[[], T], *, follows: bool = False) -> Future[T]:
        """See `ThreadShare.submit`.

        :param follows: see `ThreadShare.submit_next`; also what is submitted when the end of a call is told.
        """
        future: Future[T] = Future()
        own = self._own
        # One thread can go on with one thing.
        left_to_us = (follows or getattr(own, "telling", False)) and not getattr(own, "follows", True)
        with self._lock:
            if share.closed or self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._numbers += 1
            mine = _Work(share, self._numbers, call, future)
            share.queue.append(mine)
            if left_to_us:
                own.follows = True
                return future
            # What is older was left to a thread that has not ended its work yet.
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
            log.exception("%s: %d threads", self._name, len(self._threads))
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
        thread, idle, own = threading.current_thread(), _Idle(), self._own
        while work is not None:
            thread.name = f"{self._name}-{work.share.kind}"
            own.follows = own.telling = False
            work.run(own)
            own.telling = False
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
                if self._own.follows and (another := self._next_work()) is not None:
                    # What was left to this thread: something older came first.
                    self._hand_over(another)
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
