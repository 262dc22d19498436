# SPDX-License-Identifier: Apache-2.0
"""The lock of a node, for a change that an operator requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.exceptions import ZKConflict

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper


def take(zk: ZooKeeper, node: Node, seconds: float | None, identifier: str) -> None:
    """Lock a node, and read it anew.

    :param seconds: wait at most so long; None = as long as it takes.
    :param identifier: who locks it, for others.
    :raises ZKLockException: somebody else keeps the lock for so long.
    :raises ZKConflict: the node vanished.
    """
    zk.lockNode(node, blocking=True, timeout=seconds, identifier=identifier)
    try:
        zk.updateNode(node)
    except ZKConflict:
        give_back(zk, node)
        # Locking a node that was just deleted makes an empty one (reference/zookeeper 3).
        zk.nodes.remove_empty(node.key)
        raise


def give_back(zk: ZooKeeper, node: Node) -> None:
    """Unlock a node; one whose lock is gone is fine."""
    if node.lock is not None:
        zk.unlockNode(node)
