# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.places`."""

from __future__ import annotations

from typing import Any

from nodepool.driver.aws.places import Places, places_of
from tests.unit.driver.aws.support import load, section


def label_of(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None) -> Any:
    return load(section(label, pool=pool or {})).pools["main"].labels["small"]


def names(found: Any) -> list[str]:
    return [str(place) for place in found]


def test_order() -> None:
    """The first type in all subnets, then the next one; on demand only in the end."""
    label = {"instance-type": ["t3.medium", "t3a.medium"], "use-spot": True, "spot-fallback": True}
    assert names(places_of(label_of(label, pool={"subnet-id": ["a", "b"]}))) == [
        "t3.medium (spot) in a",
        "t3.medium (spot) in b",
        "t3a.medium (spot) in a",
        "t3a.medium (spot) in b",
        "t3.medium in a",
        "t3.medium in b",
        "t3a.medium in a",
        "t3a.medium in b",
    ]


def test_zones() -> None:
    assert names(places_of(label_of(pool={"availability-zone": ["z1", "z2"]}))) == [
        "t3.medium in z1",
        "t3.medium in z2",
    ]
    assert names(places_of(label_of())) == ["t3.medium in any zone"]


def test_one_subnet_and_its_zone() -> None:
    (place,) = places_of(label_of(pool={"availability-zone": "z1", "subnet-id": "a"}))
    assert (place.subnet_id, place.zone, place.spot) == ("a", "z1", False)


def test_without_fallback() -> None:
    assert names(places_of(label_of({"use-spot": True}))) == ["t3.medium (spot) in any zone"]


def test_what_rests_is_left_out() -> None:
    places = Places()
    label = label_of(pool={"subnet-id": ["a", "b"]})
    first, second = places.to_try(label)
    places.no_room(first)
    assert places.to_try(label) == [second]
