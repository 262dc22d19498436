# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.zone_places`."""

from __future__ import annotations

from typing import NamedTuple

from nodepool.driver.framework.zone_places import ZonePlaces
from nodepool.model.request import NodeRequest


class Place(NamedTuple):
    size: str
    zone: str | None


SMALL_1, SMALL_2, LARGE_1, LARGE_2 = ALL = [Place(size, zone) for size in ("small", "large") for zone in ("1", "2")]


def request(key: str, nodes: int) -> NodeRequest:
    made = NodeRequest(key)
    made.node_types = ["small"] * nodes
    return made


def test_nodes_of_a_request_are_in_one_zone() -> None:
    """N-7: the first node decides, also when its first zone had no capacity; another size there comes before another
    zone."""
    places: ZonePlaces[Place] = ZonePlaces()
    several = request("1", 2)
    assert places.to_try(ALL, several, None) == [SMALL_1, LARGE_1, SMALL_2, LARGE_2]
    places.no_room_for(SMALL_1, several)
    places.made(SMALL_2, several)
    assert places.to_try(ALL, several, None) == [SMALL_2, LARGE_2, LARGE_1]
    places.no_room_for(SMALL_2, several)
    assert places.to_try(ALL, several, None) == [LARGE_2, LARGE_1]


def test_zone_of_a_node_that_is_there() -> None:
    """N-7: a node that was ready decides, if the place can be there; it says nothing if the cloud names no zone."""
    places: ZonePlaces[Place] = ZonePlaces()
    for nodes in (1, 2):
        assert places.to_try([SMALL_1, SMALL_2], request(str(nodes), nodes), "2") == [SMALL_2, SMALL_1]
    assert places.to_try([SMALL_1, SMALL_2], request("1", 1), "elsewhere") == [SMALL_1, SMALL_2]
    assert places.to_try([SMALL_1, SMALL_2], request("1", 1), "") == [SMALL_1, SMALL_2]


def test_single_nodes_go_in_the_order_of_the_label() -> None:
    places: ZonePlaces[Place] = ZonePlaces()
    for key in ("1", "2"):
        assert places.to_try([SMALL_1, SMALL_2], request(key, 1), None) == [SMALL_1, SMALL_2]
    assert places.to_try([SMALL_1, SMALL_2], None, None) == [SMALL_1, SMALL_2]


def test_a_zone_that_the_cloud_chooses() -> None:
    places: ZonePlaces[Place] = ZonePlaces()
    anywhere, several = Place("small", None), request("1", 2)
    for _ in range(2):
        assert places.to_try([anywhere], several, None) == [anywhere]
        places.made(anywhere, several)
