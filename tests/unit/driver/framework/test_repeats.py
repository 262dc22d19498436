# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.repeats`."""

from __future__ import annotations

from nodepool.driver.framework.repeats import Repeats


def test_first_time_and_reminder() -> None:
    """Trouble is told when it begins, once a while as long as it lasts, and anew when it comes back."""
    now = [0.0]
    repeats = Repeats(60, lambda: now[0])
    assert repeats.worth_saying("limits")
    assert not repeats.worth_saying("limits")
    assert repeats.worth_saying("zones")
    now[0] = 61
    assert repeats.worth_saying("limits")
    assert repeats.over("limits")
    assert not repeats.over("limits")
    assert repeats.worth_saying("limits")
