# SPDX-License-Identifier: Apache-2.0
"""When the addresses of VMs are asked for (rules AZ-7, O-8): with a client that answers what the test says."""

from __future__ import annotations

from collections import Counter

import pytest

from nodepool.driver.azure import machines as module
from nodepool.driver.azure.machines import AzureMachines
from nodepool.driver.azure.types import (
    CREATING,
    DELETING,
    FAILED,
    SUCCEEDED,
    Addresses,
    Interface,
    PrivateAddress,
    PublicAddress,
    VmRecord,
)
from nodepool.driver.framework.cloud_errors import CloudNotFound
from tests.unit.driver.azure.support import METADATA, Here


class Cloud:
    """The answers, and how often each was asked for."""

    def __init__(self, machines: AzureMachines, monkeypatch: pytest.MonkeyPatch) -> None:
        self._machines = machines
        self.now = 1000.0
        self.states: dict[str, str] = {}
        #: VMs of somebody else.
        self.others: set[str] = set()
        #: VMs whose interface is not there yet; whose public address has no value yet.
        self.bare: set[str] = set()
        self.unassigned: set[str] = set()
        self.asked: Counter[str] = Counter()
        for name in ("vms", "interfaces", "addresses", "interface", "address"):
            monkeypatch.setattr(machines.client, name, getattr(self, name))
        monkeypatch.setattr(module, "monotonic", lambda: self.now)

    def listed(self, **states: str) -> dict[str, str | None]:
        """What a list says of the public addresses, some seconds after the one before.

        :param states: of VMs that are new or changed, by name.
        """
        self.states |= states
        self.now += 5
        return {record.id: record.addresses.public_ipv4 for record in self._machines.list_instances(None)}

    def vms(self) -> list[VmRecord]:
        return [
            VmRecord(
                name,
                status,
                {} if name in self.others else METADATA,
                "Standard_B1s",
                "northeurope",
                "",
                False,
                f"id-{name}",
                f"/nics/{name}",
            )
            for name, status in self.states.items()
        ]

    def interfaces(self) -> list[Interface]:
        self.asked["interfaces"] += 1
        return [self._interface(name) for name in self.states if name not in self.bare]

    def interface(self, name: str) -> Interface:
        self.asked["interface"] += 1
        if name in self.bare:
            raise CloudNotFound("no such interface")
        return self._interface(name)

    def _interface(self, name: str) -> Interface:
        private = PrivateAddress(False, "10.0.0.4", f"/ips/{name}")
        return Interface(f"/nics/{name}", name, METADATA, True, (private,))

    def addresses(self) -> list[PublicAddress]:
        self.asked["addresses"] += 1
        return [self._address(name) for name in self.states]

    def address(self, name: str) -> PublicAddress:
        self.asked["address"] += 1
        return self._address(name)

    def _address(self, name: str) -> PublicAddress:
        return PublicAddress(f"/ips/{name}", name, METADATA, True, None if name in self.unassigned else f"ip-{name}")


@pytest.fixture
def cloud(here: Here, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    return Cloud(here.adapter.machines, monkeypatch)


def test_those_that_are_about_to_be_ready(cloud: Cloud) -> None:
    """AZ-7: interfaces are made before VMs are ready: one list of them serves all that are being made."""
    assert cloud.listed(a=CREATING, b=CREATING, c=CREATING) == {"a": None, "b": None, "c": None}
    assert not cloud.asked
    assert cloud.listed(a=SUCCEEDED) == {"a": "ip-a", "b": None, "c": None}
    assert cloud.listed(b=SUCCEEDED) == {"a": "ip-a", "b": "ip-b", "c": None}
    assert cloud.listed(c=SUCCEEDED) == {"a": "ip-a", "b": "ip-b", "c": "ip-c"}
    assert cloud.asked == {"interfaces": 1, "addresses": 1}


def test_addresses_that_are_not_there_yet(cloud: Cloud) -> None:
    """AZ-7: they are looked up again when the VM is ready."""
    cloud.bare, cloud.unassigned = {"b"}, {"c"}
    assert cloud.listed(a=SUCCEEDED, b=CREATING, c=CREATING) == {"a": "ip-a", "b": None, "c": None}
    cloud.bare, cloud.unassigned = set(), set()
    assert cloud.listed(b=SUCCEEDED, c=SUCCEEDED) == {"a": "ip-a", "b": "ip-b", "c": "ip-c"}
    assert cloud.asked == {"interfaces": 2, "addresses": 2}


@pytest.mark.parametrize("second", [None, CREATING])
def test_few_are_asked_for_one_by_one(cloud: Cloud, second: str | None) -> None:
    """O-8: a list of all interfaces of the resource group costs more."""
    if second is not None:
        cloud.states["b"] = second
    assert cloud.listed(a=SUCCEEDED)["a"] == "ip-a"
    assert cloud.asked == {"interface": 1, "address": 1}


def test_what_is_of_no_interest(cloud: Cloud) -> None:
    """AZ-7: nobody asks for the addresses of others, nor of what fails or goes."""
    cloud.others = {"x"}
    assert cloud.listed(x=SUCCEEDED, f=FAILED, d=DELETING) == {"x": None, "f": None, "d": None}
    assert not cloud.asked


def test_lists_of_interfaces_are_rare(cloud: Cloud) -> None:
    """O-8: while more VMs are being made there is one a second at most."""
    cloud.bare = {"b", "c", "d"}
    cloud.listed(a=SUCCEEDED, b=CREATING, c=CREATING, d=CREATING)
    cloud.now -= 4.5
    assert cloud.listed(b=SUCCEEDED)["b"] is None
    cloud.now -= 4.5
    cloud.bare = set()
    assert cloud.listed(c=SUCCEEDED) == {"a": "ip-a", "b": "ip-b", "c": "ip-c", "d": None}
    assert cloud.asked["interfaces"] == 2


def test_a_vm_that_is_ready_when_it_is_looked_at(cloud: Cloud, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-8: a look at one VM asks for its own addresses, once; while it is being made it asks for none."""
    state = CREATING
    record = VmRecord("a", CREATING, METADATA, "", "", "", False, "id-a", "/nics/a")
    monkeypatch.setattr(here.adapter.machines.client, "vm", lambda name: record._replace(status=state))
    look = here.adapter.machines.look_at
    assert look("a").addresses == Addresses()
    assert not cloud.asked
    state = SUCCEEDED
    assert look("a").addresses.public_ipv4 == look("a").addresses.public_ipv4 == "ip-a"
    assert cloud.asked == {"interface": 1, "address": 1}
