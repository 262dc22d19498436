# SPDX-License-Identifier: Apache-2.0
"""``nodepool list``, ``hold`` and ``delete`` (reference/commands 2)."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.format_option import add_format_option, show, show_listing
from nodepool.cmd.session import open_zookeeper
from nodepool.exceptions import ZKConflict
from nodepool.listing.nodes import node_table
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.listing.table import Table
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper

#: How long a command waits for a node's lock, in seconds.
LOCK_SECONDS: Final = 5.0


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add("list", help="list nodes")
    parser.add_argument("--detail", action="store_true", help="show every column")
    parser.set_defaults(run=list_nodes)
    add_format_option(parser, watch=True)

    parser = add("delete", help="delete a node")
    parser.add_argument("id", help="node id")
    parser.add_argument("--now", action="store_true", help="delete the node in the foreground")
    parser.set_defaults(run=delete_node)
    add_format_option(parser)

    parser = add("hold", help="keep a node, e.g. to look at it")
    parser.add_argument("id", help="node id")
    parser.set_defaults(run=hold_node)
    add_format_option(parser)


def list_nodes(options: argparse.Namespace) -> int:
    """``nodepool list``"""

    def look(zk: ZooKeeper) -> Table:
        nodes = list(zk.nodeIterator(cached=False))
        locked = zk.nodes.locked_ids([node.key for node in nodes])
        return node_table(nodes, locked, wall_time(), detail=options.detail)

    return show_listing(options, look)


def print_node(zk: ZooKeeper, node_id: str, options: argparse.Namespace) -> None:
    """Print the table of one node; an empty one when it is gone."""
    node = zk.getNode(node_id)
    nodes = [] if node is None else [node]
    taken = zk.nodes.locked_ids([node_id]) if nodes else set()
    show(node_table(nodes, taken, wall_time()), options)


def _not_found(node_id: str) -> CommandError:
    return CommandError(f"Node id {node_id} not found", answer=True)


def find(zk: ZooKeeper, node_id: str) -> Node:
    """Read a node. Raises CommandError if there is none."""
    node = zk.getNode(node_id)
    if node is None:
        raise _not_found(node_id)
    return node


@contextlib.contextmanager
def locked(zk: ZooKeeper, node: Node) -> Iterator[None]:
    """Inside, the node's lock is held and the node is as it is under the lock.

    :raises ZKLockException: somebody else keeps the lock for `LOCK_SECONDS`.
    :raises CommandError: the node vanished.
    """
    zk.lockNode(node, blocking=True, timeout=LOCK_SECONDS)
    try:
        zk.updateNode(node)
    except ZKConflict:
        _unlock(zk, node)
        # Locking a node that was just deleted makes an empty one (reference/zookeeper 3).
        zk.nodes.remove_empty(node.key)
        raise _not_found(node.key) from None
    try:
        yield
    finally:
        _unlock(zk, node)


def _unlock(zk: ZooKeeper, node: Node) -> None:
    if node.lock is not None:
        zk.unlockNode(node)


def _change_state(zk: ZooKeeper, node: Node, state: str) -> None:
    with locked(zk, node):
        node.state = state
        zk.storeNode(node)


def hold_node(options: argparse.Namespace) -> int:
    """``nodepool hold``"""
    with open_zookeeper(options) as zk:
        _change_state(zk, find(zk, options.id), states.HOLD)
        print_node(zk, options.id, options)
    return 0


def delete_node(options: argparse.Namespace) -> int:
    """``nodepool delete``"""
    if options.now:
        from nodepool.cmd import delete_now

        return delete_now.delete_node(options)
    with open_zookeeper(options) as zk:
        _change_state(zk, find(zk, options.id), states.DELETING)
        print_node(zk, options.id, options)
    return 0
