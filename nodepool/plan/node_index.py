# SPDX-License-Identifier: Apache-2.0
"""`NodeIndex`: what several tables and sentences ask of all nodes, found in one pass over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from nodepool.model import states
from nodepool.model.node import Node

#: States whose nodes are looked at one by one.
SINGLED_OUT: Final = frozenset({states.DELETING, states.HOLD})


class NodeIndex:
    """Shared by all readers, and never changed.

    :param counts: (provider, pool, state) -> number of nodes.
    :param singled_out: each of `SINGLED_OUT` -> its nodes.
    :param allocated: id of a request -> the nodes that are allocated to it, by id.
    """

    def __init__(
        self,
        counts: Mapping[tuple[str | None, str | None, str], int],
        singled_out: Mapping[str, Sequence[Node]],
        allocated: Mapping[str, Mapping[str, Node]],
    ) -> None:
        self.counts = counts
        self.deleting = singled_out[states.DELETING]
        self.held = singled_out[states.HOLD]
        self.allocated = allocated

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> NodeIndex:
        """Of nodes that do not change meanwhile: looks at each of them. See `nodepool.plan.followed_nodes`."""
        counts: Counter[tuple[str | None, str | None, str]] = Counter()
        singled_out: dict[str, list[Node]] = {state: [] for state in SINGLED_OUT}
        allocated: dict[str, dict[str, Node]] = {}
        for node in nodes:
            state = node.state
            counts[node.provider, node.pool, state] += 1
            if state in SINGLED_OUT:
                singled_out[state].append(node)
            if node.allocated_to:
                allocated.setdefault(node.allocated_to, {})[node.key] = node
        return cls(counts, singled_out, allocated)

    def allocated_to(self, requests: Iterable[str]) -> dict[str, Node]:
        """The nodes of some requests, by id.

        :param requests: ids.
        """
        return {key: node for request in requests for key, node in self.allocated.get(request, {}).items()}
