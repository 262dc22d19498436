# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool hold`` and ``delete`` do with nodes (reference/commands 2)."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.durations import end_of
from nodepool.cmd.format_option import show
from nodepool.cmd.operator import operator
from nodepool.cmd.session import open_zookeeper
from nodepool.exceptions import ZKConflict, ZKException, ZKLockException
from nodepool.listing.nodes import NodeFacts, node_table, project_of
from nodepool.listing.times import printable, printable_lines
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
        failed = change_nodes(zk, options.ids, change, when_free=options.when_free)
        print_nodes(zk, options.ids, options)
    return 1 if failed else 0


def delete_nodes(options: argparse.Namespace) -> int:
    """``nodepool delete`` without ``--now``; returns 1 if a node could not be deleted."""

    by = operator()

    def change(zk: ZooKeeper, node: Node) -> None:
        node.delete(by)
        zk.storeNode(node)

    with open_zookeeper(options) as zk:
        failed = change_nodes(zk, options.ids, change, when_free=options.when_free)
        if options.wait:
            from nodepool.cmd.node_wait import wait_until_gone

            wait_until_gone(zk, [node_id for node_id in options.ids if node_id not in failed])
        print_nodes(zk, options.ids, options)
    return 1 if failed else 0


def change_nodes(
    zk: ZooKeeper, ids: Sequence[str], change: Callable[[ZooKeeper, Node], None], *, when_free: bool
) -> set[str]:
    """Change nodes under their locks, as `each_node`.

    :param when_free: wait for the locks, all at once, for as long as it takes.
    :return: ids of those that were not changed.
    :raises CommandError: the only one was not changed.
    """
    if when_free:
        from nodepool.cmd.node_wait import change_when_free

        return change_when_free(zk, ids, lambda node_id: change_node(zk, node_id, change, None))
    return each_node(ids, lambda node_id: change_node(zk, node_id, change, LOCK_SECONDS))


def each_node(ids: Sequence[str], change: Callable[[str], None]) -> set[str]:
    """Change one node after the other. What fails is told in a line; the others are changed all the same.

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
            tell_failure(error)
            failed.add(node_id)
    return failed


def tell_failure(error: Exception) -> None:
    """A line for one of several nodes. Answers of released Nodepool are on standard output."""
    answer = isinstance(error, CommandError) and error.answer
    print(printable_lines(str(error)), file=sys.stdout if answer else sys.stderr)


def change_node(zk: ZooKeeper, node_id: str, change: Callable[[ZooKeeper, Node], None], seconds: float | None) -> None:
    """Change a node under its lock. Blocks for at most ``seconds`` for the lock; None = as long as it takes.

    :raises CommandError: there is none.
    :raises ZKLockException: somebody else keeps the lock; the text says who.
    """
    node = find(zk, node_id)
    with locked(zk, node, seconds):
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
def locked(zk: ZooKeeper, node: Node, seconds: float | None = LOCK_SECONDS) -> Iterator[None]:
    """Inside, the node's lock is held and the node is as it is under the lock.

    :param seconds: None = wait as long as it takes.
    :raises ZKLockException: somebody else keeps the lock for so long.
    :raises CommandError: the node vanished.
    """
    try:
        zookeeper.take(zk, node, seconds, f"{COMMAND}{operator()}")
    except ZKLockException as error:
        raise ZKLockException(f"{error}: {who_has(zk, node)}; --when-free waits until the node is returned") from None
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
