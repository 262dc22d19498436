# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.facts` (IV-5)."""

from __future__ import annotations

from typing import Any

from nodepool.driver.ibmvpc.facts import IbmPlace, LaunchIds, instance_body
from tests.unit.driver.ibmvpc.support import METADATA, label_of, load, section
from tests.unit.driver.simulated_adapter import HOST

IDS = LaunchIds("vpc-id", "group-id", {"id": "image-id"}, ["key-1", "key-2"])


def body(label: dict[str, Any] | None = None, spot: bool = False) -> dict[str, Any]:
    place = IbmPlace("bx2-2x8", "us-south-1", "subnet-id", spot)
    return instance_body(HOST, label_of(load(section(label))), place, IDS, METADATA)


def test_body() -> None:
    """IV-5: all that makes an instance, with a boot volume that is named and tagged, and goes with it."""
    assert body() == {
        "name": HOST,
        "profile": {"name": "bx2-2x8"},
        "resource_group": {"id": "group-id"},
        "vpc": {"id": "vpc-id"},
        "zone": {"name": "us-south-1"},
        "image": {"id": "image-id"},
        "keys": [{"id": "key-1"}, {"id": "key-2"}],
        "primary_network_interface": {"name": "eth0", "subnet": {"id": "subnet-id"}},
        "boot_volume_attachment": {
            "delete_volume_on_instance_delete": True,
            "volume": {
                "name": HOST,
                "profile": {"name": "general-purpose"},
                "user_tags": [
                    "nodepool_node_id:0000000042",
                    "nodepool_pool_name:main",
                    "nodepool_provider_name:south",
                ],
            },
        },
    }


def test_more() -> None:
    """IV-5: user data; the size of the volume."""
    made = body({"user-data": "#cloud-config", "volume-size": 120})
    assert made["user_data"] == "#cloud-config"
    assert made["boot_volume_attachment"]["volume"]["capacity"] == 120


def test_spot() -> None:
    """A spot instance that IBM takes away stays there, stopped: so the reason can be read."""
    made = body(spot=True)
    assert made["availability"] == {"class": "spot"}
    assert made["availability_policy"] == {"preemption": "stop"}
