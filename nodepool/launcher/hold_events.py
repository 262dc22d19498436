# SPDX-License-Identifier: Apache-2.0
"""`HoldEvents`: nodes that were put on hold, or that operators delete by commands, as events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.clock import wall_time
from nodepool.model import states
from nodepool.model.event import Event, What

if TYPE_CHECKING:
    from nodepool.launcher.event_ring import EventRing
    from nodepool.model.node import Node
    from nodepool.zk.locked_cache import LockedRecordCache


class HoldEvents:
    """Listens to the cache of nodes. Everything belongs to the thread of the cache.

    :param nodes: the cache; made before it follows ZooKeeper, so that nothing is missed.
    :param host: of the launcher.
    """

    def __init__(self, nodes: LockedRecordCache[Node], ring: EventRing, host: str) -> None:
        self._nodes = nodes
        self._ring = ring
        self._host = host
        #: Ids of nodes on hold -> since when. One that was held, given back and held again while the connection was
        #: away is seen on hold all the time.
        self._held: dict[str, float | None] = {}
        #: Ids of nodes that an operator deletes.
        self._deleted: set[str] = set()
        nodes.add_listener(self._changed)

    def _changed(self, node_id: str) -> None:
        node = self._nodes.get(node_id)
        self._look_at_deletion(node_id, node)
        if node is None or node.state != states.HOLD:
            self._held.pop(node_id, None)
            return
        if node_id not in self._held or self._held[node_id] != node.state_time:
            self._held[node_id] = node.state_time
            at = node.state_time or wall_time()
            self._ring.put(Event(at, self._host, f"node {node_id}", What.HELD.value, text=why_held(node)))

    def _look_at_deletion(self, node_id: str, node: Node | None) -> None:
        if node is None:
            self._deleted.discard(node_id)
        elif node.state == states.DELETING and node.deleted_by and node_id not in self._deleted:
            self._deleted.add(node_id)
            at, by = node.state_time or wall_time(), node.deleted_by
            self._ring.put(Event(at, by, f"node {node_id}", What.CHANGED.value, text=f"delete by {by}"))


def why_held(node: Node) -> str:
    """By whom and why a node is on hold, as far as its record says."""
    by = [f"by {node.hold_by}"] if node.hold_by else []
    if node.comment:
        return ": ".join([*by, str(node.comment)])
    return " ".join([*by, f"for job {node.hold_job}"] if node.hold_job else by)
