# SPDX-License-Identifier: Apache-2.0
"""The fake driver keeps the contract."""

from __future__ import annotations

from nodepool.driver.fake import FakeDriver
from tests.support.fake_cloud_contract import FakeCloudContract


class TestFake(FakeCloudContract):
    """Without the framework."""

    def make_driver(self) -> FakeDriver:
        return FakeDriver()
