# SPDX-License-Identifier: Apache-2.0
"""What is left over at a simulated region, and whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.driver.ibmvpc import floating
from nodepool.driver.ibmvpc.names import volume_tags
from nodepool.driver.statemachine.metadata import NODE_KEY, node_id_of
from tests.support.wait import wait_for
from tests.unit.driver.ibmvpc.region import Here, at_simulator, section
from tests.unit.driver.ibmvpc.support import GROUP, METADATA, PROVIDER


def leftovers(here: Here) -> dict[str, list[str]]:
    """What the framework is shown of ours, by type: node ids."""
    found: dict[str, list[str]] = {}
    for resource in here.adapter.listResources():
        if node_id_of(resource.metadata, PROVIDER):
            found.setdefault(resource.type, []).append(node_id_of(resource.metadata, PROVIDER) or "")
    return found


def test_leftovers(tmp_path: Path) -> None:
    """IV-3, D-4: instances, floating IPs and volumes of this provider, whatever else is in the region."""
    with at_simulator(tmp_path, section(pool={"public-ipv4": True, "floating-ip-pool": 0})) as here:
        with here.simulator.cloud() as cloud:
            cloud.add_instance("np0000000001", GROUP)
            cloud.add_instance("np0000000002", "np_north_main")
            cloud.add_instance("np0000000003", "somewhere", hidden_group=True)
            cloud.add_address("np0000000004", GROUP)
            cloud.add_address("np0000000005", "Default")
            cloud.add_volume("np0000000006", GROUP)
            cloud.add_volume("renamed", GROUP, volume_tags({**METADATA, NODE_KEY: "0000000007"}))
            cloud.add_volume("np0000000008", "Default")
            cloud.add_volume("restored", "Default", volume_tags({**METADATA, NODE_KEY: "0000000009"}))
        found = leftovers(here)
        assert {kind: sorted(nodes) for kind, nodes in found.items()} == {
            "instance": ["0000000001"],
            "floatingip": ["0000000004"],
            "volume": ["0000000006", "0000000007"],
        }
        for resource in list(here.adapter.listResources()):
            if node_id_of(resource.metadata, PROVIDER):
                here.adapter.deleteResource(resource)
        # What is of others stays, with the boot volumes of their instances.
        others = {"instances": 2, "volumes": 4, "floating_ips": 1}
        wait_for("all to go", lambda: here.contents() == others)


def test_kept_floating_ips_are_no_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IV-13: as many as the pool keeps."""
    monkeypatch.setattr(floating, "SETTLED_SECONDS", 0.0)
    with at_simulator(tmp_path, section(pool={"public-ipv4": True, "floating-ip-pool": 1})) as here:
        with here.simulator.cloud() as cloud:
            for number in (1, 2, 3):
                cloud.add_address(f"np000000000{number}", GROUP)
        assert leftovers(here) == {"floatingip": ["0000000002", "0000000003"]}
