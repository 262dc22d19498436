# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.rate`."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

import pytest

from nodepool.driver.framework.rate import (
    LEAST_AT_ONCE,
    LOWEST_RATE,
    MOST_AT_ONCE,
    MOST_NAMES,
    RECOVERY_SECONDS,
    THROTTLED,
    TOGETHER_SECONDS,
    BucketSize,
    CallWindow,
    TokenBucket,
)


def turns(bucket: TokenBucket, count: int, now: float) -> list[float]:
    """Seconds until the next turns, all taken at once."""
    return [round(bucket.take(now).at - now, 6) for _ in range(count)]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (BucketSize(1, 2), [0, 0.5, 1, 1.5]),
        (BucketSize(3, 2), [0, 0, 0, 0.5]),
        (BucketSize(5, 0), [0, 0, 0, 0]),
    ],
)
def test_burst_and_rate(size: BucketSize, expected: list[float]) -> None:
    """As many as the burst begin at once, then the rate counts; without a rate there is no limit."""
    assert turns(TokenBucket(size, 100.0), 4, 100.0) == expected


def test_calls_that_wait_begin_together() -> None:
    """Four times a second, never before their turn: who waits is not woken for each of them. None is slower for it."""
    bucket = TokenBucket(BucketSize(1, 20), 100.1)
    at = [bucket.take(100.1).at for _ in range(100)]
    turns_of_their_own = [100.1 + number / 20 for number in range(100)]
    assert at[:6] == pytest.approx(turns_of_their_own[:6])
    later = [begin - turn for begin, turn in zip(at[6:], turns_of_their_own[6:], strict=True)]
    assert min(later) >= 0
    assert max(later) <= TOGETHER_SECONDS
    assert max(Counter(at[6:]).values()) == 20 * TOGETHER_SECONDS
    assert all(begin % TOGETHER_SECONDS == 0 for begin in at[6:])


def test_nobody_is_overtaken() -> None:
    """Who comes when the queue has become short would have a turn before those who begin together."""
    bucket = TokenBucket(BucketSize(1, 20), 100.1)
    assert [bucket.take(100.1).at for _ in range(7)][-1] == 100.5
    late = [bucket.take(100.3).at for _ in range(3)]
    assert late == pytest.approx([100.5, 100.5, 100.55])
    bucket = TokenBucket(BucketSize(1, 20), 100.1)
    taken = [bucket.take(100.1) for _ in range(20)]
    bucket.throttled(100.2, taken[0], 0.1)
    assert bucket.take(100.35).at == 100.35, "void turns hold up nobody"


def test_calls_that_are_few_begin_one_by_one() -> None:
    """There is nobody to begin with: it would only be later."""
    bucket = TokenBucket(BucketSize(1, 5), 100.0)
    assert turns(bucket, 6, 100.0) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]


def test_one_after_the_other() -> None:
    """Who makes a call when the last one has ended does not wait for others."""
    bucket = TokenBucket(BucketSize(1, 20), 100.0)
    now = 100.0
    for _ in range(20):
        now = bucket.take(now).at
    assert now == pytest.approx(100.95)


def test_refill() -> None:
    """A pause gives the burst back, and no more."""
    bucket = TokenBucket(BucketSize(2, 1), 0.0)
    assert turns(bucket, 3, 0.0) == [0, 0, 1]
    assert turns(bucket, 1, 1.5) == [0.5]
    assert turns(bucket, 3, 1000.0) == [0, 0, 1]


def test_throttled() -> None:
    """Half the rate after the pause, at first without a burst; then slowly back to the full one."""
    bucket = TokenBucket(BucketSize(10, 10), 0.0)
    for second in range(10):
        for tenth in range(10):
            turn = bucket.take(second + tenth / 10)
    assert bucket.throttled(10.0, turn, 4.0) == 4.0
    assert bucket.rate(14.0) == pytest.approx(5, rel=0.05)
    first, last = turns(bucket, 7, 10.0)[0::6]
    assert first == 4.0
    assert last > 4.2
    later = 14.0 + RECOVERY_SECONDS / 4
    assert bucket.rate(14.0) < bucket.rate(later) < 10
    assert bucket.rate(14.0 + RECOVERY_SECONDS) == 10
    assert turns(bucket, 10, 1000.0) == [0.0] * 10


def test_calls_that_were_throttled_together() -> None:
    """Their answers make the class slower once; the longest time that the cloud tells counts."""
    bucket = TokenBucket(BucketSize(40, 40), 0.0)
    together = [bucket.take(0.0) for _ in range(40)]
    assert bucket.throttled(0.1, together[0], 2.0) == 2.0
    slow = bucket.rate(0.1)
    waiting = bucket.take(0.2)
    assert bucket.throttled(0.5, together[1], 5.0) == 5.0
    assert bucket.throttled(0.5, together[2], None) == 5.0
    assert bucket.rate(0.1) == slow
    # Whoever had a turn in the shorter pause takes another one.
    assert waiting.round != bucket.round
    assert bucket.take(0.6).at >= 5.5


