# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.rate_classes`. The test moves the time."""

from __future__ import annotations

import pytest

from nodepool.driver.framework.rate_classes import SPREAD_SECONDS, RateClasses
from nodepool.driver.framework.token_bucket import BucketSize


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
