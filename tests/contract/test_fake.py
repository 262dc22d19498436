# SPDX-License-Identifier: Apache-2.0
"""Drivers of the `FakeCloud` keep the contract: the fake driver, and a small one on the state-machine framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.fake import FakeDriver
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.testing.contract import DriverContract
from tests.support.machine_driver import MachineDriver


class FakeCloudContract(DriverContract):
    """One pool with two zones, one with a limit; no quota."""

    label = "small"

    def provider_section(self) -> dict[str, Any]:
        name = self.make_driver().name
        return {
            "name": "nowhere",
            "driver": name,
            "cloud": f"contract-{name}",
            "pools": [
                {"name": "main", "availability-zones": ["az1", "az2"], "labels": [{"name": "small", "cores": 2}]},
                {"name": "other", "max-servers": 5, "labels": [{"name": "large", "ram": 8192}]},
            ],
        }

    @pytest.fixture(autouse=True)
    def _cloud(self) -> Iterator[None]:
        """A cloud of its own for each test, which must be empty at the end."""
        name = self.provider_section()["cloud"]
        FakeCloud.forget(name)
        yield
        left = FakeCloud.get(name).instances()
        FakeCloud.forget(name)
        assert not left, f"instances left behind: {left}"


class TestFake(FakeCloudContract):
    """Without the framework."""

    def make_driver(self) -> FakeDriver:
        return FakeDriver()


class TestStateMachine(FakeCloudContract):
    """With the framework."""

    def make_driver(self) -> MachineDriver:
        return MachineDriver()