def test_void_turns_cost_nothing() -> None:
    """Whoever takes another turn after a longer pause does not queue behind the turns that nobody used."""
    bucket = TokenBucket(BucketSize(1, 2), 0.0)
    together = [bucket.take(0.0) for _ in range(2)]
    bucket.throttled(0.1, together[0], 1.0)
    for _ in range(20):
        bucket.take(0.2)
    bucket.throttled(0.3, together[1], 2.0)
    assert bucket.take(0.4).at == pytest.approx(2.3)
    assert bucket.take(0.4).at < 4.5


def test_pauses_of_a_cloud_that_tells_none() -> None:
    """They grow, up to a limit; a call that worked begins anew."""
    bucket, now, pauses = TokenBucket(BucketSize(1, 0), 0.0), 0.0, []
    for _ in range(9):
        turn = bucket.take(now)
        pauses.append(bucket.throttled(turn.at, turn, None))
        now = turn.at + pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 32, *[THROTTLED.longest_seconds] * 3]
    bucket.worked(bucket.take(now))
    assert bucket.throttled(now, bucket.take(now), None) == 1
    # A cloud may say anything.
    assert bucket.throttled(now, bucket.take(now), 1e9) == THROTTLED.longest_seconds


def test_without_a_limit() -> None:
    """The rate that was too high is what was asked; twice as much without a throttling, and there is no limit again."""
    bucket = TokenBucket(BucketSize(1, 0), 0.0)
    for number in range(200):
        turn = bucket.take(number / 20)
    bucket.throttled(10.0, turn, 0.0)
    assert bucket.rate(10.0) == pytest.approx(10, rel=0.05)
    assert bucket.rate(10.0 + 2 * RECOVERY_SECONDS) == float("inf")


@pytest.mark.parametrize(("rate", "lowest"), [(0.0, LOWEST_RATE), (100.0, LOWEST_RATE), (1.0, 0.25)])
def test_lowest(rate: float, lowest: float) -> None:
    """However often it is throttled, a class goes on."""
    bucket = TokenBucket(BucketSize(1, rate), 0.0)
    for _ in range(20):
        bucket.throttled(0.0, bucket.take(0.0), 0.0)
    assert bucket.rate(0.0) == lowest


class Cloud:
    """Callers that have the next call ready when one has ended, and how a cloud answers them.

    :param takes: seconds of a call, out of the time and the number of calls under way with it.
    """

    def __init__(self, takes: Callable[[float, int], float]) -> None:
        self.window = CallWindow()
        self.now = 0.0
        self.takes = takes
        self.under_way: list[tuple[float, float]] = []
        self.ended = 0

    def run(self, seconds: float, callers: int = MOST_AT_ONCE) -> float:
        """The calls per second that were answered."""
        end, before = self.now + seconds, self.ended
        while self.now < end:
            while not self.window.full and len(self.under_way) < callers:
                self.window.running += 1
                took = self.takes(self.now, len(self.under_way) + 1)
                heapq.heappush(self.under_way, (self.now + took, self.now))
            self.now, begun = heapq.heappop(self.under_way)
            self.window.answered(self.now, begun, "creating")
            self.window.running -= 1
            self.ended += 1
        return (self.ended - before) / seconds


def test_a_cloud_that_answers_late_has_fewer_calls_at_once() -> None:
    """It works on four calls at a time, the others wait there. As much is done, and answers come in time again."""
    cloud = Cloud(lambda now, calls: max(1.0, calls / 4))
    cloud.run(20, callers=1)
    assert cloud.run(300) >= 3.9
    assert cloud.window.limit < MOST_AT_ONCE
    begun = [begun for _, begun in cloud.under_way]
    assert max(end - begin for end, begin in cloud.under_way) <= 4.5, begun


def test_a_cloud_that_is_slow_whatever_we_do() -> None:
    """Fewer calls do not help: there are as many as before, or the launcher would do less than it could."""
    cloud = Cloud(lambda now, calls: 0.2 if now < 10 else 5.0)
    cloud.run(10)
    assert cloud.window.limit == MOST_AT_ONCE
    cloud.run(60)
    assert cloud.run(60) >= 0.95 * MOST_AT_ONCE / 5.0


def test_a_cloud_that_hardly_answers() -> None:
    """Many calls at once are worse than few: there are fewer, and more again when answers come in time."""
    cloud = Cloud(lambda now, calls: 0.2 if now < 10 or now > 400 else 0.1 * calls**2)
    cloud.run(10)
    cloud.run(380)
    assert LEAST_AT_ONCE <= cloud.window.limit <= MOST_AT_ONCE * 3 / 4
    cloud.run(20)
    cloud.run(60)
    assert cloud.window.limit == MOST_AT_ONCE


def test_one_late_answer_says_nothing() -> None:
    """Neither do answers that are late beside what is usual, but come within a second."""
    cloud = Cloud(lambda now, calls: 30.0 if 5 < now < 5.05 else 0.05 if now < 20 else 0.9)
    cloud.run(60, callers=1)
    assert cloud.window.limit == MOST_AT_ONCE


def test_names_of_calls_are_not_remembered_for_ever() -> None:
    window = CallWindow()
    for number in range(10 * MOST_NAMES):
        window.answered(1.0, 0.0, f"reading thing {number}")
    assert len(window._answers) == MOST_NAMES
