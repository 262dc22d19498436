# SPDX-License-Identifier: Apache-2.0
"""What Azure says, as small values: only what the driver uses.

Ids and names are compared without case: Azure changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from nodepool.driver.azure.errors import AzureError

CREATING: Final = "Creating"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
CANCELED: Final = "Canceled"
DELETING: Final = "Deleting"


def properties_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return data.get("properties") or {}


def state_of(data: Mapping[str, Any]) -> str:
    """``provisioningState``, in the form of `SUCCEEDED`: clients are to compare it without case, as azure-core does."""
    return str(properties_of(data).get("provisioningState") or "").capitalize()


def _name(data: Mapping[str, Any]) -> str:
    """Of a resource; an answer may have its id alone."""
    return str(data.get("name") or data["id"].rpartition("/")[2])


def plain_location(text: str) -> str:
    """A location as ids have it: ``North Europe`` is ``northeurope``. Azure accepts and gives both."""
    return text.replace(" ", "").lower()


def tags_of(data: Mapping[str, Any]) -> dict[str, str]:
    """The tags of anything. Their names ignore case for Azure, which keeps that of the first who set one."""
    return {
        (name.lower() if name.lower().startswith("nodepool_") else name): str(value)
        for name, value in (data.get("tags") or {}).items()
    }


def name_of(resource_id: str | None) -> str:
    """The last part of an id, in lower case."""
    return (resource_id or "").rpartition("/")[2].lower()


class Addresses(NamedTuple):
    """Of one VM."""

    public_ipv4: str | None = None
    public_ipv6: str | None = None
    private_ipv4: str | None = None
    private_ipv6: str | None = None


class VmRecord(NamedTuple):
    """A VM as a list shows it: a record of the inventory (AZ-7)."""

    #: Its name, in lower case: the one thing that is known before it is made.
    id: str
    status: str
    metadata: Mapping[str, str]
    size: str
    location: str
    zone: str
    spot: bool
    #: Changes when a VM of the same name is made anew.
    vm_id: str
    #: Id of the first network interface, in lower case.
    interface_id: str
    addresses: Addresses = Addresses()
    #: Azure does not list what changed.
    updated: str = ""

    @property
    def gone(self) -> bool:
        """What is gone is in no list."""
        return False

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> VmRecord:
        properties = properties_of(data)
        interfaces = (properties.get("networkProfile") or {}).get("networkInterfaces") or ()
        return cls(
            id=_name(data).lower(),
            status=state_of(data),
            metadata=tags_of(data),
            size=(properties.get("hardwareProfile") or {}).get("vmSize") or "",
            location=data.get("location") or "",
            zone=next(iter(data.get("zones") or ()), ""),
            spot=properties.get("priority") in ("Spot", "SpotPlus", "Low"),
            vm_id=properties.get("vmId") or "",
            interface_id=next(((entry.get("id") or "").lower() for entry in interfaces), ""),
        )

    @staticmethod
    def failures_in(instance_view: Mapping[str, Any]) -> list[AzureError]:
        """What the states of a VM say of its failure: codes such as ``ProvisioningState/failed/AllocationFailed``."""
        found = []
        for status in instance_view.get("statuses") or ():
            what, _, code = str(status.get("code") or "").rpartition("/")
            if what.lower() == "provisioningstate/failed":
                found.append(AzureError(code, status.get("message") or ""))
        return found


class PrivateAddress(NamedTuple):
    """One configuration of a network interface."""

    ipv6: bool
    address: str | None
    #: Id of its public address, in lower case.
    public_id: str


class Interface(NamedTuple):
    """A network interface."""

    id: str
    name: str
    metadata: Mapping[str, str]
    #: A VM has it.
    used: bool
    configurations: tuple[PrivateAddress, ...]

    @property
    def public_ids(self) -> list[str]:
        """Ids of its public addresses."""
        return [configuration.public_id for configuration in self.configurations if configuration.public_id]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Interface:
        properties = properties_of(data)
        found = []
        for configuration in properties.get("ipConfigurations") or ():
            inner = properties_of(configuration)
            found.append(
                PrivateAddress(
                    ipv6=str(inner.get("privateIPAddressVersion")).lower() == "ipv6",
                    address=inner.get("privateIPAddress") or None,
                    public_id=((inner.get("publicIPAddress") or {}).get("id") or "").lower(),
                )
            )
        return cls(data["id"].lower(), _name(data), tags_of(data), bool(properties.get("virtualMachine")), tuple(found))


class PublicAddress(NamedTuple):
    """A public address."""

    id: str
    name: str
    metadata: Mapping[str, str]
    #: A network interface has it.
    used: bool
    address: str | None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> PublicAddress:
        properties = properties_of(data)
        used = bool(properties.get("ipConfiguration"))
        return cls(data["id"].lower(), _name(data), tags_of(data), used, properties.get("ipAddress") or None)


def addresses_of(interface: Interface, public: Mapping[str, PublicAddress]) -> Addresses | None:
    """The addresses of an interface; None = some of them are not there yet (AZ-7).

    :param public: by id.
    """
    found: dict[str, str] = {}
    for configuration in interface.configurations:
        family = "ipv6" if configuration.ipv6 else "ipv4"
        if configuration.address is None:
            return None
        found[f"private_{family}"] = configuration.address
        if configuration.public_id:
            address = public.get(configuration.public_id)
            if address is None or address.address is None:
                return None
            found[f"public_{family}"] = address.address
    return Addresses(**found) if found else None


class VmSize(NamedTuple):
    """A size of VMs in the location."""

    name: str
    #: Name of the quota of its cores.
    family: str
    cores: int
    ram_mib: int
    #: Those that the subscription may use.
    zones: tuple[str, ...]
    #: Why the subscription may not use it in the location; "" = it may.
    restricted: str

    @classmethod
    def of(cls, data: Mapping[str, Any], location: str) -> VmSize:
        capabilities = {entry.get("name"): entry.get("value") for entry in data.get("capabilities") or ()}
        where = plain_location(location)
        here = (info for info in data.get("locationInfo") or () if plain_location(info.get("location") or "") == where)
        restrictions = data.get("restrictions") or ()
        whole = (entry for entry in restrictions if entry.get("type") == "Location")
        closed = {
            zone
            for entry in restrictions
            if entry.get("type") == "Zone"
            for zone in (entry.get("restrictionInfo") or {}).get("zones") or ()
        }
        return cls(
            name=data["name"],
            family=data.get("family") or "",
            cores=int(capabilities.get("vCPUs") or 0),
            ram_mib=int(float(capabilities.get("MemoryGB") or 0) * 1024),
            zones=tuple(zone for zone in (next(here, None) or {}).get("zones") or () if zone not in closed),
            restricted=next((entry.get("reasonCode") or "restricted" for entry in whole), ""),
        )


class Usage(NamedTuple):
    """A quota of the subscription in the location."""

    name: str
    limit: float
    used: float

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Usage:
        name = str((data.get("name") or {}).get("value") or "")
        return cls(name, float(data["limit"]), float(data.get("currentValue") or 0))


class AzureImage(NamedTuple):
    """An image of the resource group."""

    id: str
    name: str
    status: str
    location: str
    metadata: Mapping[str, str]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AzureImage:
        return cls(
            id=data["id"],
            name=_name(data),
            status=state_of(data),
            location=data.get("location") or "",
            metadata=tags_of(data),
        )


class AzureDisk(NamedTuple):
    """A disk of the resource group."""

    name: str
    metadata: Mapping[str, str]
    #: A VM has it.
    used: bool

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AzureDisk:
        return cls(_name(data), tags_of(data), bool(data.get("managedBy")))


def by_id(found: Iterable[PublicAddress]) -> dict[str, PublicAddress]:
    return {address.id: address for address in found}
