# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.facts`."""

from __future__ import annotations

from typing import Any

from nodepool.driver.azure.facts import places_of
from tests.unit.driver.azure.support import label_of, load, section


def names(label: dict[str, Any], pool: dict[str, Any] | None = None) -> list[str]:
    return [str(place) for place in places_of(label_of(load(section(label, pool))))]


def test_order() -> None:
    """The first size in all zones, then the next one; regular VMs only in the end."""
    label = {"hardware-profile": {"vm-size": ["A", "B"]}, "use-spot": True, "spot-fallback": True}
    assert names(label, {"availability-zones": ["1", "2"]}) == [
        "A (spot) in zone 1",
        "A (spot) in zone 2",
        "B (spot) in zone 1",
        "B (spot) in zone 2",
        "A in zone 1",
        "A in zone 2",
        "B in zone 1",
        "B in zone 2",
    ]


def test_without_zones() -> None:
    assert names({}) == ["Standard_B1s in any zone"]
    assert names({"use-spot": True}) == ["Standard_B1s (spot) in any zone"]
