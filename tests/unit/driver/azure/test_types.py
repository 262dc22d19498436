# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.types` and ``instance`` (AZ-7, AZ-8)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.azure.machines import AzureInstance
from nodepool.driver.azure.types import (
    Addresses,
    Interface,
    PublicAddress,
    Usage,
    VmRecord,
    VmSize,
    addresses_of,
    by_id,
)
from nodepool.model.quota import QuotaInformation

VM: dict[str, Any] = {
    "name": "NP42",
    "location": "northeurope",
    "zones": ["2"],
    "tags": {"Nodepool_Node_Id": "42", "Team": "ci"},
    "properties": {
        "provisioningState": "Succeeded",
        "vmId": "guid",
        "priority": "Spot",
        "hardwareProfile": {"vmSize": "Standard_B1s"},
        "networkProfile": {"networkInterfaces": [{"id": "/A/NIC"}, {"id": "/A/SECOND"}]},
    },
}


def configuration(address: str | None, public: str | None = None, version: str = "IPv4") -> dict[str, Any]:
    properties: dict[str, Any] = {"privateIPAddressVersion": version}
    if address:
        properties["privateIPAddress"] = address
    if public:
        properties["publicIPAddress"] = {"id": public}
    return {"name": "x", "properties": properties}


def interface(*configurations: dict[str, Any]) -> Interface:
    return Interface.of({"id": "/A/nic", "name": "nic", "properties": {"ipConfigurations": list(configurations)}})


def public(name: str, address: str | None) -> PublicAddress:
    return PublicAddress.of({"id": f"/A/{name}", "name": name, "properties": {"ipAddress": address} if address else {}})


def test_vm() -> None:
    """AZ-7: names, ids and the names of tags are compared without case."""
    record = VmRecord.of(VM)
    assert record == VmRecord(
        "np42",
        "Succeeded",
        {"nodepool_node_id": "42", "Team": "ci"},
        "Standard_B1s",
        "northeurope",
        "2",
        True,
        "guid",
        "/a/nic",
    )
    assert not record.gone


def test_vm_that_says_little() -> None:
    record = VmRecord.of({"name": "np1"})
    assert (record.status, record.metadata, record.zone, record.interface_id) == ("", {}, "", "")


@pytest.mark.parametrize(
    ("configurations", "addresses", "found"),
    [
        ([], [], None),
        ([configuration(None)], [], None),
        ([configuration("10.0.0.4")], [], Addresses(private_ipv4="10.0.0.4")),
        ([configuration("10.0.0.4", "/a/IP")], [], None),
        ([configuration("10.0.0.4", "/a/IP")], [("ip", None)], None),
        ([configuration("10.0.0.4", "/a/IP")], [("ip", "198.18.0.4")], Addresses("198.18.0.4", None, "10.0.0.4", None)),
        (
            [configuration("10.0.0.4"), configuration("fd00::4", "/a/six", "IPv6")],
            [("six", "2001:db8::4")],
            Addresses(None, "2001:db8::4", "10.0.0.4", "fd00::4"),
        ),
        ([configuration("10.0.0.4"), configuration(None, None, "IPv6")], [], None),
    ],
)
def test_addresses(
    configurations: list[dict[str, Any]], addresses: list[tuple[str, str | None]], found: Addresses | None
) -> None:
    """AZ-7: each configuration has a private address, and each public address is there."""
    known = by_id(public(name, address) for name, address in addresses)
    assert addresses_of(interface(*configurations), known) == found


def test_instance() -> None:
    """AZ-8, CM-3: cloud, region, zone; the address that Zuul uses is the first of public v4, public v6, private."""
    used = QuotaInformation(instances=1)
    record = VmRecord.of(VM)._replace(addresses=Addresses("198.18.0.4", "2001:db8::4", "10.0.0.4", "fd00::4"))
    instance = AzureInstance(record, used)
    assert (instance.cloud, instance.region, instance.az) == ("Azure", "northeurope", "2")
    assert (instance.interface_ip, instance.external_id, instance.ready) == ("198.18.0.4", "np42", True)
    assert (instance.host_id, instance.slot, instance.driver_data, instance.node_properties) == (None, None, None, {})
    assert instance.getQuotaInformation() is used
    order = [
        AzureInstance(record._replace(addresses=addresses), used).interface_ip
        for addresses in (
            Addresses(None, "2001:db8::4", "10.0.0.4", "fd00::4"),
            Addresses(None, None, "10.0.0.4", "fd00::4"),
            Addresses(None, None, None, "fd00::4"),
        )
    ]
    assert order == ["2001:db8::4", "10.0.0.4", "fd00::4"]
    assert AzureInstance(VmRecord.of({"name": "np1"}), used).az == ""


def test_size() -> None:
    """AZ-9."""
    data = {
        "name": "Standard_B1s",
        "family": "standardBSFamily",
        "locationInfo": [{"location": "NorthEurope", "zones": ["1", "3"]}],
        "capabilities": [{"name": "vCPUs", "value": "1"}, {"name": "MemoryGB", "value": "0.5"}],
        "restrictions": [{"type": "Location", "reasonCode": "NotAvailableForSubscription"}],
    }
    assert VmSize.of(data, "northeurope") == VmSize(
        "Standard_B1s", "standardBSFamily", 1, 512, ("1", "3"), "NotAvailableForSubscription"
    )
    assert VmSize.of({"name": "X"}, "northeurope") == VmSize("X", "", 0, 0, (), "")


def test_usage() -> None:
    data = {"name": {"value": "cores", "localizedValue": "Total"}, "limit": 10, "currentValue": 4}
    assert Usage.of(data) == Usage("cores", 10, 4)


def test_why_a_vm_failed() -> None:
    """AZ-7: in its states."""
    view = {
        "statuses": [
            {"code": "ProvisioningState/failed/AllocationFailed", "message": "none"},
            {"code": "PowerState/running"},
            {"code": "ProvisioningState/failed"},
        ]
    }
    assert VmRecord.failures_in(view) == [("AllocationFailed", "none")]
    assert VmRecord.failures_in({}) == []
