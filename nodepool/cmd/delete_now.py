# SPDX-License-Identifier: Apache-2.0
"""``nodepool delete --now``: delete a node in the foreground, through its provider."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nodepool.cmd import nodes
from nodepool.cmd.app import CommandError
from nodepool.cmd.session import connect
from nodepool.cmd.started_provider import started_provider
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.driver.interface import Provider
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper


def delete_node(options: argparse.Namespace) -> int:
    """``nodepool delete --now``; blocks until the node is gone.

    :raises CommandError: the node or its provider is unknown, or the deletion failed.
    """
    from nodepool.config.loader import load_config

    config = load_config(options.config, options.secure)
    with connect(config) as zk:
        node = nodes.find(zk, options.id)
        if node.provider is None or node.provider not in config.providers:
            raise CommandError(
                f"Provider {node.provider} for node {options.id} not defined on this launcher", answer=True
            )
        with started_provider(zk, config, node.provider) as provider:
            _delete(zk, provider, node)
        left = zk.getNode(options.id)
        nodes.print_node(zk, options.id, options)
        if left is not None and left.state in (states.DELETING, states.DELETED):
            raise CommandError(f"Node {options.id} could not be deleted now; a launcher will try again")
    return 0


def _delete(zk: ZooKeeper, provider: Provider, node: Node) -> None:
    from nodepool.driver import gateway

    with nodes.locked(zk, node):
        node.state = states.DELETING
        zk.storeNode(node)
        task = gateway.start_node_cleanup(provider, node)
        # The deletion removes the node with its lock, or gives the lock back.
        task.join()
