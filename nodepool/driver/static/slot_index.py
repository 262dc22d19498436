# SPDX-License-Identifier: Apache-2.0
"""Which nodes have a slot? A look costs no more than what has changed since the last one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from nodepool.driver.framework.tally import follow

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.static_hosts import SlotId
    from nodepool.zk.cache import RecordCache


class SlotIndex:
    """The nodes of each slot of a provider's hosts.

    Any thread may ask. ``_lock`` guards the two maps; it is held for dictionary work only.

    :param nodes: the cache of nodes; it lets go of the index when nobody else holds it.
    :param slot_of: the slot of a node; None = it is in none. Must not block.
    """

    def __init__(self, nodes: RecordCache[Node], slot_of: Callable[[Node], SlotId | None]) -> None:
        self._nodes = nodes
        self._slot_of = slot_of
        self._lock = threading.Lock()
        self._changes = follow(nodes, self)
        self._slots: dict[str, SlotId] = {}
        self._ids: dict[SlotId, set[str]] = {}

    def nodes_in(self, slot: SlotId) -> list[Node]:
        """The nodes that have a slot, in any state; do not change them. Does not block."""
        with self._lock:
            self._update()
            found = list(self._ids.get(slot, ()))
        return [node for node in map(self._nodes.get, found) if node is not None]

    def _update(self) -> None:
        changed = self._changes.take()
        if "" in changed:
            changed = {*self._slots, *self._nodes.ids()}
        for node_id in changed:
            node = self._nodes.get(node_id)
            self._place(node_id, None if node is None else self._slot_of(node))

    def _place(self, node_id: str, slot: SlotId | None) -> None:
        old = self._slots.get(node_id)
        if old == slot:
            return
        if old is not None:
            del self._slots[node_id]
            self._ids[old].discard(node_id)
            if not self._ids[old]:
                del self._ids[old]
        if slot is not None:
            self._slots[node_id] = slot
            self._ids.setdefault(slot, set()).add(node_id)
