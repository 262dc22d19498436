# SPDX-License-Identifier: Apache-2.0
"""Sizes of VMs and the quota that they count against, as the location has them."""

from __future__ import annotations

from typing import Final, NamedTuple

from simulators.base.messages import Json


class SimulatedSize(NamedTuple):
    """A size of VMs."""

    name: str
    family: str
    cores: int
    ram_gib: float
    zones: tuple[str, ...] = ("1", "2", "3")

    def shown(self, location: str) -> Json:
        """As Resource SKUs has it."""
        capabilities = {"vCPUs": self.cores, "MemoryGB": f"{self.ram_gib:g}", "HyperVGenerations": "V1,V2"}
        return {
            "resourceType": "virtualMachines",
            "name": self.name,
            "tier": "Standard",
            "size": self.name.removeprefix("Standard_"),
            "family": self.family,
            "locations": [location],
            "locationInfo": [{"location": location, "zones": list(self.zones), "zoneDetails": []}],
            "capabilities": [{"name": name, "value": str(value)} for name, value in capabilities.items()],
            "restrictions": [],
        }


SIZES: Final = {
    size.name.lower(): size
    for size in (
        SimulatedSize("Standard_B1s", "standardBSFamily", 1, 1),
        SimulatedSize("Standard_B2ms", "standardBSFamily", 2, 8),
        SimulatedSize("Standard_D2s_v5", "standardDSv5Family", 2, 8),
        SimulatedSize("Standard_D4s_v5", "standardDSv5Family", 4, 16),
        SimulatedSize("Standard_D2as_v5", "standardDASv5Family", 2, 8),
        SimulatedSize("Standard_F2s_v2", "standardFSv2Family", 2, 4, ("1", "2")),
    )
}
#: Something that is no VM, as the list has it, too.
DISK_SKU: Final[Json] = {
    "resourceType": "disks",
    "name": "Premium_LRS",
    "tier": "Premium",
    "size": "P10",
    "locations": ["northeurope"],
    "locationInfo": [{"location": "northeurope", "zones": ["1", "2", "3"], "zoneDetails": []}],
    "capabilities": [],
    "restrictions": [],
}

CORES, SPOT_CORES, MACHINES, ADDRESSES = "cores", "lowPriorityCores", "virtualMachines", "StandardSkuPublicIPAddresses"
#: Limits of a generous subscription, by provider.
COMPUTE_USAGES: Final = {
    MACHINES: 25000,
    CORES: 100000,
    SPOT_CORES: 100000,
    **{size.family: 100000 for size in SIZES.values()},
}
NETWORK_USAGES: Final = {ADDRESSES: 10000, "NetworkInterfaces": 65536}
TITLES: Final = {
    CORES: "Total Regional vCPUs",
    SPOT_CORES: "Total Regional Low-priority vCPUs",
    MACHINES: "Virtual Machines",
}


def usage(name: str, limit: int, used: int) -> Json:
    """As a list of usages has it."""
    return {
        "unit": "Count",
        "currentValue": used,
        "limit": limit,
        "name": {"value": name, "localizedValue": TITLES.get(name, name)},
    }
