# SPDX-License-Identifier: Apache-2.0
"""The AWS driver keeps the contract, in the simulated region: slow, and with lists that lag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.aws import AwsDriver
from nodepool.testing.contract import DriverContract
from simulators.aws import AwsSettings, AwsSimulator
from tests.support.lost_machine_contract import LostMachineContract


class TestAwsSimulator(LostMachineContract, DriverContract):
    """Two pools, an image of Amazon's. Nothing scans the instances: no sshd answers there."""

    label = "small"
    unknown_external_id = {"instance": "i-0123456789abcdef0"}  # noqa: RUF012 - of the suite
    simulator: AwsSimulator

    def make_driver(self) -> AwsDriver:
        return AwsDriver()

    def provider_section(self) -> dict[str, Any]:
        with self.simulator.cloud() as cloud:
            image_id = cloud.image_id
        label = {"cloud-image": "debian", "key-name": "zuul"}
        pool = {"host-key-checking": False, "availability-zone": "us-east-1b"}
        return {
            "name": "somewhere",
            "driver": "aws",
            "region-name": "us-east-1",
            "rate": 0,
            "cloud-images": [{"name": "debian", "image-id": image_id, "username": "admin"}],
            "pools": [
                {"name": "main", "labels": [{"name": "small", "instance-type": "t3.small", **label}], **pool},
                {
                    "name": "other",
                    "max-servers": 5,
                    "labels": [{"name": "large", "instance-type": "t3.large", **label}],
                    **pool,
                },
            ],
        }

    @pytest.fixture(autouse=True)
    def _cloud(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A region of its own for each test, which must be empty at the end."""
        settings = AwsSettings(hidden_rate=0.3, hidden_seconds=(0.1, 0.3), tag_lag_rate=0.3, tag_lag_seconds=(0.1, 0.3))
        settings.empty_pages = True
        with AwsSimulator(settings) as self.simulator:
            for name, value in self.simulator.environment.items():
                monkeypatch.setenv(name, value)
            yield
            state = self.simulator.state()
        assert state["bugs"] == []
        assert state["double_nodes"] == []
        assert state["contents"] == {"instances": 0, "volumes": 0, "images": 1, "hosts": 0, "templates": 0}
