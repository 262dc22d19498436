# SPDX-License-Identifier: Apache-2.0
"""The driver of Google Compute Engine keeps the contract, on the simulated project: with lists that lag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.gce import GceDriver
from nodepool.testing.contract import DriverContract
from nodepool.testing.image_contract import ImageContract
from simulators.gce import GceErrorRule, GceSettings, GceSimulator
from tests.support.clouds import gce_section, with_two_pools
from tests.support.lost_machine_contract import LostMachineContract


class TestGce(LostMachineContract, ImageContract, DriverContract):
    """Two pools, an image of a family, and one that is uploaded. Nothing scans the instances: no sshd answers there."""

    label = "small"
    diskimage = "fedora"
    unknown_external_id = "np0000099999"
    key_file: Path
    url: str

    def make_driver(self) -> GceDriver:
        return GceDriver()

    def provider_section(self) -> dict[str, Any]:
        section = with_two_pools(gce_section(self.key_file, self.url), instance_type="n2-standard-4")
        return {**section, "diskimages": [{"name": "fedora", "username": "zuul", "key": "ssh-ed25519 AAAA"}]}

    def image_content(self) -> bytes:
        """A small raw disk."""
        return bytes(range(256)) * 4096

    @pytest.fixture(autouse=True)
    def _cloud(self, tmp_path: Path) -> Iterator[None]:
        """A project that is as new for each test, and must be empty at the end."""
        settings = GceSettings(hidden_rate=0.3, hidden_seconds=(0.1, 0.3), ghost_rate=0.3, ghost_seconds=(0.1, 0.3))
        settings.empty_pages = True
        settings.errors = [
            # A new operation is not there yet for each of Google's servers; pages of a proxy prove nothing.
            GceErrorRule(operation="globalOperations.get", kind="404", count=2),
            GceErrorRule(operation="instances.get", kind="html", status=404, count=3),
        ]
        settings.upload_short_rate = 0.3
        with GceSimulator(settings) as simulator:
            self.key_file, self.url = simulator.write_key_file(tmp_path / "key.json"), simulator.url
            yield
            state = simulator.state()
        assert not state["bugs"]
        assert not state["double_nodes"]
        left = {kind: number for kind, number in state["contents"].items() if number}
        assert not left, f"left behind: {left}"
