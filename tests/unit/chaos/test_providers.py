# SPDX-License-Identifier: Apache-2.0
"""Slots of static hosts, as the invariants count them."""

from __future__ import annotations

from tests.chaos.providers import HOSTS, STATIC_PROVIDER, all_places, places_of, static_nodes


def test_each_slot_once() -> None:
    standing = [
        {"provider": STATIC_PROVIDER, "hostname": name, "slot": slot} for name, slots in HOSTS for slot in range(slots)
    ]
    assert places_of(standing) == all_places()
    assert places_of([*standing, standing[0]]) != all_places()
    assert places_of(standing[1:]) != all_places()
    assert not places_of([{"provider": "cloud-one", "hostname": HOSTS[0][0]}])


def test_static_nodes() -> None:
    nodes = {"1": {"provider": STATIC_PROVIDER}, "2": {"provider": "cloud-one"}, "3": {}}
    assert static_nodes(nodes) == {"1"}
