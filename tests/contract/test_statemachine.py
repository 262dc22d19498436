# SPDX-License-Identifier: Apache-2.0
"""The state-machine framework keeps the contract, shown with a small driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.testing.contract import DriverContract
from tests.support.machine_driver import MachineDriver

CLOUD = "contract-machines"


class TestStateMachine(DriverContract):
    """One pool with two zones, no quota."""

    label = "small"

    def make_driver(self) -> MachineDriver:
        return MachineDriver()

    def provider_section(self) -> dict[str, Any]:
        return {
            "name": "nowhere",
            "driver": "machines",
            "cloud": CLOUD,
            "pools": [
                {"name": "main", "availability-zones": ["az1", "az2"], "labels": [{"name": "small", "cores": 2}]},
                {"name": "other", "max-servers": 5, "labels": [{"name": "large", "ram": 8192}]},
            ],
        }

    @pytest.fixture(autouse=True)
    def _cloud(self) -> Iterator[None]:
        """A cloud of its own for each test, which must be empty at the end."""
        FakeCloud.forget(CLOUD)
        yield
        left = FakeCloud.get(CLOUD).instances()
        FakeCloud.forget(CLOUD)
        assert not left, f"instances left behind: {left}"
