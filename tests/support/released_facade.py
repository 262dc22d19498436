# SPDX-License-Identifier: Apache-2.0
"""The facade that drivers written for 11.0.0 get."""

from __future__ import annotations

from nodepool.compat.modules import ReleasedZooKeeper, facade_for_extra_driver
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper


def released_facade(client: ZooKeeperClient) -> ReleasedZooKeeper:
    """With a cache of its own, which is filled. Blocks for that."""
    cache = NodepoolCache(client)
    assert cache.wait_ready(30)
    made = facade_for_extra_driver(ZooKeeper(client, cache))
    assert isinstance(made, ReleasedZooKeeper)
    return made
