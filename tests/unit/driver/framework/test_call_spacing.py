# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.call_spacing`."""

from __future__ import annotations

import pytest

from nodepool.driver.framework.call_spacing import CallSpacing
from tests.support.manual_clock import ManualClock


def test_the_first_call_begins_at_once_and_others_later() -> None:
    clock = ManualClock()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.now += seconds

    spacing = CallSpacing(2.0, sleep, clock)
    spacing.wait()
    clock.now += 0.5
    spacing.wait()
    clock.now += 2.0
    spacing.wait()
    assert pauses == [pytest.approx(1.5)]


def test_stopped_while_it_waits() -> None:
    def stopped(_: float) -> None:
        raise RuntimeError("stopped")

    spacing = CallSpacing(2.0, stopped, ManualClock())
    spacing.wait()
    with pytest.raises(RuntimeError, match="stopped"):
        spacing.wait()
