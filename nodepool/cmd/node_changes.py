# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool hold`` and ``delete`` do with nodes (reference/commands 2).

First the changes of nodes, then waiting until nodes are deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.format_option import show
from nodepool.cmd.image_wait import Item, progress
from nodepool.cmd.maintenance import end_of
from nodepool.cmd.session import open_zookeeper, operator
from nodepool.exceptions import ZKConflict, ZKException, ZKLockException
from nodepool.listing.nodes import NodeFacts, node_table, project_of
from nodepool.listing.table import printable, printable_lines
from nodepool.model.event import short
from nodepool.zk import zookeeper
from nodepool.zk.locks import COMMAND, LockOwners

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper

#: How long a command waits for a node's lock, in seconds.
LOCK_SECONDS: Final = 5.0


def hold_nodes(options: argparse.Namespace) -> int:
    """``nodepool hold``; returns 1 if a node could not be held."""
    by = operator()
    end_of(options, wall_time())

    def change(zk: ZooKeeper, node: Node) -> None:
        end = end_of(options, wall_time())
        # Counted from the time of this write.
        seconds = None if end is None else max(1, round(end - wall_time()))
        node.hold(by=by, reason=options.reason, seconds=seconds)
        zk.storeNode(node)

    with open_zookeeper(options) as zk:
        failed = each_node(options.ids, lambda node_id: change_node(zk, node_id, change))
        print_nodes(zk, options.ids, options)
    return 1 if failed else 0


def delete_nodes(options: argparse.Namespace) -> int:
    """``nodepool delete`` without ``--now``; returns 1 if a node could not be deleted."""

    by = operator()

    def change(zk: ZooKeeper, node: Node) -> None:
        node.delete(by)
        zk.storeNode(node)

    with open_zookeeper(options) as zk:
        failed = each_node(options.ids, lambda node_id: change_node(zk, node_id, change))
        if options.wait:
            wait_until_gone(zk, [node_id for node_id in options.ids if node_id not in failed])
        print_nodes(zk, options.ids, options)
    return 1 if failed else 0


def each_node(ids: Sequence[str], change: Callable[[str], None]) -> set[str]:
    """Change one node after the other. A line says what fails; the others are changed all the same.

    :return: ids of those that were not changed.
    :raises CommandError: the only one was not changed.
    """
    failed = set()
    for node_id in dict.fromkeys(ids):
        try:
            change(node_id)
        except (CommandError, ZKLockException, ZKConflict) as error:
            if len(ids) == 1:
                raise
            # Answers of released Nodepool are on standard output.
            answer = isinstance(error, CommandError) and error.answer
            print(printable_lines(str(error)), file=sys.stdout if answer else sys.stderr)
            failed.add(node_id)
    return failed


def change_node(zk: ZooKeeper, node_id: str, change: Callable[[ZooKeeper, Node], None]) -> None:
    """Change a node under its lock. Blocks for at most `LOCK_SECONDS` for the lock.

    :raises CommandError: there is none.
    :raises ZKLockException: another process keeps the lock; the text says which.
    """
    node = find(zk, node_id)
    with locked(zk, node):
        change(zk, node)


def find(zk: ZooKeeper, node_id: str) -> Node:
    """Read a node. Raises CommandError if there is none."""
    node = zk.getNode(node_id)
    if node is None:
        raise _not_found(node_id)
    return node


def _not_found(node_id: str) -> CommandError:
    return CommandError(f"Node id {node_id} not found", answer=True)


@contextlib.contextmanager
def locked(zk: ZooKeeper, node: Node) -> Iterator[None]:
    """Inside, the node's lock is held and the node is as it is under the lock.

    :raises ZKLockException: another process keeps the lock for longer than `LOCK_SECONDS`.
    :raises CommandError: the node vanished.
    """
    try:
        zookeeper.take(zk, node, LOCK_SECONDS, f"{COMMAND}{operator()}")
    except ZKLockException as error:
        raise ZKLockException(f"{error}: {who_has(zk, node)}") from None
    except ZKConflict:
        raise _not_found(node.key) from None
    try:
        yield
    finally:
        zookeeper.give_back(zk, node)


def who_has(zk: ZooKeeper, node: Node) -> str:
    """Who has the lock of a node and for what, e.g. ``Zuul executor ze01 has it, in-use, project p, tenant t``."""
    try:
        owner = LockOwners(zk.client).of_node(node.key)
    except ZKException:
        owner = None
    parts = [f"{owner or 'an unknown process'} has it, {node.state}"]
    named = {"project": project_of(node), "tenant": node.tenant_name, "request": node.allocated_to}
    return printable(", ".join([*parts, *(f"{what} {name}" for what, name in named.items() if name)]))


def print_nodes(zk: ZooKeeper, ids: Sequence[str], options: argparse.Namespace) -> None:
    """Print the table of some nodes; those that are gone are not in it."""
    nodes = [node for node_id in dict.fromkeys(ids) if (node := zk.getNode(node_id)) is not None]
    taken = zk.nodes.locked_ids([node.key for node in nodes]) if nodes else set()
    show(node_table(nodes, NodeFacts(taken), wall_time()), options)


# Waiting until nodes are deleted.

#: Between two looks at nodes that are to go, in seconds.
_LOOK_SECONDS: Final = 0.5


def wait_until_gone(zk: ZooKeeper, ids: Sequence[str]) -> None:
    """Wait until nodes do not exist any more, and show how long it takes.

    :raises CommandError: no launcher deletes them.
    """
    served = {pool.provider_name for pool in zk.getRegisteredPools()}
    left = list(dict.fromkeys(ids))
    with progress(sys.stderr) as show_progress:
        while nodes := [node for node_id in left if (node := zk.getNode(node_id)) is not None]:
            left = [node.key for node in nodes]
            if any(node.provider not in served for node in nodes):
                # A launcher may have come since.
                served = {pool.provider_name for pool in zk.getRegisteredPools()}
            for node in nodes:
                if node.provider not in served:
                    raise CommandError(
                        f"No launcher serves provider {node.provider}: node {node.id} is deleted when one does"
                    )
            show_progress([_item(node) for node in nodes])
            threading.Event().wait(_LOOK_SECONDS)


def _item(node: Node) -> Item:
    since = "" if node.state_time is None else f" for {short(wall_time() - node.state_time)}"
    return Item(f"node {node.id}", None, f"{node.state}{since}", node.state)
