# SPDX-License-Identifier: Apache-2.0
"""What doc/source/drivers/azure says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodepool.driver.azure.config import MIB, fixed_footer
from nodepool.driver.azure.errors import CAPACITY, LOGIN, QUOTA, THROTTLED
from nodepool.exceptions import LaunchStatusException
from simulators.azure import ArmErrorRule, VmBootRule
from tests.unit.driver.azure.support import Here, at_simulator, section
from tests.unit.driver.simulated_adapter import HOST

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "doc/source/drivers/azure/behaviour.rst").read_text(encoding="utf-8")
#: What Azure demands for a VM with all that belongs to it; the simulated role does not know it.
DEMANDED = {
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    *("Microsoft.Network/networkInterfaces/write", "Microsoft.Network/networkInterfaces/join/action"),
    *("Microsoft.Network/publicIPAddresses/write", "Microsoft.Network/publicIPAddresses/join/action"),
}
OTHERS = {
    "subnets": "Microsoft.Network/virtualNetworks/subnets/read",
    "skus": "Microsoft.Compute/skus/read",
    "operations": "Microsoft.Compute/locations/operations/read",
    "diskOperations": "Microsoft.Compute/locations/diskOperations/read",
    "resourceGroups": "Microsoft.Resources/subscriptions/resourceGroups/read",
}


def actions(operation: str) -> set[str]:
    """What a role must allow for a call that the simulator has counted."""
    kind, _, verb = operation.partition(".")
    if kind == "usages":
        return {f"Microsoft.{provider}/locations/usages/read" for provider in ("Compute", "Network")}
    if kind in OTHERS:
        return {OTHERS[kind]}
    provider = "Network" if kind in ("networkInterfaces", "publicIPAddresses") else "Compute"
    verbs = {"get": "read", "list": "read", "put": "write", "instanceview": "instanceView/read"}
    verbs |= {"begingetaccess": "beginGetAccess/action", "endgetaccess": "endGetAccess/action"}
    return {f"Microsoft.{provider}/{kind}/{verbs.get(verb, verb)}"}


def remove_leftovers(here: Here) -> None:
    """As the framework does it: an address can be deleted when its interface is gone."""
    for _ in range(2):
        for resource in here.adapter.listResources():
            if resource.type != "image":
                here.adapter.deleteResource(resource)


def test_permissions_are_those_of_the_calls(tmp_path: Path) -> None:
    """The least that the credentials need: no action is missing in the role, and none is too many."""
    image = {"name": "debian", "username": "zuul", "key": "k", "image-filter": {"name": "debian-12"}}
    with at_simulator(
        tmp_path,
        section(cloud_images=[image], diskimages=[{"name": "fedora"}]),
        nic_reserved_seconds=0,
        boot_seconds=(0, 0),
    ) as here:
        assert all(found.ok for found in here.adapter.preflight())
        here.simulator.change(boots=[VmBootRule(count=1)])
        with pytest.raises(LaunchStatusException):
            here.launch()
        here.delete(HOST)
        remove_leftovers(here)
        # What is asked for when the operation is not known.
        here.simulator.change(errors=[ArmErrorRule(operation="virtualMachines.put", kind="drop", after=True, count=1)])
        here.simulator.change(boots=[VmBootRule(count=1)])
        with pytest.raises(LaunchStatusException):
            here.launch(attempt=2)
        here.delete(f"{HOST}-2")
        remove_leftovers(here)
        file = tmp_path / "image.vhd"
        file.write_bytes(bytes(MIB) + fixed_footer(MIB))
        image_name = here.adapter.uploadImage(here.adapter.config.diskimages["fedora"], "fedora-1", str(file))
        here.adapter.deleteImage(image_name)
        calls = dict(here.simulator.state()["calls"])
        assert here.contents() == {}
    made: set[str] = set()
    for operation in calls:
        # Neither goes to the Resource Manager.
        if operation not in ("tokens.post", "pages.put"):
            made |= actions(operation)
    documented = set(re.findall(r'^        "(Microsoft\.[\w/]+)"', PAGE, re.MULTILINE))
    assert documented == made | DEMANDED


def test_codes_are_those_of_the_code() -> None:
    table = PAGE.partition("What Azure refuses")[2].partition("The code that says most")[0]
    cells = re.findall(r"^   \* - (``.*$)", table, re.MULTILINE)
    known = [QUOTA | {"OperationNotAllowed"}, CAPACITY, THROTTLED, LOGIN]
    assert len(cells) == len(known)
    for cell, codes in zip(cells, known, strict=True):
        assert set(re.findall(r"``(\w+)``", cell)) <= codes


def test_versions_are_named_once() -> None:
    """AZ-2: each version of an API stands in one place."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "nodepool/driver/azure").glob("*.py")]
    found = re.findall(r'"(20\d\d-\d\d-\d\d)"', "\n".join(texts))
    assert len(found) >= 6
    assert sorted(found) == sorted(set(found))
