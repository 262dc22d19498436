# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.machines`, ``names`` and ``places`` (AZ-4, AZ-5)."""

from __future__ import annotations

import base64
import string
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.azure.facts import VmPlace
from nodepool.driver.azure.machines import generated_password, vm_body, vm_tags
from tests.unit.driver.azure.support import METADATA, PROVIDER, label_of, load, section
from tests.unit.driver.simulated_adapter import HOST, LOG

SUBNET = "/subscriptions/s/subnet"


PLACE = VmPlace("Standard_B1s", None, False)


def body(
    label: dict[str, Any] | None = None,
    pool: dict[str, Any] | None = None,
    place: VmPlace | None = None,
    **provider: Any,
) -> dict[str, Any]:
    made = label_of(load(section(label, pool, **provider)))
    where = place or PLACE
    return vm_body(HOST, HOST, PROVIDER, "northeurope", made, where, {"id": "image"}, SUBNET, {"a": "b"})


def test_name_of_a_later_creation() -> None:
    """AZ-4, L-2: the name of the VM is another one, that of the host stays: Windows takes 15 characters."""
    made = vm_body(f"{HOST}-2-1", HOST, PROVIDER, "", label_of(load(section())), PLACE, {}, SUBNET, {})
    assert made["properties"]["osProfile"]["computerName"] == HOST
    (interface,) = made["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    assert interface["name"] == f"{HOST}-2-1-nic"


def test_plain() -> None:
    """AZ-4: one PUT makes everything, and all of it goes with the VM."""
    made = body()
    properties = made["properties"]
    assert (made["location"], made["tags"]) == ("northeurope", {"a": "b"})
    assert properties["hardwareProfile"] == {"vmSize": "Standard_B1s"}
    disk = properties["storageProfile"]["osDisk"]
    assert (disk["createOption"], disk["deleteOption"]) == ("FromImage", "Delete")
    assert "diskSizeGB" not in disk
    assert properties["storageProfile"]["imageReference"] == {"id": "image"}
    assert properties["osProfile"] == {
        "computerName": HOST,
        "adminUsername": "zuul",
        "linuxConfiguration": {
            "ssh": {"publicKeys": [{"path": "/home/zuul/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAA"}]},
            "disablePasswordAuthentication": True,
        },
    }
    assert not {"zones", "priority", "userData"} & (made.keys() | properties.keys())


def test_all_options() -> None:
    """AZ-4: user data and custom data in base64, size of the disk, password."""
    image = {
        "name": "debian",
        "username": "zuul",
        "password": "swordfish",
        "image-id": "/subscriptions/s/images/i",
    }
    label = {"user-data": "ü", "custom-data": "#cloud-config", "volume-size": 80}
    made = body(label, place=VmPlace("Standard_B1s", "2", True), cloud_images=[image])
    properties = made["properties"]
    assert base64.b64decode(properties["userData"]).decode() == "ü"
    assert base64.b64decode(properties["osProfile"]["customData"]) == b"#cloud-config"
    assert properties["storageProfile"]["osDisk"]["diskSizeGB"] == 80
    assert properties["osProfile"]["adminPassword"] == "swordfish"
    assert "linuxConfiguration" not in properties["osProfile"]
    assert made["zones"] == ["2"]
    assert (properties["priority"], properties["evictionPolicy"]) == ("Spot", "Delete")
    assert properties["billingProfile"] == {"maxPrice": -1}


def test_generated_password() -> None:
    """AZ-4: 64 letters and digits, another one each time."""
    image = {"name": "debian", "username": "zuul", "generate-password": True, "image-id": "/i"}
    password = body(cloud_images=[image])["properties"]["osProfile"]["adminPassword"]
    assert len(password) == 64
    assert set(password) <= set(string.ascii_letters + string.digits)
    assert password != generated_password()


@pytest.mark.parametrize(
    ("pool", "private", "public"),
    [
        ({}, ["IPv4"], ["IPv4"]),
        ({"public-ipv4": False}, ["IPv4"], []),
        ({"public-ipv4": False, "ipv6": True}, ["IPv6"], []),
        ({"public-ipv4": False, "public-ipv6": True}, ["IPv6"], ["IPv6"]),
        ({"ipv6": True}, ["IPv4", "IPv6"], ["IPv4"]),
        ({"public-ipv6": True}, ["IPv4", "IPv6"], ["IPv4", "IPv6"]),
    ],
)
def test_network(pool: dict[str, Any], private: list[str], public: list[str]) -> None:
    """AZ-5: one interface, a configuration for each family; public addresses are Standard and static; tags on all."""
    (interface,) = body(pool=pool)["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    assert (interface["name"], interface["tags"]) == (f"{HOST}-nic", {"a": "b"})
    assert interface["properties"]["deleteOption"] == "Delete"
    found = interface["properties"]["ipConfigurations"]
    assert [entry["properties"]["privateIPAddressVersion"] for entry in found] == private
    assert [entry["properties"]["primary"] for entry in found] == [True, False][: len(private)]
    assert all(entry["properties"]["subnet"] == {"id": SUBNET} for entry in found)
    addresses = [
        entry["properties"]["publicIPAddressConfiguration"]
        for entry in found
        if "publicIPAddressConfiguration" in entry["properties"]
    ]
    assert [address["properties"]["publicIPAddressVersion"] for address in addresses] == public
    for address in addresses:
        assert (address["sku"]["name"], address["properties"]["publicIPAllocationMethod"]) == ("Standard", "Static")
        assert (address["properties"]["deleteOption"], address["tags"]) == ("Delete", {"a": "b"})
    names = {f"{HOST}-{version}-config" for version in ("v4", "v6")}
    assert {entry["name"] for entry in found} <= names
    assert {address["name"] for address in addresses} <= {f"{HOST}-v4-ip", f"{HOST}-v6-ip"}


def test_tags(caplog: pytest.LogCaptureFixture) -> None:
    """CM-1, CM-2: label, dynamic, ours; a dynamic one that cannot be formatted is left out."""
    label = label_of(
        load(
            section(
                {
                    "tags": {"team": "ci", "year": 2026, "a<b": "x" * 300, "nodepool_node_id": "forged"},
                    "dynamic-tags": {"team": "{request.tenant_name}", "bad": "{request.nothing}"},
                }
            )
        )
    )
    request: Any = SimpleNamespace(tenant_name="tenant")
    assert vm_tags(label, METADATA, request, LOG) == {"team": "tenant", "year": "2026", "a_b": "x" * 256, **METADATA}
    assert "dynamic-tags: bad" in caplog.text
