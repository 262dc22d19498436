# SPDX-License-Identifier: Apache-2.0
"""The IBM VPC driver keeps the contract, in the simulated region, whose lists lag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.ibmvpc import IbmVpcDriver
from nodepool.driver.interface import Provider
from nodepool.testing.contract import DriverContract
from nodepool.testing.image_contract import ImageContract
from nodepool.testing.pool_worker import PoolWorkerStandIn
from simulators.ibmvpc import IbmVpcSettings, IbmVpcSimulator, VpcErrorRule
from tests.support.clouds import ibmvpc_section, with_two_pools
from tests.support.lost_machine_contract import LostMachineContract
from tests.support.wait import wait_for


class TestIbmVpc(LostMachineContract, ImageContract, DriverContract):
    """Two pools, one with floating IPs. Nothing scans the instances: no sshd answers there."""

    label = "small"
    diskimage = "fedora"
    unknown_external_id = "np0000099999"
    simulator: IbmVpcSimulator
    credentials: Path

    def make_driver(self) -> IbmVpcDriver:
        return IbmVpcDriver()

    def provider_section(self) -> dict[str, Any]:
        section = with_two_pools(ibmvpc_section(self.credentials), profile="cx2-4x8")
        section["pools"][0]["max-servers"] = 10
        section["pools"][1]["public-ipv4"] = False
        storage = {"instance-name": "storage", "endpoint": self.simulator.url, "bucket-name": "images"}
        images = [{"name": "fedora", "operating-system": "debian-12-amd64"}]
        return {**section, "floating-ip-pool": 0, "object-storage": storage, "diskimages": images}

    def image_content(self) -> bytes:
        """What IBM takes for a small image: it looks at how it begins."""
        return b"QFI\xfb" + bytes(range(256)) * 1000

    def test_leaked_machine(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """D-2, IV-13: its floating IP, which is free then, is more than the pool keeps, and goes with later sweeps."""
        super().test_leaked_machine(provider, worker)
        for _ in range(2):
            self.bounded("cleanupLeakedResources()", provider.cleanupLeakedResources, self.node_seconds)

    @pytest.fixture(autouse=True)
    def _cloud(self, tmp_path: Path) -> Iterator[None]:
        """A region that is as new for each test, and must be empty at the end."""
        lag = IbmVpcSettings(hidden_rate=0.3, hidden_seconds=(0.1, 0.3), ghost_rate=0.3, ghost_seconds=(0.1, 0.3))
        lag.empty_pages = True
        # A new image is not there yet for each of IBM's servers; pages of a proxy prove nothing.
        unseen = VpcErrorRule(operation="vpc.get_image", kind="404", count=2)
        lag.errors = [unseen, VpcErrorRule(operation="vpc.list_*", kind="html", status=404, count=2)]
        with IbmVpcSimulator(lag) as self.simulator:
            self.credentials = self.simulator.write_credentials(tmp_path / "ibm.env")
            yield
            # IBM has accepted that floating IPs are deleted; they are gone a moment later.
            wait_for("nothing is left behind", self._empty)
            state = self.simulator.state()
        assert state["bugs"] == []
        assert state["double_nodes"] == []

    def is_clean(self) -> bool:
        with self.simulator.cloud() as cloud:
            return not cloud.contents()["floating_ips"]

    def _empty(self) -> bool:
        with self.simulator.cloud() as cloud:
            left = {**cloud.contents(), **cloud.left_of_uploads()}
        assert not any(left.values()), left
        return True
