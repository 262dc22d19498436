# SPDX-License-Identifier: Apache-2.0
"""The OpenStack driver keeps the contract, in the simulated cloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.openstack import OpenStackDriver
from nodepool.testing.contract import DriverContract
from nodepool.testing.image_contract import ImageContract
from simulators.openstack import OpenStackSimulator
from tests.support.clouds import openstack_section, with_two_pools
from tests.support.lost_machine_contract import LostMachineContract


class TestOpenStack(LostMachineContract, ImageContract, DriverContract):
    """Two zones, two pools, cloud images. Nothing scans the servers: no sshd answers there."""

    label = "small"
    diskimage = "built"
    unknown_image_id = "0d1a44a1-e4f1-4a70-a9a1-5dbb4d295dbb"
    unknown_external_id = "5dbb4d29-7ad5-4b70-a9a1-0d1a44a1e4f1"

    def make_driver(self) -> OpenStackDriver:
        return OpenStackDriver()

    def provider_section(self) -> dict[str, Any]:
        section = with_two_pools(openstack_section(), min_ram=2048)
        section["pools"][0]["availability-zones"] = ["az1", "az2"]
        return {**section, "diskimages": [{"name": "built", "meta": {"hw_disk_bus": "scsi"}}]}

    @pytest.fixture(autouse=True)
    def _cloud(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A cloud of its own for each test, which must be empty at the end."""
        simulator = OpenStackSimulator()
        simulator.change(availability_zones=["az1", "az2"], by_turns=True)
        with simulator:
            file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml")
            monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
            yield
        with simulator.cloud() as cloud:
            left = [server.name for server in cloud.compute.servers if not server.gone]
            images = [image["name"] for image in cloud.images.images]
        assert not left, f"servers left behind: {left}"
        assert images == ["cloud-image"], f"images left behind: {images}"
