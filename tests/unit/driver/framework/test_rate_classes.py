# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.rate`. The test moves the time."""

from __future__ import annotations

import threading

import pytest

from nodepool.driver.framework.rate import MOST_AT_ONCE, SPREAD_SECONDS, BucketSize, RateClasses
from tests.support.wait import wait_for


class Paced(RateClasses):
    """Notes its pauses instead of sleeping."""

    def __init__(self, **sizes: BucketSize) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        super().__init__(sizes, BucketSize(1, 2), lambda: self.now, self._pass)

    def _pass(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 6))
        self.now += seconds


def test_each_class_has_its_bucket() -> None:
    """Named ones have their size, all others one of the same size each."""
    classes = Paced(read=BucketSize(3, 10))
    for kind in ("read", "read", "read", "change", "other"):
        classes.wait(kind)
    assert classes.pauses == []
    classes.wait("change")
    classes.wait("read")
    assert classes.pauses == [0.5]


def test_what_is_spare() -> None:
    """A call knows how many others could begin at once; nothing is spare when it had to wait."""
    classes = Paced(read=BucketSize(4, 10))
    assert [classes.wait("read").spare for _ in range(5)] == [1, 0.75, 0.5, 0.25, 0]
    classes.now += 1
    assert classes.wait("read").spare == 1


def test_a_class_without_limit_is_never_short() -> None:
    classes = Paced(read=BucketSize(1, 0))
    assert {classes.wait("read").spare for _ in range(3)} == {1}


def test_throttling_is_of_one_class() -> None:
    classes = Paced()
    seconds = classes.wait("change").throttled(7.0)
    assert 7.0 <= seconds <= 7.0 + SPREAD_SECONDS
    classes.wait("read")
    assert classes.pauses == []
    classes.wait("change").worked()
    assert classes.pauses == [pytest.approx(seconds)]


def test_throttled_while_somebody_waits() -> None:
    """Whoever waits for its turn meanwhile does not begin in the pause."""
    classes = Paced()
    first = classes.wait("change")

    def throttle(seconds: float) -> None:
        if not classes.pauses:
            first.throttled(5.0)
        classes.pauses.append(seconds)
        classes.now += seconds

    classes._sleep = throttle
    classes.wait("change")
    assert len(classes.pauses) == 2
    assert classes.now >= 105.0


def test_pause_that_ends_with_the_provider() -> None:
    """Whoever waits then makes no call."""

    def stopped(seconds: float) -> None:
        raise RuntimeError("stopped")

    classes = Paced()
    classes._sleep = stopped
    classes.wait("change")
    with pytest.raises(RuntimeError, match="stopped"):
        classes.wait("change")


@pytest.mark.parametrize("fails", [False, True])
def test_without_a_rate_calls_wait_for_the_end_of_others(fails: bool) -> None:
    """As many as the window allows are under way, whatever becomes of them; a class with a rate has no window."""
    classes = Paced(open=BucketSize(1, 0), paced=BucketSize(100, 100))
    go, running, most = threading.Semaphore(0), [0], [0]

    def call() -> None:
        try:
            with classes.call("open", "creating") as call:
                running[0] += 1
                most[0] = max(most[0], running[0])
                go.acquire()
                running[0] -= 1
                if fails:
                    raise RuntimeError("no answer")
                call.worked()
        except RuntimeError:
            assert fails

    threads = [threading.Thread(target=call) for _ in range(MOST_AT_ONCE + 5)]
    for thread in threads:
        thread.start()
    wait_for("the window is full", lambda: running[0] == MOST_AT_ONCE)
    for _ in range(MOST_AT_ONCE + 5):
        with classes.call("paced"):
            pass
        go.release()
    for thread in threads:
        thread.join()
    assert most[0] == MOST_AT_ONCE


def test_who_came_first_goes_first() -> None:
    """One that comes when there is room does not overtake those who wait for it, nor do these each other."""
    classes = Paced(open=BucketSize(1, 0))
    calls = [classes.call("open", "reading") for _ in range(MOST_AT_ONCE)]
    for call in calls:
        call.__enter__()
    queue, order, go = classes._class("open").queue, [], threading.Semaphore(0)

    def late(number: int) -> None:
        with classes.call("open", "reading"):
            order.append(number)
            go.acquire()

    threads = [threading.Thread(target=late, args=(number,)) for number in range(5)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        wait_for("it waits", lambda number=number: len(queue) == number)  # type: ignore[misc]
    for call in calls[:3]:
        call.__exit__(None, None, None)
    wait_for("three have begun", lambda: len(order) == 3)
    for call in calls[3:]:
        call.__exit__(None, None, None)
    for _ in threads:
        go.release()
    for thread in threads:
        thread.join()
    # What begins together may note it in any order.
    assert (set(order[:3]), set(order[3:])) == ({0, 1, 2}, {3, 4})


def test_who_waits_for_the_end_of_a_call_ends_with_the_provider() -> None:
    classes = Paced(open=BucketSize(1, 0))
    calls = [classes.call("open", "reading") for _ in range(MOST_AT_ONCE)]
    for call in calls:
        call.__enter__()

    def stopped(seconds: float) -> None:
        raise RuntimeError("stopped")

    classes._sleep = stopped
    with pytest.raises(RuntimeError, match="stopped"), classes.call("open", "reading"):
        pass
    # Data may take hours.
    with classes.call("open"):
        pass
    for call in calls:
        call.__exit__(None, None, None)
    with classes.call("open", "reading"):
        pass
