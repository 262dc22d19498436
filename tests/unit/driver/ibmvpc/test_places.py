# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.places`."""

from __future__ import annotations

from nodepool.driver.ibmvpc.places import IbmPlaces, places_of
from nodepool.driver.ibmvpc.types import IbmSubnet
from nodepool.model.request import NodeRequest
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


TWO_ZONES = {"zone": ["us-south-1", "us-south-2"], "subnet": ["nodes-1", "nodes-2"]}


def request(key: str, nodes: int) -> NodeRequest:
    made = NodeRequest(key)
    made.node_types = ["small"] * nodes
    return made


def zones(places: IbmPlaces, of: NodeRequest | None, az: str | None = None) -> list[str]:
    label = label_of(load(section(None, TWO_ZONES)))
    return [place.zone for place in places.to_try(label, [subnet(1), subnet(2)], of, az)]


def test_nodes_of_a_request_are_in_one_zone() -> None:
    """N-7: the first node decides, also when its first zone had no capacity."""
    places, several = IbmPlaces(), request("1", 2)
    label = label_of(load(section(None, TWO_ZONES)))
    first, second = places.to_try(label, [subnet(1), subnet(2)], several, None)
    places.no_room_for(first, several)
    places.made(second, several)
    assert zones(IbmPlaces(), several) == ["us-south-1", "us-south-2"]
    assert zones(places, several)[0] == "us-south-2"
    assert zones(places, several, "us-south-2")[0] == "us-south-2"


def test_zone_of_a_node_that_is_there() -> None:
    """N-7: a node that was ready decides."""
    assert zones(IbmPlaces(), request("1", 2), "us-south-2") == ["us-south-2", "us-south-1"]


def test_single_nodes_go_in_the_order_of_the_pool() -> None:
    places = IbmPlaces()
    for key in ("1", "2"):
        assert zones(places, request(key, 1)) == ["us-south-1", "us-south-2"]
    assert zones(places, None) == ["us-south-1", "us-south-2"]
