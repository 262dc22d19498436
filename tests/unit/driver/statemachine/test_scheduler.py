# SPDX-License-Identifier: Apache-2.0
"""The scheduler: each task when it is due, never twice at once, in few threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS, Scheduler
from tests.support.wait import wait_for


class Work:
    """A task whose steps are functions; the last one ends it."""

    def __init__(self, *steps: Callable[[], float | None]) -> None:
        self.steps = list(steps)
        self.done = threading.Event()
        self.count = 0
        self._inside = threading.Lock()

    def step(self) -> float | None:
        assert self._inside.acquire(blocking=False), "two steps at once"
        try:
            self.count += 1
            wait = self.steps.pop(0)()
            if wait is None:
                self.done.set()
            return wait
        finally:
            self._inside.release()


def waits_for(event: threading.Event) -> Callable[[], None]:
    """A last step that blocks."""

    def step() -> None:
        event.wait(30)

    return step


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler("test", ThreadPoolExecutor(4))
    yield made
    made.abandon()
    made.join()


def test_steps_follow_each_other(scheduler: Scheduler) -> None:
    """A task is called again after the time that it asked for, until it says that it is over."""
    work = Work(lambda: 0.0, lambda: 0.01, lambda: None)
    assert scheduler.add(work)
    assert work.done.wait(30)
    wait_for("it is forgotten", lambda: len(scheduler) == 0)
    assert work.count == 3


def test_wake(scheduler: Scheduler) -> None:
    """A task that waits for an event goes on when it is woken, also when that comes in the middle of its step."""
    inside, go = threading.Event(), threading.Event()

    def first() -> float:
        inside.set()
        go.wait(30)
        return 3600.0

    work = Work(first, lambda: WHEN_WOKEN_SECONDS, lambda: None)
    scheduler.add(work)
    assert inside.wait(30)
    scheduler.wake(work)
    go.set()
    wait_for("the second step", lambda: work.count == 2)

    def woken() -> bool:
        scheduler.wake(work)
        return work.done.is_set()

    wait_for("the last step", woken)
    scheduler.wake(work)


def test_what_is_out_of_date_wakes_nobody(scheduler: Scheduler) -> None:
    """A task that was woken, and has ended, leaves nothing for which the thread would wake later."""
    ended = Work(lambda: 3000.0, lambda: None)
    scheduler.add(ended)
    wait_for("it waits", lambda: len(scheduler._heap) == 1)
    scheduler.wake(ended)
    assert ended.done.wait(30)
    waiting = Work(lambda: 0.001, lambda: 3600.0)
    scheduler.add(waiting)
    wait_for("the other one waits, and is all there is", lambda: (waiting.count, len(scheduler._heap)) == (2, 1))


def test_long_waits_end_together() -> None:
    """A thread that wakes for one task at a time costs more than the steps; a short wait is kept to."""
    now = [100.0]
    scheduler = Scheduler("test", ThreadPoolExecutor(1), clock=lambda: now[0])

    def begin(at: float, seconds: float) -> None:
        now[0] = at
        work = Work(lambda: seconds, lambda: None)
        scheduler.add(work)
        wait_for("its first step", lambda: work.count == 1 and not scheduler._entries[work].running)

    begin(100.1, WHEN_WOKEN_SECONDS)
    begin(100.4, WHEN_WOKEN_SECONDS)
    begin(100.6, 0.25)
    dues = sorted(due for due, *_ in scheduler._heap)
    assert dues == pytest.approx([100.85, 111.0, 111.0])
    scheduler.abandon()
    scheduler.join()


def test_a_step_that_blocks_holds_up_nobody(scheduler: Scheduler) -> None:
    release = threading.Event()
    blocked = [Work(waits_for(release)) for _ in range(3)]
    for work in blocked:
        scheduler.add(work)
    others = [Work(lambda: 0.0, lambda: None) for _ in range(50)]
    for work in others:
        scheduler.add(work)
    assert all(work.done.wait(30) for work in others)
    release.set()
    assert all(work.done.wait(30) for work in blocked)


def test_hundreds_of_tasks_in_four_threads(scheduler: Scheduler) -> None:
    threads: set[str] = set()

    def note() -> float:
        threads.add(threading.current_thread().name)
        return 0.001

    works = [Work(note, note, lambda: None) for _ in range(300)]
    for work in works:
        scheduler.add(work)
    assert all(work.done.wait(30) for work in works)
    assert len(threads) <= 4


def test_a_task_that_fails_ends_alone(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> float:
        raise ZeroDivisionError("mistake")

    scheduler.add(Work(fail))
    other = Work(lambda: 0.01, lambda: None)
    scheduler.add(other)
    assert other.done.wait(30)
    wait_for("both are gone", lambda: len(scheduler) == 0)
    assert "mistake" in caplog.text


def test_drain_lets_tasks_end() -> None:
    """L-17: what runs goes on; the end is told once, when all is over; then nothing is taken on."""
    ended: list[int] = []
    scheduler = Scheduler("drain", ThreadPoolExecutor(2), on_end=lambda: ended.append(1))
    go = threading.Event()
    work = Work(waits_for(go))
    scheduler.add(work)
    scheduler.drain()
    late = Work(lambda: None)
    assert scheduler.add(late), "a launch that came in the same moment is not lost"
    assert late.done.wait(30)
    assert not ended
    go.set()
    scheduler.join()
    assert ended == [1]
    assert not scheduler.add(Work(lambda: None))


def test_drain_without_any_work() -> None:
    ended = threading.Event()
    scheduler = Scheduler("drain", ThreadPoolExecutor(2), on_end=ended.set)
    scheduler.drain()
    scheduler.join()
    assert ended.is_set()


def test_abandon_runs_nothing_more() -> None:
    scheduler = Scheduler("abandon", ThreadPoolExecutor(2))
    work = Work(lambda: 3600.0, lambda: None)
    scheduler.add(work)
    wait_for("the first step", lambda: work.count == 1)
    scheduler.abandon()
    scheduler.join()
    assert not scheduler.add(Work(lambda: None))
    assert work.count == 1


def test_no_more_threads(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no room for another thread; the scheduler survives it, and the step is made."""
    submit = scheduler._executor.submit

    def no_thread(*arguments: Any) -> None:
        submit(*arguments)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(scheduler._executor, "submit", no_thread)
        work = Work(lambda: None)
        scheduler.add(work)
        assert work.done.wait(30)
    later = Work(lambda: None)
    scheduler.add(later)
    assert later.done.wait(30)
