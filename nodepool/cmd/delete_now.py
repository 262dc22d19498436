# SPDX-License-Identifier: Apache-2.0
"""``nodepool delete --now``: delete nodes in the foreground, through their providers."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.cmd import node_changes
from nodepool.cmd.app import CommandError
from nodepool.cmd.operator import operator
from nodepool.cmd.progress import ProgressLine
from nodepool.cmd.session import connect
from nodepool.cmd.started_provider import started_provider
from nodepool.model import states
from nodepool.model.event import short

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.interface import Provider
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper

#: Between two looks at a deletion, in seconds.
LOOK_SECONDS: Final = 0.5


def delete_nodes(options: argparse.Namespace) -> int:
    """``nodepool delete --now``; blocks until the nodes are gone. Returns 1 if one is not.

    :raises CommandError: the only node or its provider is unknown, or the deletion failed.
    """
    from nodepool.config.loader import load_config

    config = load_config(options.config, options.secure)
    with connect(config) as zk:
        seconds = None if options.when_free else node_changes.LOCK_SECONDS
        with ProgressLine(sys.stderr) as line:

            def delete(node_id: str) -> None:
                try:
                    _delete_node(zk, config, node_id, seconds, line)
                finally:
                    # What has failed is told next.
                    line.clear()

            failed = node_changes.each_node(options.ids, delete)
        stuck = [node_id for node_id in dict.fromkeys(options.ids) if node_id not in failed and _is_left(zk, node_id)]
        node_changes.print_nodes(zk, options.ids, options)
        if stuck:
            what = f"Node {stuck[0]}" if len(stuck) == 1 else f"Nodes {', '.join(stuck)}"
            raise CommandError(f"{what} could not be deleted now; a launcher will try again")
    return 1 if failed else 0


def _delete_node(zk: ZooKeeper, config: Config, node_id: str, seconds: float | None, line: ProgressLine) -> None:
    node = node_changes.find(zk, node_id)
    if node.provider is None or node.provider not in config.providers:
        raise CommandError(f"Provider {node.provider} for node {node_id} not defined on this launcher", answer=True)
    line.show(f"node {node.id}: starting provider {node.provider}")
    with started_provider(zk, config, node.provider) as provider:
        _delete(zk, provider, node, seconds, line)
        line.show(f"node {node.id}: stopping provider {node.provider}")


def _is_left(zk: ZooKeeper, node_id: str) -> bool:
    left = zk.getNode(node_id)
    return left is not None and left.state in (states.DELETING, states.DELETED)


def _delete(zk: ZooKeeper, provider: Provider, node: Node, seconds: float | None, line: ProgressLine) -> None:
    from nodepool.driver import gateway

    line.show(f"node {node.id}: waiting for its lock")
    with node_changes.locked(zk, node, seconds):
        node.delete(operator())
        zk.storeNode(node)
        task = gateway.start_node_cleanup(provider, node)
        # The deletion removes the node with its lock, or gives the lock back.
        begin = monotonic()
        while line.is_shown and task.is_alive():
            line.show(f"node {node.id}: deleting for {short(monotonic() - begin)}")
            task.join(LOOK_SECONDS)
        task.join()
