# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.rate`, and of all that makes work wait. The test moves the time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nodepool.driver.framework.images import ImageTime
from nodepool.driver.framework.orders import Batches, JoinedOrders
from nodepool.driver.framework.rate import (
    BucketSize,
    HeldTime,
    RateClasses,
    RateLimiter,
    TimeLimit,
    held_here,
    held_up,
    held_work,
    working_for,
)
from nodepool.driver.framework.shared_threads import SharedThreads
from nodepool.driver.framework.uploads import ImageUploader, Segment
from nodepool.driver.statemachine.scheduler import Scheduler
from nodepool.exceptions import ImageCreateException
from tests.support.manual_clock import ManualClock
from tests.support.manual_executor import ManualExecutor
from tests.support.quiet_inventory import QuietInventory
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.instances import Seen

LOG = logging.getLogger("nodepool.tests.held_time")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def held(clock: ManualClock) -> HeldTime:
    return HeldTime(clock)


@pytest.fixture
def one_thread() -> Iterator[SharedThreads]:
    threads = SharedThreads("cloud", 1)
    yield threads
    threads.close()


def test_waits_at_the_same_time_count_once(clock: ManualClock, held: HeldTime) -> None:
    limit = TimeLimit(10, held, clock)
    with working_for((held,)), held_up():
        clock.now += 2
        with held_up():
            clock.now += 3
        clock.now += 4
        assert (held.seconds, limit.left) == (9, 10)
    clock.now += 1
    assert (held.seconds, limit.left) == (9, 9)
    # What was before does not make a later limit longer.
    assert TimeLimit(10, held, clock).left == 10


def test_work_of_a_thread(clock: ManualClock, held: HeldTime) -> None:
    """It is put back, and a thread without work has a time of its own."""
    other = HeldTime(clock)
    with working_for((held,)):
        with working_for((other, held)):
            assert held_here() is other
        assert held_work() == (held,)
    assert held_work() == ()
    assert held_here(clock).seconds == 0


def limiter(clock: ManualClock) -> Callable[[], Any]:
    made = RateLimiter("cloud", 0.1, clock, clock.pass_seconds)
    made.wait()
    return made.wait


def rate_classes(clock: ManualClock) -> Callable[[], Any]:
    made = RateClasses({}, BucketSize(1, 0.1), clock, clock.pass_seconds)
    made.wait("read")
    return lambda: made.wait("read")


def throttled_class(clock: ManualClock) -> Callable[[], Any]:
    made = RateClasses({}, BucketSize(1, 0), clock, clock.pass_seconds)
    made.wait("read").throttled(10.0)
    return lambda: made.wait("read")


@pytest.mark.parametrize("make", [limiter, rate_classes, throttled_class])
def test_limits_hold_the_work_of_the_thread(
    clock: ManualClock, held: HeldTime, make: Callable[[ManualClock], Callable[[], Any]]
) -> None:
    wait, begun = make(clock), clock.now
    limit = TimeLimit(5, held, clock)
    with working_for((held,)):
        wait()
    assert clock.now - begun >= 10
    assert limit.left == pytest.approx(5)


def test_work_goes_with_a_call_to_another_thread(clock: ManualClock, held: HeldTime, one_thread: SharedThreads) -> None:
    """The time until a thread is free counts, also if the call is never made."""
    share, go, begun = one_thread.share("call", 1, 1), threading.Event(), threading.Event()

    def busy() -> None:
        begun.set()
        go.wait(DEADLINE_SECONDS)

    share.submit(busy)
    assert begun.wait(DEADLINE_SECONDS)
    with working_for((held,)):
        call = share.submit(held_work)
        never = share.submit(held_work)
        assert never.cancel()
    clock.now += 7
    assert held.seconds == 7
    go.set()
    assert call.result(DEADLINE_SECONDS) == (held,)
    assert share.submit(held_work).result(DEADLINE_SECONDS) == ()
    clock.now += 5
    assert held.seconds == 7
    share.shutdown(cancel_futures=True)


def test_a_step_that_is_due_waits_for_a_thread(clock: ManualClock, held: HeldTime, one_thread: SharedThreads) -> None:
    share, go, begun = one_thread.share("step", 1, 1), threading.Event(), threading.Event()
    seen: list[tuple[HeldTime, ...]] = []

    class Busy:
        def step(self) -> None:
            begun.set()
            go.wait(DEADLINE_SECONDS)

    class Task:
        def step(self) -> None:
            seen.append(held_work())

    scheduler = Scheduler("steps", share)
    scheduler.add(Busy())
    assert begun.wait(DEADLINE_SECONDS)
    with working_for((HeldTime(),)):
        # Whoever adds it, or wakes it, is not who waits.
        scheduler.add(Task(), held)
    clock.now += 7
    go.set()
    wait_for("the step is over", lambda: not len(scheduler))
    assert (seen, held.seconds) == ([(held,)], 7)
    scheduler.drain()
    scheduler.join()


