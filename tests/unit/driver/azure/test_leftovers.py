# SPDX-License-Identifier: Apache-2.0
"""Deletions in a simulated subscription, and what is left over there."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.driver.framework.cloud_errors import (
    CloudRefused,
)
from nodepool.driver.statemachine.metadata import node_id_of
from nodepool.exceptions import LaunchStatusException
from nodepool.testing.azure import ArmErrorRule, VmBootRule, VmDeleteRule
from tests.unit.driver.azure.support import METADATA, PROVIDER, Here, at_simulator, section
from tests.unit.driver.simulated_adapter import HOST, NODE


def leftovers(here: Here) -> dict[str, list[str]]:
    """Resources without a VM, by type: node ids."""
    found: dict[str, list[str]] = {}
    for resource in here.adapter.listResources():
        if resource.type == "image":
            continue
        found.setdefault(resource.type, []).append(node_id_of(resource.metadata, PROVIDER) or "")
    return found


def test_delete_what_is_not_there(here: Here) -> None:
    """AZ-11: success."""
    here.delete(HOST)
    here.delete(None)
    here.delete({"odd": 1})
    assert here.calls("virtualMachines.delete") == 1


def test_deletion_without_effect(here: Here) -> None:
    """AZ-11, CM-7: it is sent again."""
    here.simulator.change(deletes=[VmDeleteRule(count=1)])
    here.launch()
    here.delete(HOST)
    assert here.contents() == {}
    assert here.calls("virtualMachines.delete") == 2


def test_ghost_in_lists(tmp_path: Path) -> None:
    """CM-7 (not repeated): a deleted VM may still be in lists."""
    with at_simulator(tmp_path, section(), ghost_rate=1.0) as here:
        here.launch()
        here.delete(HOST)
        assert here.contents() == {}


def test_leftovers_of_a_failed_vm(here: Here) -> None:
    """AZ-11 (today): interface, address and disk are found by tags and name, and deleted when Azure lets them go."""
    here.simulator.change(boots=[VmBootRule(count=1)], nic_reserved_seconds=3600)
    with pytest.raises(LaunchStatusException):
        here.launch()
    here.delete(HOST)
    # The address belongs to the interface as long as there is one.
    assert leftovers(here) == {"nic": [NODE], "disk": [NODE]}
    for resource in here.adapter.listResources():
        if resource.type == "image":
            continue
        if resource.type == "disk":
            here.adapter.deleteResource(resource)
        else:
            with pytest.raises(CloudRefused, match="NicReservedForAnotherVm"):
                here.adapter.deleteResource(resource)
    with here.simulator.cloud() as cloud:
        next(cloud.resources.of("networkInterfaces")).reserved_until = 0.0
    for _ in range(2):
        for resource in here.adapter.listResources():
            if resource.type != "image":
                here.adapter.deleteResource(resource)
    assert here.contents() == {}


def test_things_of_others(here: Here) -> None:
    """AZ-11: they are told of with what they say, and what says nothing is nobody's."""
    with here.simulator.cloud() as cloud:
        cloud.add_vm("web")
        cloud.add_disk("data", {"team": "web"})
        cloud.add_disk("np0000000042-os-0123456789ab")
    found = [(resource.type, node_id_of(resource.metadata, PROVIDER)) for resource in here.adapter.listResources()]
    assert sorted(found, key=str) == [("disk", None), ("disk", None), ("image", None), ("instance", None)]


@pytest.mark.parametrize("refused", ["networkInterfaces.list", "images.list"])
def test_leftovers_that_cannot_be_listed(here: Here, refused: str, caplog: pytest.LogCaptureFixture) -> None:
    """AZ-11: the others are found all the same."""
    with here.simulator.cloud() as cloud:
        cloud.add_disk("data", METADATA)
    here.simulator.change(errors=[ArmErrorRule(operation=refused, kind="403")])
    for _ in range(2):
        assert leftovers(here) == {"disk": [NODE]}
    assert caplog.text.count("cannot be listed") == 1
