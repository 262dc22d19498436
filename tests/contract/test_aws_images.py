# SPDX-License-Identifier: Apache-2.0
"""The AWS driver keeps the contract of images, by each way of an upload, in the simulated region."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.aws import AwsDriver
from nodepool.testing.image_contract import ImageContract
from simulators.aws import AwsSimulator


class AwsImages(ImageContract):
    """Nothing may be left of uploads, but the image that each test leaves."""

    label = "small"
    diskimage = "debian"
    method = ""
    simulator: AwsSimulator

    def make_driver(self) -> AwsDriver:
        return AwsDriver()

    def image_content(self) -> bytes:
        return b"\1" * 600_000 + bytes(2 * 2**20) + b"\2" * 7

    def provider_section(self) -> dict[str, Any]:
        return {
            "name": "somewhere",
            "driver": "aws",
            "region-name": "us-east-1",
            "rate": 0,
            "object-storage": {"bucket-name": "images"},
            "diskimages": [{"name": "debian", "import-method": self.method, "tags": {"team": "ci"}}],
            "pools": [
                {
                    "name": "main",
                    "labels": [
                        {"name": "small", "diskimage": "debian", "instance-type": "t3.small", "key-name": "zuul"}
                    ],
                }
            ],
        }

    @pytest.fixture(autouse=True)
    def _cloud(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with AwsSimulator() as self.simulator:
            for name, value in self.simulator.environment.items():
                monkeypatch.setenv(name, value)
            yield
            assert self.simulator.state()["bugs"] == []
            with self.simulator.cloud() as cloud:
                assert set(cloud.left_of_uploads().values()) == {0}


class TestByBlocks(AwsImages):
    """AW-18"""

    method = "ebs-direct"


class TestByImportOfASnapshot(AwsImages):
    """AW-17"""

    method = "snapshot"


class TestByImportOfAnImage(AwsImages):
    """AW-17"""

    method = "image"
