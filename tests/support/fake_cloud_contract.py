# SPDX-License-Identifier: Apache-2.0
"""The contract suite for drivers of the `FakeCloud`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.testing.contract import DriverContract


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
