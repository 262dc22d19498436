# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.places`."""

from __future__ import annotations

from nodepool.driver.framework.places import MOST, RequestZones


def test_the_zone_of_the_first_node() -> None:
    """N-7"""
    zones = RequestZones()
    assert [zones.choose("a", zone) for zone in ("z1", "z2")] == ["z1", "z1"]
    assert zones.choose("b", "z2") == "z2"


def test_a_zone_is_left_only_while_it_is_empty() -> None:
    """N-7"""
    zones = RequestZones()
    zones.choose("a", "z1")
    zones.no_room("a", "z2")
    assert zones.choose("a", "z2") == "z1"
    zones.no_room("a", "z1")
    assert zones.choose("a", "z2") == "z2"
    zones.made("a", "z2")
    zones.no_room("a", "z2")
    assert zones.choose("a", "z1") == "z2"


def test_what_was_made_counts_and_not_what_was_chosen() -> None:
    zones = RequestZones()
    zones.choose("a", "z1")
    zones.made("a", "z2")
    zones.made("a", "z3")
    assert zones.choose("a", "z1") == "z2"


def test_a_zone_whose_nodes_came_to_nothing_is_left() -> None:
    """N-7"""
    zones = RequestZones()
    zones.choose("a", "z1")
    zones.made("a", "z1")
    zones.made("a", "z1")
    zones.lost("a", "z1")
    assert zones.choose("a", "z2") == "z1"
    zones.lost("a", "z2")
    zones.lost("a", "z1")
    assert zones.choose("a", "z2") == "z2"
    zones.lost("a", "z2")
    assert zones.choose("a", "z1") == "z2", "nothing was made there"


def test_old_requests_are_forgotten() -> None:
    zones = RequestZones()
    zones.choose("first", "z1")
    zones.made("first", "z1")
    for number in range(MOST):
        zones.choose(str(number), "z1")
    assert zones.choose("first", "z2") == "z2"
