# SPDX-License-Identifier: Apache-2.0
"""The Azure driver keeps the contract, on the simulated subscription."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.azure import AzureDriver
from nodepool.driver.azure.config import MIB
from nodepool.testing.contract import DriverContract
from nodepool.testing.image_contract import ImageContract
from simulators.azure import AzureSettings, AzureSimulator
from tests.support.clouds import azure_section, with_two_pools
from tests.support.lost_machine_contract import LostMachineContract
from tests.support.vhd import fixed_footer


class TestAzure(LostMachineContract, ImageContract, DriverContract):
    """Two pools, an image of the resource group. Nothing scans the VMs: no sshd answers there."""

    label = "small"
    diskimage = "fedora"
    unknown_external_id = "np0000099999"
    auth_path: Path

    def make_driver(self) -> AzureDriver:
        return AzureDriver()

    def provider_section(self) -> dict[str, Any]:
        section = with_two_pools(azure_section(self.auth_path), hardware_profile={"vm-size": "Standard_D4s_v5"})
        return {**section, "diskimages": [{"name": "fedora", "key": "ssh-ed25519 AAAA"}]}

    def image_content(self) -> bytes:
        """A small fixed VHD."""
        size = 5 * MIB
        return bytes(range(256)) * 4096 + bytes(size - MIB) + fixed_footer(size)

    @pytest.fixture(autouse=True)
    def _cloud(self, tmp_path: Path) -> Iterator[None]:
        """A cloud that is as new for each test, and must be empty at the end."""
        with AzureSimulator(AzureSettings(nic_reserved_seconds=0)) as simulator:
            self.auth_path = simulator.write_auth_file(tmp_path / "auth.json")
            yield
            state = simulator.state()
        assert not state["bugs"]
        assert not state["double_nodes"]
        left = {kind: number for kind, number in state["contents"].items() if number and kind != "images"}
        assert not left, f"left behind: {left}"
