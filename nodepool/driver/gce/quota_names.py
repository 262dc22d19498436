# SPDX-License-Identifier: Apache-2.0
"""Which quotas of Google an instance counts against, by their names (``metric``). Pure.

https://cloud.google.com/compute/resource-usage has them. Newer series have quotas that the API does not tell; what
Google then refuses waits all the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nodepool.driver.gce.types import MachineType

INSTANCES: Final = "INSTANCES"
ADDRESSES: Final = "IN_USE_ADDRESSES"
#: Of the series that have no quota of their own: E2, N1 and those with shared cores.
CPUS: Final = "CPUS"
#: Of the whole project.
CPUS_ALL_REGIONS: Final = "CPUS_ALL_REGIONS"
#: Spot instances count against it where it is more than 0, else as standard ones do.
PREEMPTIBLE_CPUS: Final = "PREEMPTIBLE_CPUS"
OLD_SERIES: Final = frozenset({"custom", "e2", "f1", "g1", "n1"})
#: Type of a disk -> quota of its size.
_DISKS: Final = {
    "pd-standard": "DISKS_TOTAL_GB",
    "pd-balanced": "SSD_TOTAL_GB",
    "pd-ssd": "SSD_TOTAL_GB",
    "pd-extreme": "SSD_TOTAL_GB",
    "hyperdisk-balanced": "HDB_TOTAL_GB",
}


def core_quotas(machine: MachineType, spot: bool, told: Collection[str]) -> dict[str, float]:
    """Quotas of the cores of an instance.

    :param told: quotas that Google tells, and that are more than 0.
    """
    if spot and PREEMPTIBLE_CPUS in told:
        return {PREEMPTIBLE_CPUS: machine.cores}
    family = CPUS if machine.series in OLD_SERIES else f"{machine.series.upper()}_CPUS"
    return {name: machine.cores for name in (family, CPUS_ALL_REGIONS) if name in told}


def disk_quotas(kind: str, size_gib: int) -> dict[str, float]:
    """Quotas of a disk."""
    name = _DISKS.get(kind.lower())
    return {name: size_gib} if name else {}
