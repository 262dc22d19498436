# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.instances` and ``places``."""

from __future__ import annotations

from typing import Any

from nodepool.driver.gce.config import CLOUD_SCOPE
from nodepool.driver.gce.facts import places_of
from nodepool.driver.gce.instances import instance_body
from nodepool.driver.statemachine.instance import for_node
from tests.unit.driver.gce.sections import PROVIDER, ZONES, label_of, load, section

METADATA = for_node("0000000042", "main", PROVIDER)
IMAGE = "projects/debian-cloud/global/images/debian-12"


def body(data: dict[str, Any], place: int = 0) -> dict[str, Any]:
    label = label_of(load(data))
    return instance_body("np0000000042", label, places_of(label)[place], IMAGE, METADATA)


def test_body() -> None:
    """GC-2, GC-3, CM-1: as in 11.0.0, and the labels."""
    items = [{"key": "ssh-keys", "value": "zuul:ssh-ed25519 AAAA"}]
    items += [{"key": key, "value": value} for key, value in METADATA.items()]
    assert body(section()) == {
        "name": "np0000000042",
        "machineType": "zones/us-central1-a/machineTypes/n2-standard-2",
        "labels": METADATA,
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": IMAGE,
                    "diskType": "zones/us-central1-a/diskTypes/pd-standard",
                    "diskSizeGb": "10",
                    "labels": METADATA,
                },
            }
        ],
        "networkInterfaces": [
            {
                "network": "global/networks/default",
                "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}],
            }
        ],
        "serviceAccounts": [],
        "metadata": {"items": items},
    }


def test_all_options() -> None:
    pool = {"public-ipv4": False, "subnetwork": "nodes", "network": "ci", "network-tags": ["ci"]}
    label = {
        "use-spot": True,
        "service-account": {"email": "a@b"},
        "shielded-instance": {"vtpm": False},
        "metadata": {"startup-script": "s", "ssh-keys": "mine", "nodepool_node_id": "7"},
    }
    made = body(section(label, pool))
    assert made["networkInterfaces"] == [
        {"network": "global/networks/ci", "subnetwork": "regions/us-central1/subnetworks/nodes"}
    ]
    assert made["tags"] == {"items": ["ci"]}
    assert made["serviceAccounts"] == [{"email": "a@b", "scopes": [CLOUD_SCOPE]}]
    assert made["shieldedInstanceConfig"] == {"enableVtpm": False}
    assert made["scheduling"]["provisioningModel"] == "SPOT"
    assert made["scheduling"]["instanceTerminationAction"] == "DELETE"
    items = {item["key"]: item["value"] for item in made["metadata"]["items"]}
    assert items == {"startup-script": "s", "ssh-keys": "zuul:ssh-ed25519 AAAA", **METADATA}


def test_network_of_another_project() -> None:
    link = "projects/host/regions/us-central1/subnetworks/nodes"
    assert body(section(subnetwork=link, pool={"public-ipv4": False}))["networkInterfaces"] == [{"subnetwork": link}]
    network = "projects/host/global/networks/ci"
    assert body(section(network=network))["networkInterfaces"][0]["network"] == network


def test_places() -> None:
    """Types, and the zones of each; standard ones come last."""
    data = section({"instance-type": ["a", "b"], "use-spot": True, "spot-fallback": True}, zone=ZONES)
    assert [str(place) for place in places_of(label_of(load(data)))] == [
        f"{name}{spot} in {zone}" for spot in (" (spot)", "") for name in ("a", "b") for zone in ZONES
    ]
    assert [place.spot for place in places_of(label_of(load(section({"use-spot": True}))))] == [True]
    assert [place.spot for place in places_of(label_of(load(section({"spot-fallback": True}))))] == [False]
