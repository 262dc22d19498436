# SPDX-License-Identifier: Apache-2.0
"""From the configuration to the body of the call that makes an instance, and to the names of what belongs to it."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from ibm_vpc import vpc_v1 as models

from nodepool.driver.framework.fact import Fact
from nodepool.driver.ibmvpc.facts import IbmFacts, IbmPlace, places_of
from nodepool.driver.ibmvpc.types import (
    IbmSubnet,
    IbmVolume,
    group_of_images,
    group_of_pool,
    image_metadata,
    image_name,
    metadata_of_tags,
    node_metadata,
    volume_tags,
)
from nodepool.driver.statemachine.instance import INSTALLATION_KEY, for_node, foreign, know_installation, look_for
from tests.support.provider_sections import label_of
from tests.support.tables import driver_table
from tests.unit.driver.ibmvpc.support import METADATA, load, section
from tests.unit.driver.simulated_adapter import HOST

# -- what is sent --


@pytest.mark.parametrize(("label", "spot", "expected"), driver_table("ibmvpc", "bodies"))
def test_bodies(label: dict[str, Any], spot: bool, expected: dict[str, Any]) -> None:
    """IV-5: all that makes an instance. It is what IBM's SDK takes for one."""
    names = {"ci": "vpc-id", "zuul": "key-1"}
    region = Mock(ids=lambda kind: names, known_groups=Fact(lambda: {"np_south_main": "group-id"}))
    facts = IbmFacts(load(section()), region)
    place = IbmPlace("bx2-2x8", "us-south-1", "subnet-id", spot)
    body = facts.instance_body(HOST, label_of(load(section(label))), place, "image-id", METADATA)
    assert body == expected
    assert (
        models.InstancePrototypeInstanceByImageInstanceByImageInstanceByNetworkInterface.from_dict(body).to_dict()
        == expected
    )


def test_places() -> None:
    """Profiles first, then zones as the pool lists them; what is regular for lack of a spot instance comes last."""
    one, two, more = (
        IbmSubnet({"id": key, "name": key, "zone": {"name": zone}})
        for key, zone in (("s1", "a"), ("s2", "b"), ("s9", "a"))
    )
    label = {"profile": ["p", "q"], "use-spot": True, "spot-fallback": True}
    config = load(section(label, {"zone": ["b", "a"], "subnet": ["n1", "n2"]}))
    found = places_of(label_of(config), [one, two])
    assert [(place.profile, place.subnet_id, place.spot) for place in found] == [
        (profile, subnet, spot) for spot in (True, False) for profile in ("p", "q") for subnet in ("s2", "s1")
    ]
    assert (str(found[0]), str(found[-1])) == ("p (spot) in zone b", "q in zone a")
    assert [place.subnet_id for place in places_of(label_of(load(section(zone="a"))), [one, more])] == ["s1", "s9"]


# -- names --


@pytest.mark.parametrize(("name", "group", "found"), driver_table("ibmvpc", "whose_an_instance_is"))
def test_whose_an_instance_is(name: str, group: str, found: tuple[str, str, str] | None) -> None:
    """IV-2, IV-3: node by its name, provider and pool by its group; later orders have numbers of their own."""
    assert node_metadata(name, group) == ({} if found is None else for_node(*found))
    assert (group_of_pool("south", "main"), group_of_images("south")) == ("np_south_main", "npimages_south")


def test_tags_of_volumes() -> None:
    """CM-1, IV-2: a volume carries tags, which IBM makes lower case. One in a group of others is not ours."""
    tags = volume_tags(for_node("0000000042", "Main", "South"))
    assert tags == ["nodepool_node_id:0000000042", "nodepool_pool_name:main", "nodepool_provider_name:south"]
    ours = {"nodepool_node_id": "0000000042", "nodepool_provider_name": "South"}

    def found(provider: str, group: str, tags: list[str] = tags) -> dict[str, str]:
        volume = {"id": "v", "name": "n", "user_tags": tags, "resource_group": {"id": "g", "name": group}}
        return metadata_of_tags(IbmVolume(volume), provider)

    assert found("South", "np_South_Main", [*tags, "team", "a:b:c"]) == ours
    assert found("north", "np_north_main") == {}
    assert found("south", "np_south_main", ["nodepool_provider_name:south"]) == {}
    for other in ("Default", "np_north_Main", "np_south_Main", ""):
        assert found("South", other) == {}


BUILD = "0123456789abcdef0123456789abcdef"
UPLOAD = {"nodepool_build_id": BUILD, "nodepool_upload_id": "0000000007", "nodepool_provider_name": "south"}


def test_names_of_images() -> None:
    """IV-10: the name has upload, provider and build; ids of uploads begin again with each build and provider. The
    first names had no provider. An image that does not say of which build it is is not ours; the sweep leaves it alone.
    """
    name = image_name(UPLOAD, "south")
    assert name == f"npimage0000000007-2daa8d4a-{BUILD}"
    assert len({name, image_name({**UPLOAD, "nodepool_build_id": "f" * 32}, "south"), image_name(UPLOAD, "north")}) == 3
    for ours in (name, f"npimage0000000007-{BUILD}"):
        assert image_metadata(ours, "npimages_south") == UPLOAD
    for group in ("npimages_north", "np_south_main"):
        assert image_metadata(name, group) == {}
    for other in ("npimage0000000007", "npimage-1", "fedora"):
        assert image_metadata(other, "npimages_south") == {}


def test_images_of_another_installation() -> None:
    """D-10: those of an earlier release, and of an installation that was adopted, are ours."""
    unmarked = image_name(UPLOAD, "south")
    know_installation(("0" * 16,))
    name, marked = image_name(UPLOAD, "south"), {**UPLOAD, INSTALLATION_KEY: "0" * 16}
    assert len(name) == len(unmarked) <= 63
    rows: list[tuple[tuple[str, ...], Any]] = [(("0" * 16,), marked), (("1" * 16,), {}), (("1" * 16, "0" * 16), marked)]
    for installations, found in rows:
        know_installation(installations)
        assert image_metadata(name, "npimages_south") == found
        assert image_metadata(unmarked, "npimages_south") == UPLOAD
    know_installation(("1" * 16,))
    look_for("0" * 16)
    assert foreign(image_metadata(name, "npimages_south")) == "0" * 16
