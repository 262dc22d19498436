# SPDX-License-Identifier: Apache-2.0
"""Waiting for nodes: until they are returned, and until they are deleted."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.node_changes import tell_failure, who_has
from nodepool.cmd.progress import Item, ProgressDisplay
from nodepool.exceptions import ZKException
from nodepool.model.event import short

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper

#: Between two looks at nodes that are to go, in seconds.
_LOOK_SECONDS: Final = 0.5


def change_when_free(zk: ZooKeeper, ids: Sequence[str], change: Callable[[str], None]) -> set[str]:
    """Change nodes, each as soon as its lock is free: we stand in the queue of each lock from the beginning.

    The first to get a node that is given back would otherwise be the launcher that deletes it.

    :param change: changes a node when its lock is free; for any thread.
    :return: ids of those that were not changed.
    :raises CommandError: the only one was not changed.
    """
    wanted = list(dict.fromkeys(ids))
    ended: queue.SimpleQueue[tuple[str, Exception | None]] = queue.SimpleQueue()

    def run(node_id: str) -> None:
        error: Exception | None = CommandError(f"Node {node_id} was not changed: unexpected error")
        try:
            change(node_id)
            error = None
        except (CommandError, ZKException) as expected:
            error = expected
        finally:
            ended.put((node_id, error))

    for node_id in wanted:
        _tell_who_has(zk, node_id)
        # Daemons: who presses Ctrl-C does not want to wait for a lock.
        threading.Thread(target=run, args=(node_id,), name=f"node {node_id}", daemon=True).start()
    failed = set()
    for _ in wanted:
        node_id, error = ended.get()
        if error is not None and len(wanted) == 1:
            raise error
        if error is not None:
            tell_failure(error)
            failed.add(node_id)
    return failed


def _tell_who_has(zk: ZooKeeper, node_id: str) -> None:
    node = zk.getNode(node_id)
    if node is not None and zk.nodes.locked_ids([node_id]):
        print(f"Waiting for node {node_id}: {who_has(zk, node)}", file=sys.stderr, flush=True)


def wait_until_gone(zk: ZooKeeper, ids: Sequence[str]) -> None:
    """Wait until nodes do not exist any more, and show how long it takes.

    :raises CommandError: no launcher deletes them.
    """
    progress = ProgressDisplay(sys.stderr)
    served = {pool.provider_name for pool in zk.getRegisteredPools()}
    left = list(dict.fromkeys(ids))
    try:
        while left:
            nodes = [node for node_id in left if (node := zk.getNode(node_id)) is not None]
            left = [node.key for node in nodes]
            lost = [node for node in nodes if node.provider not in served]
            if lost:
                # A launcher may have come since.
                served = {pool.provider_name for pool in zk.getRegisteredPools()}
                lost = [node for node in lost if node.provider not in served]
            if lost:
                raise CommandError(
                    f"No launcher serves provider {lost[0].provider}: node {lost[0].id} is deleted when one does"
                )
            progress.show([_item(node) for node in nodes])
            if left:
                threading.Event().wait(_LOOK_SECONDS)
    finally:
        progress.clear()


def _item(node: Node) -> Item:
    since = "" if node.state_time is None else f" for {short(wall_time() - node.state_time)}"
    return Item(f"node {node.id}", None, f"{node.state}{since}", node.state)
