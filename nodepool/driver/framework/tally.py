# SPDX-License-Identifier: Apache-2.0
"""Sums over all nodes that cost no more than what has changed since they were asked for last."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.zk.cache import RecordCache

#: Sums of fractions (half a processor) are rounded: what is added and subtracted must come to nothing.
_DIGITS = 6
#: When so many nodes have changed and nobody asked, all are counted anew at the next question.
_MANY = 10_000


class ChangedNodes:
    """Ids of nodes that changed, '' = any may have. Operations on a set are atomic."""

    def __init__(self) -> None:
        self._ids: set[str] = {""}

    def note(self, node_id: str) -> None:
        """For the cache thread."""
        if len(self._ids) >= _MANY:
            self._ids.clear()
            node_id = ""
        self._ids.add(node_id)

    def pending(self) -> set[str]:
        """What `take` would return now."""
        return self._ids.copy()

    def take(self) -> set[str]:
        found: set[str] = set()
        while self._ids:
            try:
                found.add(self._ids.pop())
            except KeyError:
                break  # cleared in between: '' follows
        return found


def follow(nodes: RecordCache[Node], reader: object) -> ChangedNodes:
    """Notes what changes from now on, for as long as ``reader`` is there; at first, any node may have."""
    changes = ChangedNodes()
    listener = changes.note
    nodes.add_listener(listener)
    weakref.finalize(reader, nodes.remove_listener, listener)
    return changes


class NodeTally:
    """What nodes use, by their stored ``resources``, in groups.

    Any thread may ask. ``_lock`` guards all but ``_changes``, which the cache thread fills; it is held for
    dictionary work only.

    :param nodes: the cache of nodes; it lets go of the tally when nobody else holds it.
    :param groups: names of the groups that a node belongs to; must not block.
    """

    def __init__(self, nodes: RecordCache[Node], groups: Callable[[Node], Iterable[Hashable]]) -> None:
        self._nodes = nodes
        self._groups = groups
        self._lock = threading.Lock()
        self._changes = follow(nodes, self)
        self._shares: dict[str, tuple[tuple[Hashable, ...], dict[str, float]]] = {}
        self._sums: dict[Hashable, dict[str, float]] = {}
        self._counts: Counter[Hashable] = Counter()
        #: Nodes without ``resources``.
        self._unsized: dict[str, tuple[tuple[Hashable, ...], Node]] = {}

    def used(self, group: Hashable) -> tuple[QuotaInformation, list[Node]]:
        """What the nodes of a group use, and its nodes whose use is not stored. Does not block."""
        with self._lock:
            self._update()
            sums = self._sums.get(group, {})
            used = QuotaInformation.from_resources({name: round(value, _DIGITS) for name, value in sums.items()})
            return used, [node for groups, node in self._unsized.values() if group in groups]

    def count(self, group: Hashable) -> int:
        """How many nodes a group has. Does not block."""
        with self._lock:
            self._update()
            return self._counts[group]

    def _update(self) -> None:
        changed = self._changes.take()
        if "" in changed:
            changed = {*self._shares, *self._unsized, *self._nodes.ids()}
        for node_id in changed:
            self._forget(node_id)
            node = self._nodes.get(node_id)
            if node is not None:
                self._count(node_id, node)

    def _forget(self, node_id: str) -> None:
        unsized, _ = self._unsized.pop(node_id, ((), None))
        groups, resources = self._shares.pop(node_id, ((), {}))
        self._counts.subtract((*unsized, *groups))
        for group in groups:
            sums = self._sums[group]
            for name, value in resources.items():
                sums[name] -= value

    def _count(self, node_id: str, node: Node) -> None:
        groups = tuple(self._groups(node))
        if not groups:
            return
        self._counts.update(groups)
        if not node.resources:
            self._unsized[node_id] = (groups, node)
            return
        resources = QuotaInformation.from_resources(node.resources).quota["compute"]
        self._shares[node_id] = (groups, resources)
        for group in groups:
            sums = self._sums.setdefault(group, {})
            for name, value in resources.items():
                sums[name] = sums.get(name, 0) + value
