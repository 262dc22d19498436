# SPDX-License-Identifier: Apache-2.0
"""The whole simulated subscription: what is in it at the beginning, and things that nobody knows of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from simulators.azure.machines import ADDRESSES, DISKS, NICS, VMS, SimulatedMachines
from simulators.azure.operations import LongOperations
from simulators.azure.resources import LOCATION, ArmResource, ResourceTable, resource_id
from simulators.azure.settings import AzureSettings
from simulators.azure.vm_spec import read_vm_spec
from simulators.base.addresses import AddressPool
from simulators.base.core import SimulationCore
from simulators.base.messages import ApiError, Json

NETWORK, SUBNET, IMAGE = "ci", "default", "debian-12"


class AzureCore(SimulationCore[AzureSettings]):
    """Times as Azure writes them."""

    def stamp(self) -> str:
        text = datetime.fromtimestamp(self.now(), UTC).isoformat()
        return self.turn("time", text, text.replace("+00:00", "0+00:00"), f"{text[:19]}Z")


class Subscription:
    """A resource group with the network ``ci``, its subnet ``default`` and the image ``debian-12`` to begin with.

    Other threads than the server's hold ``core.lock`` for each look and each change, and call ``core.run_due()`` first.
    """

    def __init__(
        self, settings: AzureSettings | None = None, seed: int = 0, clock: Callable[[], float] | None = None
    ) -> None:
        self.core = AzureCore(settings or AzureSettings(), seed, clock)
        self.resources = ResourceTable()
        self.operations = LongOperations(self.core.stamp)
        self.machines = SimulatedMachines(self)
        self.publishers = {"Debian", "Canonical"}
        self.subnet_id = f"{resource_id('virtualNetworks', NETWORK)}/subnets/{SUBNET}"
        #: By id in lower case: their names.
        self.subnets = {self.subnet_id.lower(): SUBNET}
        #: Deleted VMs that lists still show.
        self.ghosts: list[ArmResource] = []
        self._private = {"IPv4": AddressPool("10.0.0.0/16"), "IPv6": AddressPool("fd00:db8::/112")}
        # Loopback: an sshd of a test answers there.
        self._public = {"IPv4": AddressPool("127.64.0.0/10"), "IPv6": AddressPool("2001:db8::/112")}
        self.add_image(IMAGE)

    # -- what belongs to VMs --

    def take_address(self, version: str) -> str:
        address = self._private[version].take()
        if address is None:
            raise ApiError(400, f"Subnet {SUBNET} does not have enough capacity for 1 IP addresses.", "SubnetIsFull")
        return address

    def take_public_address(self, version: str) -> str:
        address = self._public[version].take()
        if address is None:
            raise ApiError(400, "Cannot create more public IP addresses.", "PublicIPCountLimitReached")
        return address

    def remove_interface(self, nic: ArmResource, with_addresses: bool) -> None:
        """The interface is gone; its public addresses are used by nobody then, or gone, too."""
        self.resources.remove(nic)
        for configuration in nic.properties["ipConfigurations"]:
            properties = configuration["properties"]
            self._private[properties["privateIPAddressVersion"]].give_back(properties["privateIPAddress"])
            address = self.resources.by_id((properties.get("publicIPAddress") or {}).get("id", ""))
            if address is not None:
                self.clear(address.properties, "ipConfiguration")
                if with_addresses:
                    self.remove_address(address)

    def clear(self, properties: Json, name: str) -> None:
        """It has no value any more: it is not there, or null."""
        properties.pop(name, None)
        if self.core.turn("null", False, True):
            properties[name] = None

    def remove_address(self, address: ArmResource) -> None:
        self.resources.remove(address)
        version = address.properties["publicIPAddressVersion"]
        self._public[version].give_back(address.properties["ipAddress"])

    # -- things that no client made --

    def add_vm(self, name: str, tags: dict[str, str] | None = None, size: str = "Standard_B1s") -> ArmResource:
        """A VM; it boots like any other. Quotas apply.

        :raises ApiError: there is no room.
        """
        body: Json = {
            "location": LOCATION,
            "tags": dict(tags or {}),
            "properties": {
                "hardwareProfile": {"vmSize": size},
                "storageProfile": {
                    "imageReference": {"id": resource_id("images", IMAGE)},
                    "osDisk": {"createOption": "FromImage", "deleteOption": "Delete"},
                },
                "osProfile": {"computerName": name, "adminUsername": "root", "adminPassword": "x"},
                "networkProfile": {
                    "networkApiVersion": "2025-05-01",
                    "networkInterfaceConfigurations": [
                        {
                            "name": f"{name}-nic",
                            "properties": {
                                "ipConfigurations": [
                                    {"name": "v4", "properties": {"primary": True, "subnet": {"id": self.subnet_id}}}
                                ]
                            },
                        }
                    ],
                },
            },
        }
        return self.machines.create(read_vm_spec(self, name, body))[0]

    def add_disk(self, name: str, tags: dict[str, str] | None = None) -> ArmResource:
        """A disk that no VM has."""
        return self.resources.add(DISKS, name, {"provisioningState": "Succeeded", "diskState": "Unattached"}, tags)

    def add_image(self, name: str, tags: dict[str, str] | None = None) -> ArmResource:
        """An image of the resource group."""
        return self.resources.add("images", name, {"provisioningState": "Succeeded"}, tags)

    def contents(self) -> dict[str, int]:
        """How many of each are there."""
        names = {"vms": VMS, "nics": NICS, "addresses": ADDRESSES, "disks": DISKS, "images": "images"}
        return {name: self.resources.count(kind) for name, kind in names.items()}
