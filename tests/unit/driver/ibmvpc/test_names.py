# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.types` (IV-3, IV-10)."""

from __future__ import annotations

import pytest

from nodepool.driver.ibmvpc import types
from nodepool.driver.statemachine import instance
from nodepool.driver.statemachine.instance import for_node

UPLOAD = {
    "nodepool_build_id": "0123456789abcdef0123456789abcdef",
    "nodepool_upload_id": "0000000007",
    "nodepool_provider_name": "south",
}


@pytest.mark.parametrize(
    ("name", "group", "node"),
    [
        ("np0000000042", "np_south_main", "0000000042"),
        ("np0000000042-2", "np_south_main", "0000000042"),
        ("np0000000042-1-3", "np_south_main", "0000000042"),
        ("np42", "np_South-1_main-2", "42"),
    ],
)
def test_whose_an_instance_is(name: str, group: str, node: str) -> None:
    """IV-3: node by its name, provider and pool by its group; later orders have numbers of their own."""
    _, provider, pool = group.split("_")
    assert types.node_metadata(name, group) == for_node(node, pool, provider)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("np42", "Default"),
        ("np42", "np_south"),
        ("np42", "np_a_b_c"),
        ("np42", ""),
        ("np42a", "np_south_main"),
        ("xnp42", "np_south_main"),
        ("np42-1-2-3", "np_south_main"),
    ],
)
def test_of_others(name: str, group: str) -> None:
    """IV-2, IV-3: a thing in an unknown group is nobody's here."""
    assert types.node_metadata(name, group) == {}


def test_groups() -> None:
    """IV-3: the names of Nodepool 11.0.0."""
    assert types.group_of_pool("south", "main") == "np_south_main"
    assert types.group_of_images("south") == "npimages_south"


def test_tags_of_volumes() -> None:
    """CM-1, IV-2: a volume carries tags, which IBM makes lower case. One in a group of others is nobody's here."""
    tags = types.volume_tags(for_node("0000000042", "Main", "South"))
    assert tags == ["nodepool_node_id:0000000042", "nodepool_pool_name:main", "nodepool_provider_name:south"]
    group = "np_South_Main"
    assert types.metadata_of_tags([*tags, "team", "a:b:c"], "South", group) == {
        "nodepool_node_id": "0000000042",
        "nodepool_provider_name": "South",
    }
    assert types.metadata_of_tags(tags, "north", "np_north_main") == {}
    assert types.metadata_of_tags(["nodepool_provider_name:south"], "south", "np_south_main") == {}
    for other in ("Default", "np_north_Main", "np_south_Main", ""):
        assert types.metadata_of_tags(tags, "South", other) == {}


def test_images() -> None:
    """IV-10: the name has upload, provider and build; ids of uploads begin again with each build and provider."""
    name = types.image_name(UPLOAD, "south")
    assert name == "npimage0000000007-2daa8d4a-0123456789abcdef0123456789abcdef"
    assert len(name) <= 63
    assert types.image_metadata(name, "npimages_south") == UPLOAD
    assert types.image_metadata(name, "npimages_north") == {}
    others = types.image_name({**UPLOAD, "nodepool_build_id": "f" * 32}, "south"), types.image_name(UPLOAD, "north")
    assert len({name, *others}) == 3


def test_images_of_another_installation() -> None:
    """D-10: those of an earlier release, and of an installation that was adopted, are ours."""
    unmarked = types.image_name(UPLOAD, "south")
    instance.know_installation(("0" * 16,))
    name, marked = types.image_name(UPLOAD, "south"), {**UPLOAD, instance.INSTALLATION_KEY: "0" * 16}
    assert [types.image_metadata(one, "npimages_south") for one in (name, unmarked)] == [marked, UPLOAD]
    assert len(name) == len(unmarked)
    instance.know_installation(("1" * 16,))
    assert types.image_metadata(name, "npimages_south") == {}
    instance.know_installation(("1" * 16, "0" * 16))
    assert types.image_metadata(name, "npimages_south") == marked
    instance.know_installation(("1" * 16,))
    instance.look_for("0" * 16)
    assert instance.foreign(types.image_metadata(name, "npimages_south")) == "0" * 16


def test_first_names_of_images() -> None:
    """IV-10: those without a provider are known, too."""
    assert types.image_metadata("npimage0000000007-0123456789abcdef0123456789abcdef", "npimages_south") == UPLOAD


@pytest.mark.parametrize("name", ["npimage0000000007", "npimage-1", "fedora"])
def test_images_of_others(name: str) -> None:
    """IV-10: an image that does not say of which build it is belongs to nobody here; the sweep leaves it alone."""
    assert types.image_metadata(name, "npimages_south") == {}
    assert types.image_metadata(types.image_name(UPLOAD, "south"), "np_south_main") == {}
