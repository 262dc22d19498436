# SPDX-License-Identifier: Apache-2.0
"""Which ready nodes serve which of the wanted labels? (rules N-1, N-2, N-5, N-7)"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nodepool.model import states
from nodepool.model.node import Node


def is_free(node: Node, provider: str, pool: str) -> bool:
    """Could this pool hand the node out, if nobody holds its lock?"""
    return node.state == states.READY and node.allocated_to is None and node.provider == provider and node.pool == pool


class ReadyNodes:
    """Free nodes of one pool, by label, oldest first. Owned by one thread."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._by_label: dict[str, dict[str, Node]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def put(self, node: Node) -> None:
        """Add a node, or take its newer record."""
        node_id = node.key
        old = self._nodes.get(node_id)
        if old is node:
            return
        if old is not None and old.type != node.type:
            self.discard(node_id)
        self._nodes[node_id] = node
        for label in node.type:
            self._by_label.setdefault(label, {})[node_id] = node

    def discard(self, node_id: str) -> None:
        """Remove a node; one that is not here is fine."""
        node = self._nodes.pop(node_id, None)
        if node is None:
            return
        for label in node.type:
            nodes = self._by_label.get(label)
            if nodes is not None:
                nodes.pop(node_id, None)
                if not nodes:
                    del self._by_label[label]

    def clear(self) -> None:
        self._nodes.clear()
        self._by_label.clear()

    def count(self, label: str) -> int:
        return len(self._by_label.get(label, ()))

    def oldest(self) -> Node | None:
        """The free node that has been ready for the longest time."""
        return min(self._nodes.values(), key=lambda node: node.state_time or 0, default=None)

    def could_serve(self, labels: Collection[str]) -> bool:
        """Is there at least one free node for each label, and are there enough of them? A quick first look."""
        return len(self._nodes) >= len(labels) and all(label in self._by_label for label in labels)

    def choose(self, wanted: Sequence[str], az: str | None = None) -> dict[int, Node]:
        """Pick a node for as many of the wanted labels as possible.

        :param wanted: labels, duplicates included.
        :param az: zone that the nodes must share; None = any one zone.
        :return: position in ``wanted`` -> node. Nodes without a zone fit every zone.
        """
        if len(wanted) == 1 and az is None:
            for node in self._by_label.get(wanted[0], {}).values():
                return {0: node}
            return {}
        zones: list[str | None] = [az]
        if az is None:
            found = {n.az for label in set(wanted) for n in self._by_label.get(label, {}).values()} - {None}
            zones = [*sorted(z for z in found if z is not None)] or [None]
        best: dict[int, Node] = {}
        for zone in zones:
            chosen = self._match(wanted, zone)
            if len(chosen) > len(best):
                best = chosen
            if len(best) == len(wanted):
                break
        return best

    def _match(self, wanted: Sequence[str], zone: str | None) -> dict[int, Node]:
        """A largest assignment of nodes to positions (augmenting paths, Kuhn).

        A node with several labels must not be spent where a plainer one would do: taking the first fit
        could leave a request waiting for ever on static hosts.
        """
        candidates = {label: self._candidates(label, zone, len(wanted)) for label in set(wanted)}
        holder: dict[str, int] = {}
        for position in range(len(wanted)):
            _augment(position, wanted, candidates, holder)
        return {position: self._nodes[node_id] for node_id, position in holder.items()}

    def _candidates(self, label: str, zone: str | None, limit: int) -> list[str]:
        """Enough nodes of a label: with as many as there are positions, one is always free."""
        found: list[Node] = []
        for node in self._by_label.get(label, {}).values():
            if node.az is None or zone is None or node.az == zone:
                found.append(node)
                if len(found) >= limit:
                    break
        found.sort(key=lambda node: len(node.type))
        return [node.key for node in found]


def can_match(wanted: Sequence[str], offers: Sequence[Collection[str]]) -> bool:
    """Could each wanted label have an offer of its own?

    :param offers: labels of each place for a node, free or not.
    """
    if len(wanted) > len(offers):
        return False
    candidates: dict[str, list[str]] = {label: [] for label in wanted}
    for number, labels in sorted(enumerate(offers), key=lambda entry: len(entry[1])):
        for label in set(labels):
            if label in candidates and len(candidates[label]) < len(wanted):
                candidates[label].append(str(number))
    holder: dict[str, int] = {}
    return all(_augment(position, wanted, candidates, holder) for position in range(len(wanted)))


def _augment(
    start: int, wanted: Sequence[str], candidates: Mapping[str, Sequence[str]], holder: dict[str, int]
) -> bool:
    """Give position ``start`` a node, moving others to another node if need be (no recursion: sets can be large)."""
    came_from: dict[str, tuple[int, str | None]] = {}
    frontier: list[tuple[int, str | None]] = [(start, None)]
    while frontier:
        position, via = frontier.pop()
        for node_id in candidates[wanted[position]]:
            if node_id in came_from:
                continue
            came_from[node_id] = (position, via)
            if node_id not in holder:
                current: str | None = node_id
                while current is not None:
                    owner, previous = came_from[current]
                    holder[current] = owner
                    current = previous
                return True
            frontier.append((holder[node_id], node_id))
    return False
