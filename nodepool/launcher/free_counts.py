# SPDX-License-Identifier: Apache-2.0
"""How many free ready nodes does each pool have, those of other launchers included?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.assignment import PoolInfo
    from nodepool.zk.locked_cache import LockedRecordCache

#: Provider and name of a pool.
PoolKey = tuple[str | None, str | None]


class FreeCounts:
    """Only the cache thread changes it.

    Other threads call `could_serve`, whose answer may lack the latest event. It must be the first listener of the
    cache, so that it has each change before other listeners get it.
    """

    def __init__(self, nodes: LockedRecordCache[Node]) -> None:
        self._nodes = nodes
        #: node id -> its pool and labels, for nodes that are free.
        self._free: dict[str, tuple[PoolKey, tuple[str, ...]]] = {}
        self._by_pool: dict[PoolKey, Counter[str]] = {}
        nodes.add_listener(self._changed)

    def could_serve(self, pool: PoolInfo, wanted: Sequence[str]) -> bool:
        """Does a pool have enough free nodes of each wanted label? A quick first look: a node may have several."""
        counts = self._by_pool.get((pool.provider_name, pool.name))
        if counts is None or counts[""] < len(wanted):
            return False
        return all(counts[label] >= (wanted.count(label) if len(wanted) > 1 else 1) for label in wanted)

    def of_pool(self, provider_name: str, pool_name: str) -> dict[str, int]:
        """Label -> free nodes of a pool."""
        counts = dict(self._by_pool.get((provider_name, pool_name), ()))
        return {label: count for label, count in counts.items() if label and count}

    def _changed(self, node_id: str) -> None:
        if not node_id:
            for known in {*self._free, *self._nodes.ids()}:
                self._look(known)
            return
        self._look(node_id)

    def _look(self, node_id: str) -> None:
        node = self._nodes.get(node_id)
        entry: tuple[PoolKey, tuple[str, ...]] | None = None
        if node is not None and node.state == states.READY and not node.allocated_to and not self._is_locked(node_id):
            # The empty label counts nodes.
            entry = ((node.provider, node.pool), ("", *dict.fromkeys(node.type)))
        old = self._free.get(node_id)
        if old == entry:
            return
        if old is not None:
            del self._free[node_id]
            self._by_pool[old[0]].subtract(old[1])
        if entry is not None:
            self._free[node_id] = entry
            self._by_pool.setdefault(entry[0], Counter()).update(entry[1])

    def _is_locked(self, node_id: str) -> bool:
        return self._nodes.is_locked(node_id)
