# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.facts` (GC-7)."""

from __future__ import annotations

import pytest

from nodepool.driver.gce.facts import core_quotas, disk_quotas
from nodepool.driver.gce.types import MachineType

TOLD = {"CPUS", "N2_CPUS", "CPUS_ALL_REGIONS"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("n1-standard-2", {"CPUS", "CPUS_ALL_REGIONS"}),
        ("e2-micro", {"CPUS", "CPUS_ALL_REGIONS"}),
        ("custom-2-4096", {"CPUS", "CPUS_ALL_REGIONS"}),
        ("n2-custom-2-4096", {"N2_CPUS", "CPUS_ALL_REGIONS"}),
        ("c4-standard-2", {"CPUS_ALL_REGIONS"}),
    ],
)
def test_cores(name: str, expected: set[str]) -> None:
    """A series whose quota Google does not tell counts against that of all regions only."""
    machine = MachineType(name, 2, 4096)
    assert core_quotas(machine, False, TOLD) == dict.fromkeys(expected, 2)
    assert core_quotas(machine, True, TOLD) == dict.fromkeys(expected, 2)
    assert core_quotas(machine, True, TOLD | {"PREEMPTIBLE_CPUS"}) == {"PREEMPTIBLE_CPUS": 2}


def test_disks() -> None:
    assert disk_quotas("pd-standard", 10) == {"DISKS_TOTAL_GB": 10}
    assert disk_quotas("pd-ssd", 10) == disk_quotas("pd-balanced", 10) == {"SSD_TOTAL_GB": 10}
    assert disk_quotas("hyperdisk-balanced", 10) == {"HDB_TOTAL_GB": 10}
    assert disk_quotas("something-new", 10) == {}
