# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.machines`."""

from __future__ import annotations

from nodepool.driver.azure.machines import disk_metadata, disk_name
from nodepool.driver.statemachine.instance import know_installation, node_id_of


def test_disks_say_whose_they_are() -> None:
    """AZ-11: Azure does not give a disk the tags of its VM."""
    for name in ("np0000000042", "np0000000042-3", "np0000000042-1-2"):
        disk = disk_name(name, "north")
        assert node_id_of(disk_metadata(disk.upper(), "north"), "north") == "0000000042"
        assert disk_metadata(disk, "south") == {}
    assert disk_metadata("np0000000042-os", "north") == {}
    assert disk_metadata("somebody-elses", "north") == {}


def test_disks_of_another_installation() -> None:
    """D-10: its name has a mark of the installation; those of earlier releases, and of an adopted one, are ours."""
    unmarked = disk_name("np0000000042", "north")
    for installations in (("0" * 16,), ("1" * 16, "0" * 16)):
        know_installation(installations)
        disk = disk_name("np0000000042", "north")
        assert node_id_of(disk_metadata(disk, "north"), "north") == "0000000042"
        assert node_id_of(disk_metadata(unmarked, "north"), "north") == "0000000042"
    know_installation(("2" * 16,))
    assert disk_metadata(disk, "north") == {}
    know_installation(("2" * 16, "1" * 16))
    assert node_id_of(disk_metadata(disk, "north"), "north") == "0000000042"
