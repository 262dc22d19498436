# SPDX-License-Identifier: Apache-2.0
"""`NodeIndex`: what several tables and sentences ask of all nodes, found in one pass over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from nodepool.model import states
from nodepool.model.node import Node

#: States whose nodes are looked at one by one.
_SINGLED_OUT: Final = frozenset({states.DELETING, states.HOLD})


class NodeIndex:
    """Made once of nodes that do not change meanwhile; shared by all readers."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        counts: Counter[tuple[str | None, str | None, str]] = Counter()
        singled_out: dict[str, list[Node]] = {state: [] for state in _SINGLED_OUT}
        allocated: dict[str, list[Node]] = {}
        for node in nodes:
            state = node.state
            counts[node.provider, node.pool, state] += 1
            if state in _SINGLED_OUT:
                singled_out[state].append(node)
            if node.allocated_to:
                allocated.setdefault(node.allocated_to, []).append(node)
        #: (provider, pool, state) -> number of nodes.
        self.counts: Mapping[tuple[str | None, str | None, str], int] = counts
        self.deleting: Sequence[Node] = singled_out[states.DELETING]
        self.held: Sequence[Node] = singled_out[states.HOLD]
        #: Id of a request -> the nodes that are allocated to it.
        self.allocated: Mapping[str, Sequence[Node]] = allocated

    def allocated_to(self, requests: Iterable[str]) -> dict[str, Node]:
        """The nodes of some requests, by id.

        :param requests: ids.
        """
        return {node.key: node for request in requests for node in self.allocated.get(request, ())}
