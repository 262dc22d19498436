# SPDX-License-Identifier: Apache-2.0
"""What is left over in a simulated project."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.driver.statemachine.instance import node_id_of
from simulators.gce import GceErrorRule
from tests.unit.driver.gce.sections import PROVIDER, section
from tests.unit.driver.gce.support import METADATA, Here, at_simulator
from tests.unit.driver.simulated_adapter import HOST, NODE


def leftovers(here: Here) -> dict[str, list[str]]:
    """Resources of nodes, by type: node ids."""
    found: dict[str, list[str]] = {}
    for resource in here.adapter.listResources():
        if resource.type != "image":
            found.setdefault(resource.type, []).append(node_id_of(resource.metadata, PROVIDER) or "")
    return found


def test_leftovers(tmp_path: Path) -> None:
    """GC-3, GC-8 (not repeated): labels say whose disks and addresses are; those of others are left alone."""
    labels = {"nodepool_provider_name": PROVIDER, "nodepool_node_id": NODE}
    with at_simulator(tmp_path, section(), leak_rate=1.0) as here:
        here.launch()
        assert leftovers(here) == {"instance": [NODE]}
        here.delete(HOST)
        with here.simulator.cloud() as cloud:
            cloud.add_address("ours", labels)
            cloud.add_address("theirs", {})
        here.adapter.resources._due.clear()
        assert leftovers(here) == {"disk": [NODE], "address": [NODE]}
        for resource in here.adapter.listResources():
            here.adapter.deleteResource(resource)
        assert leftovers(here) == {}


@pytest.mark.parametrize("refused", ["images.list", "disks.list"])
def test_leftovers_that_cannot_be_listed(tmp_path: Path, refused: str, caplog: pytest.LogCaptureFixture) -> None:
    """GC-8: the others are found all the same."""
    with at_simulator(tmp_path, section(diskimages=[{"name": "fedora"}])) as here:
        with here.simulator.cloud() as cloud:
            cloud.add_address("ours", {"nodepool_provider_name": PROVIDER, "nodepool_node_id": NODE})
        here.simulator.change(errors=[GceErrorRule(operation=refused, kind="403")])
        for _ in range(2):
            assert leftovers(here) == {"address": [NODE]}
    assert caplog.text.count("cannot be listed") == 1


def test_instance_of_the_released_nodepool(here: Here) -> None:
    """GC-3: it has metadata items and no labels; both are understood, and items are asked for once."""
    with here.simulator.cloud() as cloud:
        cloud.add_instance(HOST, dict(METADATA))
        cloud.add_instance("somebody-elses", {"other": "thing"})
    (ours, theirs) = sorted(here.adapter.listInstances(), key=lambda one: str(one.external_id))
    assert (ours.metadata, theirs.metadata) == (METADATA, {})
    here.adapter.listInstances()
    assert here.calls("instances.get") == 1
    here.delete(HOST)
