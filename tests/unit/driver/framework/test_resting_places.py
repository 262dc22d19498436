# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.resting_places`."""

from __future__ import annotations

from nodepool.driver.framework.resting_places import REST_SECONDS, RestingPlaces
from tests.support.manual_clock import ManualClock


def test_rest() -> None:
    """What had no room is left alone for a while; if all had none, the one that has rested longest is tried."""
    clock = ManualClock()
    places: RestingPlaces[str] = RestingPlaces(clock)
    assert places.awake(["a", "b"]) == ["a", "b"]
    places.no_room("a")
    assert places.awake(["a", "b"]) == ["b"]
    assert places.rests("a")
    assert not places.rests("b")
    clock.now += 1
    places.no_room("b")
    assert places.awake(["a", "b"]) == ["a"]
    clock.now += REST_SECONDS - 1
    assert places.awake(["a", "b"]) == ["a"]
    clock.now += 1
    assert places.awake(["a", "b"]) == ["a", "b"]
