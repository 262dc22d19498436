# SPDX-License-Identifier: Apache-2.0
"""Looking at a cache that follows ZooKeeper, and waiting for it."""

from __future__ import annotations

from nodepool.model.node import Node
from nodepool.zk import paths
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import READY_NODE, PoolZnodes
from tests.support.wait import wait_for


def caught_up(cache: NodepoolCache, znodes: PoolZnodes) -> None:
    """Returns when the cache has seen all that happened before: events keep their order."""
    marker = znodes.create_node(READY_NODE)
    wait_for("the marker is there", lambda: cache.nodes.get(marker) is not None)
    znodes.kazoo.delete(paths.node(marker))
    wait_for("the marker is gone", lambda: cache.nodes.get(marker) is None)


def stored(zk: ZooKeeper, label: str = "small") -> Node:
    """A new node of our own."""
    node = Node(label)
    zk.storeNode(node)
    return node


def comment_of(cache: NodepoolCache, node: Node) -> object:
    """What the cache has as a node's comment; None = no comment, or no node."""
    cached = cache.nodes.get(node.key)
    return None if cached is None else cached.comment
