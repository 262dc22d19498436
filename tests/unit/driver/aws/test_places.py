# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.facts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from nodepool.driver.aws.facts import Places, places_of
from nodepool.exceptions import LaunchError
from nodepool.model.request import NodeRequest
from tests.unit.driver.aws.support import load, section

if TYPE_CHECKING:
    from nodepool.driver.aws.facts import AwsFacts


class Zones:
    """Subnets are named after their zones; ``default`` has those of the default subnets."""

    def __init__(self, *default: str, error: LaunchError | None = None) -> None:
        self.default = list(default)
        self.error = error

    def zone_of_subnet(self, subnet_id: str) -> str:
        if self.error is not None:
            raise self.error
        return f"zone-{subnet_id}"

    def default_zones(self) -> list[str]:
        if self.error is not None:
            raise self.error
        return list(self.default)


def places_with(zones: Zones) -> Places:
    return Places(cast("AwsFacts", zones))


def request_of(nodes: int = 2, request_id: str = "300-0000000001") -> NodeRequest:
    request = NodeRequest()
    request.id = request_id
    request.node_types = ["small"] * nodes
    return request


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
    places = places_with(Zones())
    label = label_of(pool={"subnet-id": ["a", "b"]})
    first, second = places.to_try(label)
    places.no_room(first)
    assert places.to_try(label) == [second]


TWO_TYPES = {"instance-type": ["t3.medium", "m5.large"]}


def test_nodes_of_a_request_go_where_the_first_one_is() -> None:
    """N-7: another type in the same zone comes before the first type in another one."""
    places, request = places_with(Zones()), request_of()
    label = label_of(TWO_TYPES, pool={"subnet-id": ["a", "b"]})
    first = places.to_try(label, request)[0]
    places.no_room_for(first, request)
    second = places.to_try(label, request)[0]
    assert names([first, second]) == ["t3.medium in a", "t3.medium in b"]
    places.made(second, request)
    places.no_room_for(second, request)
    assert names(places.to_try(label, request)) == ["m5.large in b", "m5.large in a"]


def test_a_zone_without_room_is_left_as_long_as_no_node_is_there() -> None:
    places, request = places_with(Zones()), request_of()
    label = label_of(pool={"availability-zone": ["z1", "z2"]})
    for _ in range(2):
        # Both nodes of the request were to be made there.
        places.no_room_for(places_of(label)[0], request)
    assert places.to_try(label, request)[0].zone == "z2"


def test_the_zone_of_a_node_that_is_reused() -> None:
    """N-7: also for a request that was for one node when it came."""
    places = places_with(Zones())
    label = label_of(pool={"subnet-id": ["a", "b"]})
    assert places.to_try(label, request_of(), "zone-b")[0].subnet_id == "b"
    assert places.to_try(label, request_of(), "zone-elsewhere")[0].subnet_id == "a"


def test_a_pool_that_names_nothing() -> None:
    """N-7: one of the zones of the cloud, another one for other requests; a single node goes where AWS wants."""
    places, label = places_with(Zones("z1", "z2", "z3")), label_of()
    requests = [request_of(request_id=f"300-{number:010d}") for number in range(20)]
    chosen = [[places.to_try(label, request)[0].zone for _ in range(2)] for request in requests]
    assert all(first == second for first, second in chosen)
    assert {first for first, _ in chosen} == {"z1", "z2", "z3"}
    assert names(places.to_try(label, request_of(nodes=1))) == ["t3.medium in any zone"]


def test_zones_that_nobody_tells() -> None:
    """Credentials that may not ask launch all the same."""
    places = places_with(Zones(error=LaunchError("denied")))
    label = label_of(pool={"subnet-id": ["a", "b"]})
    assert names(places.to_try(label, request_of())) == ["t3.medium in a", "t3.medium in b"]
    places.no_room_for(places_of(label)[0], request_of())
    assert names(places.to_try(label, request_of())) == ["t3.medium in b"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_fleets_choose_themselves(nodes: int) -> None:
    fleet = {"fleet": {"instance-types": ["t3.medium"], "allocation-strategy": "prioritized"}}
    whole = section(pool={"subnet-id": ["a", "b"]})
    whole["pools"][0]["labels"][0].pop("instance-type")
    whole["pools"][0]["labels"][0].update(fleet)
    label = load(whole).pools["main"].labels["small"]
    assert len(places_with(Zones()).to_try(label, request_of(nodes))) == 1
