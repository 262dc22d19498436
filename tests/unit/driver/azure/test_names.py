# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.names`."""

from __future__ import annotations

from nodepool.driver.azure.names import disk_metadata, disk_name
from nodepool.driver.statemachine.metadata import node_id_of


def test_disks_say_whose_they_are() -> None:
    """AZ-11: Azure does not give a disk the tags of its VM."""
    for name in ("np0000000042", "np0000000042-3", "np0000000042-1-2"):
        disk = disk_name(name, "north")
        assert node_id_of(disk_metadata(disk.upper(), "north"), "north") == "0000000042"
        assert disk_metadata(disk, "south") == {}
    assert disk_metadata("np0000000042-os", "north") == {}
    assert disk_metadata("somebody-elses", "north") == {}