def test_orders_wait_until_they_are_sent(clock: ManualClock, held: HeldTime) -> None:
    """In a batch: each for itself, whoever ordered first."""
    executor, late = ManualExecutor(eager=False), HeldTime(clock)

    def send(take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        clock.now += 10
        taken = take()
        assert held_work() == ()
        clock.now += 100
        return {order: ValueError(order) for order in taken}

    batches: Batches[str] = Batches(send, executor, 10)
    with working_for((held,)):
        batches.add("a")
    clock.now += 5
    with working_for((late,)):
        batches.add("a")
        batches.add("b")
    executor.run()
    assert (held.seconds, late.seconds) == (15, 10)


class Turn(NamedTuple):
    spare: float


class Order:
    def __init__(self) -> None:
        self.future: Future[str] = Future()

    def permit(self) -> None:
        """It is."""


def test_joined_orders_wait_until_they_are_sent(clock: ManualClock, held: HeldTime) -> None:
    """One that was not carried out waits again, for its second call."""
    executor, other = ManualExecutor(eager=False), HeldTime(clock)
    orders = [Order(), Order()]

    def wait_turn() -> Turn:
        clock.now += 10
        return Turn(0.0)

    def send(sent: Any, turn: Turn) -> Mapping[Order, str]:
        clock.now += 100
        return {sent[0]: "made"}

    joined: JoinedOrders[Order, Turn] = JoinedOrders(wait_turn, send, executor, 2, clock.pass_seconds)
    for order, work in zip(orders, (held, other), strict=True):
        with working_for((work,)):
            joined.add(order, "same")
    while executor.waiting:
        executor.run()
    assert [order.future.result(0) for order in orders] == ["made", "made"]
    assert (held.seconds, other.seconds) == (10, 20.25)
    clock.now += 100
    assert (held.seconds, other.seconds) == (10, 20.25)


def test_who_waits_for_a_list_waits_for_its_turn(clock: ManualClock, held: HeldTime) -> None:
    """The list is made in another thread; it may wait already."""
    late = HeldTime(clock)

    def sleep(seconds: float) -> None:
        clock.now += 4
        with working_for((late,)):
            waiters.append(known.wait_for("boot", lambda: None))
        clock.now += 6

    limit = RateLimiter("cloud", 0.1, clock, sleep)
    limit.wait()

    def fetch(since: str | None) -> list[Seen]:
        limit.wait()
        clock.now += 3
        return []

    known: QuietInventory[Seen] = QuietInventory("somewhere", fetch, clock=clock)
    with working_for((held,)):
        waiters = [known.wait_for("boot", lambda: None)]
    known.poll(complete=True)
    assert (held.seconds, late.seconds) == (10, 6)
    for waiter in waiters:
        known.done(waiter)
    clock.now += 3
    known.poll(complete=True)
    assert held.seconds == 10


def test_images(clock: ManualClock, held: HeldTime) -> None:
    """Looks at an image that the cloud works on."""
    stopped = threading.Event()
    with working_for((held,)):
        time = ImageTime("the import", 20.0, stopped, clock)
        wait = limiter(clock)
        looks = 0
        for _ in time.looks(12.0):
            wait()
            looks += 1
            clock.now += 5
    assert looks == 3
    assert time.left() == 5.0


def test_segments_of_an_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    """They are sent in threads of their own."""
    image = tmp_path / "image"
    image.write_bytes(b"1234")
    wait = limiter(clock)
    held = HeldTime(clock)

    class Uploader(ImageUploader):
        segment_size = 1
        concurrency = error_retries = 1
        seconds = 0.0

        def uploadSegment(self, segment: Segment) -> None:
            wait()
            clock.now += self.seconds
            self.checkTimeout()

    monkeypatch.setattr(
        "nodepool.driver.framework.uploads.TimeLimit", lambda seconds, held: TimeLimit(seconds, held, clock)
    )
    with working_for((held,)):
        Uploader(None, LOG, image, "image", {}).upload(5)
        assert held.seconds == 40
        Uploader.seconds = 2.0
        with pytest.raises(ImageCreateException, match="longer than 5 s"):
            Uploader(None, LOG, image, "image", {}).upload(5)
