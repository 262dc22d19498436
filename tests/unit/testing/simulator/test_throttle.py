# SPDX-License-Identifier: Apache-2.0
"""Token buckets."""

from __future__ import annotations

from nodepool.testing.simulator.throttle import CallBucket, Throttle

SMALL, LARGE = CallBucket(2, 1), CallBucket(10, 5)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_empties_and_fills_up() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    assert [throttle.take({"a": (SMALL, 1)}) for _ in range(3)] == [None, None, "a"]
    clock.now = 1.0
    assert [throttle.take({"a": (SMALL, 1)}) for _ in range(2)] == [None, "a"]
    clock.now = 100.0
    assert throttle.level("a", SMALL) == 2


def test_all_or_nothing() -> None:
    """A call that one bucket refuses takes nothing out of the others."""
    throttle = Throttle(Clock())
    assert throttle.take({"calls": (LARGE, 1), "instances": (SMALL, 3)}) == "instances"
    assert throttle.level("calls", LARGE) == 10
