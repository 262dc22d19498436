# SPDX-License-Identifier: Apache-2.0
"""The caches of a launcher: nodes, requests, registered pools, images and maintenance records."""

from __future__ import annotations

from typing import Any

from nodepool.clock import monotonic
from nodepool.model.component import PoolComponent
from nodepool.model.node import Node
from nodepool.model.record import Record
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.cache import RecordCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.image_cache import ImageCache
from nodepool.zk.locked_cache import LockedRecordCache
from nodepool.zk.maintenance_cache import MaintenanceCache


class NodepoolCache:
    """Follows ZooKeeper and our own writes. It is the `WriteObserver` of every transaction."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self.nodes: LockedRecordCache[Node] = LockedRecordCache(client, paths.NODES, Node.from_dict)
        self.requests: RecordCache[NodeRequest] = RecordCache(client, paths.REQUESTS, NodeRequest.from_dict)
        self.pools: RecordCache[PoolComponent] = RecordCache(
            client, f"{paths.COMPONENTS}/{PoolComponent.kind}", PoolComponent.from_dict
        )
        self.images = ImageCache(client)
        self.maintenance = MaintenanceCache(client)

    @property
    def ready(self) -> bool:
        return all(cache.ready.is_set() for cache in self._all())

    def wait_ready(self, timeout: float) -> bool:
        """Wait until all caches are complete, at most ``timeout`` seconds."""
        deadline = monotonic() + timeout
        return all(cache.wait_ready(max(0.0, deadline - monotonic())) for cache in self._all())

    def _all(self) -> tuple[RecordCache[Any] | ImageCache | MaintenanceCache, ...]:
        return (self.nodes, self.requests, self.pools, self.images, self.maintenance)

    def wait_settled(self, timeout: float) -> bool:
        """Wait until what ZooKeeper told us so far has been read, at most ``timeout`` seconds."""
        return all([self.nodes.wait_settled(timeout), self.requests.wait_settled(timeout)])

    # -- WriteObserver --

    def expect(self, record: Record) -> None:
        if record.id is not None:
            if isinstance(record, Node):
                self.nodes.expect(record.id)
            else:
                self.requests.expect(record.id)

    def settle(self, record: Record, written: bool) -> None:
        if record.id is not None:
            if isinstance(record, Node):
                self.nodes.settle(record.id, record.copy() if written else None)
            elif isinstance(record, NodeRequest):
                self.requests.settle(record.id, record.copy() if written else None)

    def expect_create(self, record: Record) -> None:
        if isinstance(record, Node):
            self.nodes.expect_create()
        else:
            self.requests.expect_create()

    def settle_create(self, record: Record, created: bool) -> None:
        if isinstance(record, Node):
            self.nodes.settle_create(record.id if created else None, record.copy() if created else None)
        elif isinstance(record, NodeRequest):
            self.requests.settle_create(record.id if created else None, record.copy() if created else None)
