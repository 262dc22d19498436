# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.image_time`."""

from __future__ import annotations

import itertools

import pytest

from nodepool.driver.framework.image_time import ImageTime
from nodepool.driver.framework.upload_progress import UploadGivenUp
from nodepool.exceptions import ImageCreateException
from tests.support.manual_clock import ManualClock
from tests.unit.driver.openstack.test_image_upload import Stopped


def make(seconds: float) -> tuple[ImageTime, ManualClock, Stopped]:
    clock = ManualClock()
    stopped = Stopped(clock)
    return ImageTime("it", seconds, stopped, clock), clock, stopped


def test_looks() -> None:
    """With growing pauses, until one would end too late."""
    time, clock, _ = make(100)
    begun = clock.now
    seen = [clock.now - begun for _ in time.looks()]
    assert seen[:3] == [0, 0.5, 1.25]
    assert 80 < seen[-1] < 100
    assert max(later - earlier for earlier, later in itertools.pairwise(seen)) == 10


def test_nobody_wants_it_any_more() -> None:
    """It is asked once a second, however long the pauses are; what that raises ends the looks."""
    clock = ManualClock()
    asked: list[float] = []

    def wanted() -> None:
        asked.append(clock.now)
        if len(asked) == 20:
            raise UploadGivenUp("enough")

    time = ImageTime("it", 1000, Stopped(clock), clock, wanted)
    with pytest.raises(UploadGivenUp):
        list(time.looks())
    assert max(later - earlier for earlier, later in itertools.pairwise(asked)) == 1


def test_fewer_looks() -> None:
    time, clock, _ = make(100)
    assert len(list(time.looks(1))) == 2
    clock.now += 99 - 0.5
    assert len(list(time.looks(50))) == 2


def test_stopped() -> None:
    """All waiting ends."""
    time, _, stopped = make(100)
    assert time.wait(3)
    stopped.set()
    assert not time.wait(3)
    assert len(list(time.looks())) == 1
    with pytest.raises(ImageCreateException, match="it ended, because the provider was stopped"):
        time.check()


def test_over() -> None:
    time, clock, _ = make(5)
    time.check()
    assert not time.wait(5)
    clock.now += 5
    with pytest.raises(ImageCreateException, match="it took more than 5 s"):
        time.check()
