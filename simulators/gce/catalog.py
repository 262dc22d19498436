# SPDX-License-Identifier: Apache-2.0
"""Machine types, types of disks and quotas of the simulated Google Cloud."""

from __future__ import annotations

from typing import Final, NamedTuple

from simulators.base.messages import Json
from simulators.gce.links import PROJECT, link, path_of, zone_scope

#: Metric of a family's cores where it has one of its own; the older families share one.
FAMILY_METRICS: Final = {
    "n2": "N2_CPUS",
    "n2d": "N2D_CPUS",
    "c2": "C2_CPUS",
    "c2d": "C2D_CPUS",
    "c3": "C3_CPUS",
    "t2d": "T2D_CPUS",
}
CPUS, PREEMPTIBLE_CPUS, CPUS_ALL_REGIONS = "CPUS", "PREEMPTIBLE_CPUS", "CPUS_ALL_REGIONS"
INSTANCES, ADDRESSES = "INSTANCES", "IN_USE_ADDRESSES"
DISKS_GB, SSD_GB, HYPERDISK_GB = "DISKS_TOTAL_GB", "SSD_TOTAL_GB", "HDB_TOTAL_GB"
#: Where the sizes of disks count, by their type.
DISK_METRICS: Final = {
    "pd-standard": DISKS_GB,
    "pd-balanced": SSD_GB,
    "pd-ssd": SSD_GB,
    "hyperdisk-balanced": HYPERDISK_GB,
}
#: Limits of a generous project.
REGION_QUOTAS: Final = {
    CPUS: 100000.0,
    **dict.fromkeys(FAMILY_METRICS.values(), 100000.0),
    PREEMPTIBLE_CPUS: 100000.0,
    INSTANCES: 100000.0,
    ADDRESSES: 100000.0,
    "STATIC_ADDRESSES": 1000.0,
    DISKS_GB: 10_000_000.0,
    SSD_GB: 10_000_000.0,
    HYPERDISK_GB: 10_000_000.0,
}
PROJECT_QUOTAS: Final = {CPUS_ALL_REGIONS: 100000.0, "IMAGES": 2000.0, "NETWORKS": 50.0}


class SimulatedMachineType(NamedTuple):
    """A machine type.

    :param zones: letters of the zones that have it.
    """

    name: str
    cpus: int
    memory_mb: int
    shared: bool = False
    zones: str = "abcdf"

    @property
    def metric(self) -> str:
        """The quota of its cores, unless it is a spot instance."""
        return FAMILY_METRICS.get(self.name.partition("-")[0], CPUS)

    def offered(self, zone: str) -> bool:
        return zone[-1] in self.zones

    def shown(self, zone: str) -> Json:
        """As machineTypes.get has it."""
        return {
            "kind": "compute#machineType",
            "id": str(800000 + self.cpus),
            "creationTimestamp": "1969-12-31T16:00:00.000-08:00",
            "name": self.name,
            "description": f"{self.cpus} vCPUs, {self.memory_mb / 1024:g} GB RAM",
            "guestCpus": self.cpus,
            "memoryMb": self.memory_mb,
            "imageSpaceGb": 0,
            "maximumPersistentDisks": 128,
            "maximumPersistentDisksSizeGb": "263168",
            "zone": zone,
            "selfLink": link(path_of(PROJECT, zone_scope(zone), "machineTypes", self.name)),
            "isSharedCpu": self.shared,
            "architecture": "X86_64",
        }


TYPES: Final = {
    entry.name: entry
    for entry in (
        SimulatedMachineType("f1-micro", 1, 614, shared=True),
        SimulatedMachineType("e2-micro", 2, 1024, shared=True),
        SimulatedMachineType("e2-small", 2, 2048, shared=True),
        SimulatedMachineType("e2-standard-2", 2, 8192),
        SimulatedMachineType("e2-standard-4", 4, 16384),
        SimulatedMachineType("n1-standard-1", 1, 3840),
        SimulatedMachineType("n1-standard-2", 2, 7680),
        SimulatedMachineType("n2-standard-2", 2, 8192),
        SimulatedMachineType("n2-standard-4", 4, 16384),
        SimulatedMachineType("n2d-standard-2", 2, 8192),
        SimulatedMachineType("c2-standard-4", 4, 16384, zones="abcd"),
    )
}


def quota(metric: str, limit: float, used: float) -> Json:
    """As regions and projects have it."""
    return {"metric": metric, "limit": float(limit), "usage": float(used)}
