# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.shared_threads`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from nodepool.driver.framework.shared_threads import SharedThreads, ThreadShare
from tests.support.wait import DEADLINE_SECONDS, wait_for


class Holds:
    """Calls that run until they are released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)

    def __call__(self) -> str:
        self.begun.release()
        assert self.go.wait(DEADLINE_SECONDS)
        return threading.current_thread().name

    def begin(self, share: ThreadShare, count: int, running: int | None = None) -> list[Future[str]]:
        """Submit ``count``, and wait until as many run."""
        futures = [share.submit(self) for _ in range(count)]
        for _ in range(count if running is None else running):
            assert self.begun.acquire(timeout=DEADLINE_SECONDS)
        return futures


@pytest.fixture
def holds() -> Iterator[Holds]:
    made = Holds()
    yield made
    made.go.set()


@pytest.fixture
def threads(holds: Holds) -> Iterator[SharedThreads]:
    made = SharedThreads("cloud-a", 6, idle_seconds=3600.0)
    yield made
    holds.go.set()
    made.close()


def test_results(threads: SharedThreads) -> None:
    share = threads.share("ask", 2, 1)
    assert share.submit(divmod, 7, 2).result(DEADLINE_SECONDS) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        share.submit(divmod, 7, 0).result(DEADLINE_SECONDS)
    assert share.submit(lambda: threading.current_thread().name).result(DEADLINE_SECONDS) == "cloud-a-ask"


def test_one_thread_for_what_follows_each_other(threads: SharedThreads) -> None:
    """Threads are made when all others have something to do."""
    shares = [threads.share("a", 4, 1), threads.share("b", 4, 1)]
    for number in range(20):
        shares[number % 2].submit(int).result(DEADLINE_SECONDS)
        wait_for("the thread is free", lambda: len(threads._idle) == 1)
    assert threads.count == 1


def name_of_thread() -> str:
    return str(threading.get_ident())


def test_what_follows_stays_in_the_thread(threads: SharedThreads) -> None:
    """To wake another one costs more than a small piece of work."""
    steps, calls = threads.share("step", 4, 1), threads.share("call", 4, 1)
    followed: Future[Future[str]] = Future()

    def call() -> str:
        return name_of_thread()

    def step() -> str:
        ended = calls.submit_next(call)
        # The end of the call is told in its thread, and makes a step due there.
        ended.add_done_callback(lambda _: followed.set_result(steps.submit(name_of_thread)))
        return name_of_thread()

    first = steps.submit(step).result(DEADLINE_SECONDS)
    assert followed.result(DEADLINE_SECONDS).result(DEADLINE_SECONDS) == first
    assert threads.count == 1


def test_what_follows_does_not_wait_for_a_slow_thread(threads: SharedThreads, holds: Holds) -> None:
    """The next piece of work has another thread take what was left to one that is not at its end."""
    share = threads.share("step", 4, 1)
    left: Future[Future[str]] = Future()

    def slow() -> None:
        left.set_result(share.submit_next(name_of_thread))
        holds()

    share.submit(slow)
    following = left.result(DEADLINE_SECONDS)
    assert share.submit(int).result(DEADLINE_SECONDS) == 0
    following.result(DEADLINE_SECONDS)


def test_older_work_before_what_follows(threads: SharedThreads, holds: Holds) -> None:
    """Then another thread does what was left."""
    first, second = threads.share("first", 1, 1), threads.share("second", 1, 1)
    begun, go = threading.Event(), threading.Event()
    older: list[Future[str]] = []

    def work() -> Future[str]:
        begun.set()
        assert go.wait(DEADLINE_SECONDS)
        return second.submit_next(name_of_thread)

    leading = first.submit(work)
    assert begun.wait(DEADLINE_SECONDS)
    older.append(first.submit(holds))
    go.set()
    # The thread goes on with `holds`, which does not end.
    assert leading.result(DEADLINE_SECONDS).result(DEADLINE_SECONDS)
    holds.go.set()
    older[0].result(DEADLINE_SECONDS)


def test_submit_next_elsewhere(threads: SharedThreads) -> None:
    """In a thread that is none of them it is like any other work."""
    assert threads.share("a", 2, 1).submit_next(divmod, 7, 2).result(DEADLINE_SECONDS) == (3, 1)


def test_limit(threads: SharedThreads, holds: Holds) -> None:
    share = threads.share("a", 2, 1)
    futures = holds.begin(share, 5, running=2)
    assert [share.running, len(share.queue), threads.count] == [2, 3, 2]
    holds.go.set()
    assert {future.result(DEADLINE_SECONDS) for future in futures} == {"cloud-a-a"}


def test_what_is_slow_keeps_nobody_else(threads: SharedThreads, holds: Holds) -> None:
    """Whatever one kind of work does, the others have their reserved threads; there are never more than the maximum."""
    greedy, small, other = threads.share("a", 99, 1), threads.share("b", 3, 1), threads.share("c", 3, 2)
    first = holds.begin(greedy, 10, running=3)
    assert (greedy.running, threads.count) == (3, 3)
    holds.begin(small, 3, running=1)
    holds.begin(other, 3, running=2)
    assert [share.running for share in (greedy, small, other)] == [3, 1, 2]
    assert threads.count == 6
    holds.go.set()
    for future in first:
        future.result(DEADLINE_SECONDS)
    assert threads.count <= 6


def test_oldest_work_first(holds: Holds) -> None:
    """Whose thread becomes free does not matter."""
    threads = SharedThreads("cloud-a", 1)
    first, second = threads.share("a", 9, 0), threads.share("b", 9, 0)
    holds.begin(first, 1)
    done: list[int] = []
    for number in range(6):
        (first, second)[number % 2].submit(done.append, number)
    holds.go.set()
    first.submit(int).result(DEADLINE_SECONDS)
    assert done == list(range(6))
    threads.close()


def test_idle_threads_end(holds: Holds) -> None:
    threads = SharedThreads("cloud-a", 5, idle_seconds=0.01)
    share = threads.share("a", 5, 0)
    holds.begin(share, 5)
    assert threads.count == 5
    holds.go.set()
    wait_for("all have ended", lambda: threads.count == 0)
    assert share.submit(int).result(DEADLINE_SECONDS) == 0
    threads.close()


def test_end_of_all_shares() -> None:
    """Nobody has to end threads for which there can be no more work."""
    threads = SharedThreads("cloud-a", 5, idle_seconds=3600.0)
    first, second = threads.share("a", 5, 0), threads.share("b", 5, 0)
    first.submit(int).result(DEADLINE_SECONDS)
    first.shutdown(wait=True)
    assert second.submit(int).result(DEADLINE_SECONDS) == 0
    second.shutdown(wait=True)
    wait_for("all have ended", lambda: threads.count == 0)
    with pytest.raises(RuntimeError):
        second.submit(int)


def test_shutdown(threads: SharedThreads, holds: Holds) -> None:
    """It waits for what runs; what waits is done, or given up."""
    keeps, drops = threads.share("a", 1, 0), threads.share("b", 1, 0)
    kept, dropped = holds.begin(keeps, 3, running=1), holds.begin(drops, 3, running=1)
    drops.shutdown(wait=False, cancel_futures=True)
    assert [future.cancelled() for future in dropped] == [False, True, True]
    keeps.shutdown(wait=False)
    holds.go.set()
    keeps.shutdown(wait=True)
    assert all(future.done() for future in kept)
    with pytest.raises(RuntimeError):
        keeps.submit(int)


def test_close(holds: Holds) -> None:
    threads = SharedThreads("cloud-a")
    share = threads.share("a", 2, 0)
    futures = holds.begin(share, 2)
    holds.go.set()
    threads.close()
    assert all(future.done() for future in futures)
    assert threads.count == 0
    with pytest.raises(RuntimeError):
        share.submit(int)


def test_no_more_threads(threads: SharedThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no room for another thread: the work is done when there is one again."""
    share = threads.share("a", 2, 0)

    def no_thread(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        late = [share.submit(int), share.submit(int)]
    assert not any(future.done() for future in late)
    share.submit(int).result(DEADLINE_SECONDS)
    assert [future.result(DEADLINE_SECONDS) for future in late] == [0, 0]


def test_more_reserved_than_threads() -> None:
    """What is reserved is kept."""
    threads = SharedThreads("cloud-a", 2)
    for kind in "abc":
        threads.share(kind, 2, 2)
    assert threads._maximum == 6
