# SPDX-License-Identifier: Apache-2.0
"""The example driver keeps the contract, and Nodepool finds it. The driver guide shows this file."""

# [suite]
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from example_cloud import ExampleCloud
from nodepool_drivers.example import ExampleDriver

from nodepool.driver.registry import Drivers
from nodepool.testing.contract import DriverContract
from nodepool.testing.image_contract import ImageContract


def test_entry_point() -> None:
    """``driver: example`` is this one, once it is installed."""
    assert type(Drivers.get("example")) is ExampleDriver


class TestExample(ImageContract, DriverContract):
    """Two zones, two pools. Nothing answers at the addresses of the machines: there are no key scans."""

    label = "small"
    diskimage = "fedora"
    cloud: ExampleCloud

    @pytest.fixture(autouse=True)
    def _cloud(self) -> Iterator[None]:
        """A cloud of its own for each test, which must be empty at the end."""
        with ExampleCloud() as self.cloud:
            yield
        assert not self.cloud.machines, "machines are left behind"

    def make_driver(self) -> ExampleDriver:
        return ExampleDriver()

    def provider_section(self) -> dict[str, Any]:
        label = {"cloud-image": "debian", "host-key-checking": False}
        return {
            "name": "somewhere",
            "driver": "example",
            "url": self.cloud.url,
            "rate": 0,
            "diskimages": [{"name": "fedora"}],
            "cloud-images": [{"name": "debian", "username": "debian"}],
            "pools": [
                {"name": "main", "labels": [{"name": "small", "size": "small", **label}]},
                {"name": "other", "max-servers": 5, "labels": [{"name": "large", "size": "large", **label}]},
            ],
        }
