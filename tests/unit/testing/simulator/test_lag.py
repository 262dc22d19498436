# SPDX-License-Identifier: Apache-2.0
"""Values that are seen late."""

from __future__ import annotations

from nodepool.testing.simulator.lag import Lagging


def test_readers_see_it_later() -> None:
    now = [0.0]
    value = Lagging("old", lambda: now[0])
    value.set("new", 5.0)
    assert (value.value, value.shown) == ("new", "old")
    now[0] = 5.0
    assert value.shown == "new"


def test_the_order_of_changes_is_kept() -> None:
    """A quick change does not overtake a slow one."""
    now = [0.0]
    value = Lagging("old", lambda: now[0])
    value.set("first", 5.0)
    value.set("second", 0.0)
    assert (value.value, value.shown) == ("second", "old")
    now[0] = 5.0
    assert value.shown == "second"
