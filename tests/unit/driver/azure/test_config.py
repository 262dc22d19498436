# SPDX-License-Identifier: Apache-2.0
"""From the configuration to the body of the call that makes a VM, and to the names of what belongs to it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.azure.facts import VmPlace, places_of
from nodepool.driver.azure.machines import disk_metadata, disk_name, vm_body, vm_tags
from nodepool.driver.statemachine.instance import know_installation, node_id_of
from tests.support.provider_sections import has, label_of
from tests.support.tables import driver_table
from tests.unit.driver.azure.support import METADATA, changed, load, section
from tests.unit.driver.simulated_adapter import HOST, LOG

EVERYTHING: dict[str, Any] = driver_table("azure", "everything")


def test_images() -> None:
    """AZ-6, reference/configuration: where images are."""
    images = load(EVERYTHING).cloud_images
    assert [name for name, image in images.items() if image.has_filter] == ["filter"]
    found = {name: image.reference() for name, image in images.items() if not image.has_filter}
    assert found == driver_table("azure", "references")
    has(
        load(section(subnet_id="/subscriptions/s/subnets/x", network=None)),
        subnet=None,
        subnet_id="/subscriptions/s/subnets/x",
    )


# -- what is sent --

SUBNET = "/subscriptions/s/subnet"


@pytest.mark.parametrize(("changes", "place", "name", "expected"), driver_table("azure", "bodies"))
def test_bodies(changes: dict[str, Any], place: list[Any], name: str, expected: dict[str, Any]) -> None:
    """AZ-4, AZ-5, L-2: what makes a VM, with all that belongs to it."""
    label = label_of(load(changed(changes)))
    place_of = VmPlace(*place)
    found = vm_body(name, HOST, label, place_of, {"id": "image"}, SUBNET, {"a": "b"})
    # The version stands in one place (AZ-2).
    assert found["properties"]["networkProfile"].pop("networkApiVersion")
    assert found == expected


def test_generated_password() -> None:
    """AZ-4: 64 letters and digits, another one each time."""
    label = label_of(load(changed({"image": {"generate-password": True, "image-id": "/i"}})))
    bodies = [vm_body(HOST, HOST, label, VmPlace("A", None, False), {}, SUBNET, {}) for _ in range(2)]
    first, second = (body["properties"]["osProfile"]["adminPassword"] for body in bodies)
    assert (len(first), first != second) == (64, True)
    # learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update, adminPassword: three kinds of characters.
    assert re.fullmatch(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[a-zA-Z\d]+", first)


def test_tags(caplog: pytest.LogCaptureFixture) -> None:
    """CM-1, CM-2: label, dynamic, ours; a dynamic one that cannot be formatted is left out."""
    tags = {"team": "ci", "year": 2026, "a<b": "x" * 300, "nodepool_node_id": "forged"}
    dynamic = {"team": "{request.tenant_name}", "bad": "{request.nothing}"}
    label = label_of(load(section({"tags": tags, "dynamic-tags": dynamic})))
    request: Any = SimpleNamespace(tenant_name="tenant")
    assert vm_tags(label, METADATA, request, LOG) == {"team": "tenant", "year": "2026", "a_b": "x" * 256, **METADATA}
    assert "dynamic-tags: bad" in caplog.text


@pytest.mark.parametrize(("label", "zones", "names"), driver_table("azure", "places"))
def test_places(label: dict[str, Any], zones: list[str], names: list[str]) -> None:
    """AZ-10 (not repeated): the first size in all zones, then the next one; regular VMs only in the end."""
    config = load(section(label, {"availability-zones": zones}))
    assert [str(place) for place in places_of(label_of(config))] == names


def test_names_of_disks() -> None:
    """AZ-11, D-10: Azure gives a disk no tags: its name says of which node, provider and installation it is.

    Those of earlier releases are ours.
    """

    def node_of(name: str, provider: str = "north") -> str | None:
        return node_id_of(disk_metadata(name, provider), provider)

    for name in ("np0000000042", "np0000000042-3", "np0000000042-1-2"):
        unmarked = disk_name(name, "north")
        assert (node_of(unmarked.upper()), node_of(unmarked, "south")) == ("0000000042", None)
    assert node_of("np0000000042-os") is node_of("of-others") is None
    know_installation(("0" * 16,))
    marked = disk_name("np0000000042", "north")
    assert (node_of(unmarked), node_of(marked)) == ("0000000042", "0000000042")
    know_installation(("1" * 16,))
    assert (node_of(unmarked), node_of(marked)) == ("0000000042", None)
