# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.facts`: flavors, images, networks (O-1, O-2, O-7, O-10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.framework.fact import Fact
from nodepool.driver.openstack.facts import choose_flavor, missing_flavor
from nodepool.driver.openstack.views import Flavor
from nodepool.exceptions import LaunchNodepoolException
from tests.support.manual_clock import ManualClock
from tests.unit.driver.openstack.support import StubCloud, label_section, only_label

FLAVORS = [
    Flavor("4", "gpu-big", 8, 8192),
    Flavor("2", "std-b", 2, 4096),
    Flavor("1", "std-a", 2, 4096),
    Flavor("3", "std-big", 8, 8192),
    Flavor("0", "tiny", 1, 512),
]


@pytest.mark.parametrize(
    ("name", "min_ram", "wanted"),
    [
        (None, 1, "tiny"),
        (None, 513, "std-a"),
        ("b", 1000, "std-b"),
        ("std", 5000, "std-big"),
        ("gpu", 1, "gpu-big"),
        ("std-b", 0, "std-b"),
        ("std", 0, None),
        ("3", 0, "std-big"),
        (None, 10**6, None),
        (None, 0, "tiny"),
    ],
)
def test_choose_flavor(name: str | None, min_ram: int, wanted: str | None) -> None:
    """O-1: by (ram, name) with a part of the name; without min-ram exactly the name, or the id."""
    found = choose_flavor(FLAVORS, name, min_ram)
    assert (found.name if found else None) == wanted


def test_unknown_flavor(make_cloud: Callable[..., StubCloud]) -> None:
    """Bad input: the error names provider, label, and the remedy; the cloud is asked once more before."""
    cloud = make_cloud(label_section(**{"flavor-name": "nope"}))
    cloud.facts.flavors._asked_at = -1000
    with pytest.raises(
        LaunchNodepoolException, match=r"provider cloud-a, label small: .* no flavor named 'nope'; correct flavor-name"
    ):
        cloud.facts.flavor_of(only_label(cloud.config))


def test_hidden_flavor(cloud: StubCloud) -> None:
    """Flavors of old servers may not be listed any more."""
    cloud.stub.answers["GET", "/flavors/old"] = {"flavor": {"id": "old", "name": "o", "vcpus": 3, "ram": 7}}
    assert cloud.facts.flavor("old") == Flavor("old", "o", 3, 7)
    assert cloud.facts.flavor("old") == Flavor("old", "o", 3, 7)
    assert cloud.facts.flavor("gone") is None
    assert cloud.stub.count("GET", "/flavors/old") == 1


def test_image_by_name_or_id(make_cloud: Callable[..., StubCloud]) -> None:
    """reference/configuration 7: what is given as name may be an id. O-10: ``image-id`` needs no look-up."""
    cloud = make_cloud()
    image = cloud.config.cloud_images["debian"]
    assert cloud.facts.image_id(image) == "i1"
    image.image_name = "uuid-1"
    cloud.stub.answers["GET", "/images/uuid-1"] = {"id": "uuid-1", "status": "active"}
    assert cloud.facts.image_id(image) == "uuid-1"
    image.image_id = "given"
    before = len(cloud.stub.calls)
    assert cloud.facts.image_id(image) == "given"
    assert len(cloud.stub.calls) == before


def test_missing_image_is_asked_for_seldom(cloud: StubCloud) -> None:
    """O-7: at most every 300 s; but once more before a launch fails."""
    image = cloud.config.cloud_images["debian"]
    image.image_name = "nope"
    clock = ManualClock()
    cloud.facts._images["nope"] = fact = Fact(lambda: cloud.facts._find_image("nope"), clock)
    for _ in range(5):
        assert cloud.facts.image_id(image) is None
    assert cloud.stub.count("GET", "/images") == 1
    clock.now += 301
    assert cloud.facts.image_id(image) is None
    assert cloud.stub.count("GET", "/images") == 2
    clock.now += 11
    with pytest.raises(LaunchNodepoolException, match="label small: the cloud has no usable image 'nope'; correct"):
        cloud.facts.image_of(only_label(cloud.config))
    assert cloud.stub.count("GET", "/images") == 3
    assert fact.known() is None


def test_networks(make_cloud: Callable[..., StubCloud]) -> None:
    """Names or ids, in the order of the label; ambiguous and unknown ones are errors with a remedy."""
    cloud = make_cloud(label_section(networks=["internal", "n2"]))
    label = only_label(cloud.config)
    networks = [{"id": "n1", "name": "internal"}, {"id": "n2", "name": "x"}, {"id": "n3", "name": "x"}]
    cloud.stub.answers["GET", "/networks"] = {"networks": networks}
    assert cloud.facts.network_ids(label) == ["n1", "n2"]
    label.networks = ["x"]
    with pytest.raises(
        LaunchNodepoolException, match="label small: the cloud has 2 networks named 'x'; use ids in networks"
    ):
        cloud.facts.network_ids(label)
    label.networks = ["nope"]
    with pytest.raises(LaunchNodepoolException, match="no network 'nope'; correct networks"):
        cloud.facts.network_ids(label)


def test_no_network_service(make_cloud: Callable[..., StubCloud]) -> None:
    cloud = make_cloud(label_section(networks=["an-id"]))
    cloud.stub.services = {"compute", "image"}
    assert cloud.facts.network_ids(only_label(cloud.config)) == ["an-id"]


def test_clear(cloud: StubCloud) -> None:
    """O-2: everything is asked for again."""
    for _ in range(2):
        cloud.facts.flavor_of(only_label(cloud.config))
        cloud.facts.image_of(only_label(cloud.config))
        cloud.facts.networks.get()
    before = len(cloud.stub.calls)
    cloud.facts.clear()
    cloud.facts.flavor_of(only_label(cloud.config))
    cloud.facts.image_of(only_label(cloud.config))
    cloud.facts.networks.get()
    assert (before, len(cloud.stub.calls)) == (3, 6)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"flavor-name": "m9"}, "no flavor named 'm9'; correct"),
        ({"flavor-name": "m9", "min-ram": 512}, "no flavor with 'm9' in its name and with at least 512 MiB; correct"),
        ({"min-ram": 512, "flavor-name": None}, "no flavor with at least 512 MiB; correct"),
    ],
)
def test_missing_flavor(make_cloud: Callable[..., StubCloud], settings: dict[str, Any], wanted: str) -> None:
    """O-1: what was looked for is said as it stands in the label."""
    label = {key: value for key, value in {**label_section(), **settings}.items() if value is not None}
    assert wanted in missing_flavor(only_label(make_cloud(label).config))
