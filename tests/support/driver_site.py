# SPDX-License-Identifier: Apache-2.0
"""A driver's provider, started on a ZooKeeper in memory, with a stand-in for the worker of its pool."""

from __future__ import annotations

from typing import Any

from nodepool.config.objects import Config, Label
from nodepool.driver.interface import Driver, Provider
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.testing.pool_worker import PoolWorkerStandIn
from tests.support.wait import DEADLINE_SECONDS


class DriverSite:
    """Base of the sites of the drivers' tests, which say what section the provider has.

    :param section: of the provider, with one pool ``main``.
    :param launcher_id: of its own where several sites share a ZooKeeper at the same time.
    """

    provider: Provider

    def __init__(
        self, driver: Driver, section: dict[str, Any], zk: MemoryZooKeeper, launcher_id: str = "stand-in"
    ) -> None:
        config = Config()
        config.labels = {label["name"]: Label(label["name"]) for label in section["pools"][0]["labels"]}
        self.config = driver.getProviderConfig(section)
        self.config.load(config)
        self.zk = zk
        self.provider = driver.getProvider(self.config)
        self.provider.zk = zk
        self.provider.start(zk)
        self.worker = PoolWorkerStandIn(zk, self.provider, "main", launcher_id)

    def serve(self, *labels: str) -> list[Node]:
        """The nodes of a new request."""
        request, nodes = self.worker.serve(*labels, timeout=DEADLINE_SECONDS)
        assert request.state == states.FULFILLED
        return nodes

    def fail(self, *labels: str) -> None:
        """A new request fails."""
        request, _ = self.worker.serve(*labels, timeout=DEADLINE_SECONDS)
        assert request.state == states.FAILED

    def end(self) -> None:
        self.provider.stop()
        self.provider.join()
