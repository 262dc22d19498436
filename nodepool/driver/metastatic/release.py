# SPDX-License-Identifier: Apache-2.0
"""Backing nodes of a provider that is removed for good (rules T, G-6).

As long as the provider is configured somewhere this is the `SlotAllocator`'s work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.metastatic.records import BackingData, owner_of
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper


def backing_nodes(zk: ZooKeeper, provider_name: str) -> Iterator[tuple[Node, str]]:
    """Those that are locked for the provider, each with its contender. Blocks for a round trip a node."""
    owner = owner_of(provider_name)
    for node in zk.nodeIterator(cached=False):
        data = BackingData.decode(node.user_data)
        if node.state == states.IN_USE and data is not None and data.owner == owner:
            holder = zk.nodes.lock_holder(node.key)
            if holder is not None and holder[1] == owner:
                yield node, holder[0]


def release(zk: ZooKeeper, node: Node, contender: str) -> None:
    """Give a backing node back to the provider that it came from, whoever is on it.

    :raises ZKConflict: somebody changed it meanwhile.
    """
    node.state = states.USED
    zk.nodes.save_and_release(node, contender)
