# SPDX-License-Identifier: Apache-2.0
"""How often a cloud is asked, and what waits for that. Tests move the time."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.framework import rate
from nodepool.driver.framework.fact import LazyExecutorTTLCache
from tests.support.manual_clock import ManualClock
from tests.support.manual_executor import ManualExecutor
from tests.support.tables import rows


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock().rules()


# -- turns --


def turns(bucket: rate.TokenBucket, count: int, now: float) -> list[float]:
    """Seconds until the next turns, all taken at once."""
    return [round(bucket.take(now).at - now, 6) for _ in range(count)]


@rows(__file__, "turns")
def test_burst_and_rate(size: list[float], calls: list[tuple[float, list[float]]]) -> None:
    bucket = rate.TokenBucket(rate.BucketSize(*size), 0.0)
    for now, wanted in calls:
        assert turns(bucket, len(wanted), now) == pytest.approx(wanted, abs=1e-6)


def test_throttled() -> None:
    """Half the rate after the pause, at first without a burst; then slowly back to the full one."""
    bucket = rate.TokenBucket(rate.BucketSize(10, 10), 0.0)
    for tenth in range(100):
        turn = bucket.take(tenth / 10)
    assert bucket.throttled(10.0, turn, 4.0) == 4.0
    assert bucket.rate(14.0) == pytest.approx(5, rel=0.05)
    first, last = turns(bucket, 7, 10.0)[0::6]
    assert first == 4.0
    assert last > 4.2
    assert bucket.rate(14.0) < bucket.rate(14.0 + rate.RECOVERY_SECONDS / 4) < 10
    assert bucket.rate(14.0 + rate.RECOVERY_SECONDS) == 10
    assert turns(bucket, 10, 1000.0) == [0.0] * 10


# -- the limiter and the cache of drivers --


class Server:
    """Gives a new answer to each call, or an error."""

    error: BaseException | None = None
    calls = 0

    def __call__(self, *args: object, **kwargs: object) -> tuple[Any, ...]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return (self.calls, *args, *kwargs.items())


@pytest.mark.parametrize("error", [OSError("it is down"), SystemExit("it is down")])
def test_cached_answers(clock: ManualClock, caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    """reference/driver 12: the first call blocks; an old answer is given once more while a new one is asked for."""
    server, later = Server(), ManualExecutor(eager=False)
    cached = LazyExecutorTTLCache(10, later)(server)
    server.error = error
    with pytest.raises(type(error), match="it is down"):
        cached()
    server.error = None
    assert cached() == (2,)
    assert cached("b", az=1) == (3, "b", ("az", 1))
    clock.pass_seconds(9.9)
    assert cached() == (2,)
    assert later.waiting == []
    clock.pass_seconds(0.1)
    assert [cached(), cached()] == [(2,)] * 2
    assert len(later.waiting) == 1, "one refresh at a time"
    later.run()
    assert cached() == (4,)
    # An error keeps the old answer, and is not followed by another call at once.
    clock.pass_seconds(10)
    server.error = error
    cached()
    later.run()
    server.error = None
    assert "it is down" in caplog.text
    assert cached() == (4,)
    assert later.waiting == []
    clock.pass_seconds(10)
    cached()
    later.run()
    assert cached() == (6,)


# -- time that does not count against the time-out of a launch --


@pytest.fixture
def held(clock: ManualClock) -> rate.HeldTime:
    return rate.HeldTime()


def test_waits_at_the_same_time_count_once(clock: ManualClock, held: rate.HeldTime) -> None:
    limit = rate.TimeLimit(10, held)
    with rate.working_for((held,)), rate.held_up():
        clock.pass_seconds(2)
        with rate.held_up():
            clock.pass_seconds(3)
        clock.pass_seconds(4)
        assert (held.seconds, limit.left) == (9, 10)
    clock.pass_seconds(1)
    assert (held.seconds, limit.left) == (9, 9)
    # What was before does not make a later limit longer.
    assert rate.TimeLimit(10, held).left == 10
