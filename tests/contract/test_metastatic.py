# SPDX-License-Identifier: Apache-2.0
"""The metastatic driver keeps the contract, on backing nodes that others provide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.metastatic import MetastaticDriver
from nodepool.testing.contract import DriverContract
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.backing_pool import BackingPool


class TestMetastatic(DriverContract):
    """Two labels on backing nodes with two slots."""

    label = "small"

    def make_driver(self) -> MetastaticDriver:
        return MetastaticDriver()

    def provider_section(self) -> dict[str, Any]:
        rules = {"backing-label": "large", "max-parallel-jobs": 2, "grace-time": 1}
        return {
            "name": "shared",
            "driver": "metastatic",
            "pools": [
                {"name": "main", "node-attributes": {"both": "pool"}, "labels": [{"name": "small", **rules}]},
                {"name": "other", "max-servers": 5, "labels": [{"name": "tiny", **rules}]},
            ],
        }

    @pytest.fixture
    def zk(self) -> Iterator[MemoryZooKeeper]:
        """Somebody serves backing requests."""
        zk = MemoryZooKeeper()
        pool = BackingPool(zk)
        pool.start()
        yield zk
        pool.stop()
