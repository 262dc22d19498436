# SPDX-License-Identifier: Apache-2.0
"""`FollowedNodes`: nodes by id and their `NodeIndex`, moment by moment, with work for what has changed only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import compress
from operator import is_not
from typing import Final, NamedTuple

from nodepool.model.node import Node
from nodepool.plan.node_index import SINGLED_OUT, NodeIndex

_NOTHING: Final[Mapping[str, Node]] = {}


class _Facts(NamedTuple):
    """What was counted of a node. Its record may be changed in place, and what was counted must be taken off again."""

    provider: str | None
    pool: str | None
    state: str
    request: str | None


class FollowedNodes:
    """For one thread at a time. What it gave is not changed later."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._facts: dict[str, _Facts] = {}
        self._counts: Counter[tuple[str | None, str | None, str]] = Counter()
        #: State -> nodes by id.
        self._singled_out: dict[str, dict[str, Node]] = {state: {} for state in SINGLED_OUT}
        #: Id of a request -> its nodes by id. An inner mapping is replaced, never changed.
        self._allocated: dict[str, Mapping[str, Node]] = {}

    def follow(self, nodes: Mapping[str, Node], noted: Collection[str]) -> tuple[Mapping[str, Node], NodeIndex]:
        """All nodes as they are now, sorted by id, and what is asked of all of them.

        A look at 10,000 nodes of which a few have changed takes about a millisecond. Does not block.

        :param nodes: all of them, by id; it is not kept.
        :param noted: ids of nodes whose records may have been changed in place since the last call; a record that is
            another object than before is found without.
        """
        before = self._nodes
        changed = {*compress(nodes, map(is_not, nodes.values(), map(before.get, nodes)))}
        new = changed - before.keys()
        gone = before.keys() - nodes.keys() if len(before) + len(new) != len(nodes) else ()
        changed.update(node_id for node_id in noted if node_id in nodes)
        for node_id in gone:
            self._take_off(node_id)
        for node_id in changed:
            if node_id in self._facts:
                self._take_off(node_id)
            self._count(node_id, nodes[node_id])
        self._nodes = _sorted(before, nodes, changed, gone, in_order=_follow(before, new))
        return self._nodes, self._index()

    def _count(self, node_id: str, node: Node) -> None:
        facts = _Facts(node.provider, node.pool, node.state, node.allocated_to or None)
        self._facts[node_id] = facts
        self._counts[facts[:3]] += 1
        if facts.state in SINGLED_OUT:
            self._singled_out[facts.state][node_id] = node
        if facts.request is not None:
            self._allocated[facts.request] = {**self._allocated.get(facts.request, _NOTHING), node_id: node}

    def _take_off(self, node_id: str) -> None:
        facts = self._facts.pop(node_id)
        self._counts[facts[:3]] -= 1
        if not self._counts[facts[:3]]:
            del self._counts[facts[:3]]
        if facts.state in SINGLED_OUT:
            del self._singled_out[facts.state][node_id]
        if facts.request is not None:
            left = {other: node for other, node in self._allocated.pop(facts.request).items() if other != node_id}
            if left:
                self._allocated[facts.request] = left

    def _index(self) -> NodeIndex:
        singled_out = {
            state: [nodes[node_id] for node_id in sorted(nodes)] for state, nodes in self._singled_out.items()
        }
        return NodeIndex(self._counts.copy(), singled_out, self._allocated.copy())


def _follow(before: dict[str, Node], new: Collection[str]) -> bool:
    """Do new ids stand behind all others? They do, because ZooKeeper counts them up, but for its first listing."""
    return not new or (bool(before) and min(new) > next(reversed(before)))


def _sorted(
    before: Mapping[str, Node],
    nodes: Mapping[str, Node],
    changed: Collection[str],
    gone: Collection[str],
    *,
    in_order: bool,
) -> dict[str, Node]:
    """``nodes`` by their ids, made of how they stood before."""
    if not in_order:
        return dict(sorted(nodes.items()))
    found = dict(before)
    for node_id in gone:
        del found[node_id]
    found.update((node_id, nodes[node_id]) for node_id in sorted(changed))
    return found
