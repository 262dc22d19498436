# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.facts`."""

from __future__ import annotations

from nodepool.driver.ibmvpc.facts import places_of
from nodepool.driver.ibmvpc.types import IbmSubnet
from tests.unit.driver.ibmvpc.support import label_of, load, section


def subnet(zone: int) -> IbmSubnet:
    return IbmSubnet(f"s{zone}", f"nodes-{zone}", "v", f"us-south-{zone}", 250)


def test_order() -> None:
    """Profiles first, then zones as the pool lists them; what is regular for lack of a spot instance comes last."""
    label = {"profile": ["a", "b"], "use-spot": True, "spot-fallback": True}
    config = load(section(label, {"zone": ["us-south-2", "us-south-1"], "subnet": ["nodes-1", "nodes-2"]}))
    found = places_of(label_of(config), [subnet(1), subnet(2)])
    assert [(place.profile, place.subnet_id, place.spot) for place in found] == [
        *[("a", "s2", True), ("a", "s1", True), ("b", "s2", True), ("b", "s1", True)],
        *[("a", "s2", False), ("a", "s1", False), ("b", "s2", False), ("b", "s1", False)],
    ]
    assert str(found[0]) == "a (spot) in zone us-south-2"
    assert str(found[-1]) == "b in zone us-south-1"


def test_two_subnets_of_a_zone() -> None:
    other = IbmSubnet("s9", "more", "v", "us-south-1", 250)
    found = places_of(label_of(load(section())), [subnet(1), other])
    assert [place.subnet_id for place in found] == ["s1", "s9"]
