# SPDX-License-Identifier: Apache-2.0
"""`BackingHolds`: what operators have taken out of service, as far as backing nodes are concerned (T-13, T-14)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from nodepool.plan import backing_makers, maintenance_effect

if TYPE_CHECKING:
    from nodepool.model.maintenance import MaintenanceRecords
    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason
    from nodepool.plan.backing import BackingKind
    from nodepool.zk.zookeeper import ZooKeeper

#: So long a pool is not expected to make a backing node that it declined to make.
DECLINED_SECONDS: Final = 60.0


class BackingHolds:
    """Notes are written by one thread; any thread may ask. Nothing blocks.

    :param zk: with a cache.
    :param clock: seconds since the epoch.
    """

    def __init__(self, zk: ZooKeeper, clock: Callable[[], float]) -> None:
        self._zk = zk
        self._clock = clock
        #: Pools that declined to make a backing node, and until when that counts.
        self._declined: dict[BackingKind, tuple[frozenset[str], float]] = {}
        self._free: frozenset[BackingKind] = frozenset()

    @property
    def active(self) -> bool:
        """Is anything out of service at all?"""
        return bool(self._records)

    @property
    def _records(self) -> MaintenanceRecords:
        cache = self._zk.cache
        return {} if cache is None else cache.maintenance.snapshot()

    def note_declined(self, kind: BackingKind, pool_ids: Collection[str]) -> None:
        """These pools declined a backing request that is still open; empty = there is none, or it was served."""
        if pool_ids:
            self._declined[kind] = (frozenset(pool_ids), self._clock() + DECLINED_SECONDS)
        else:
            self._declined.pop(kind, None)

    def note_free(self, kinds: frozenset[BackingKind]) -> bool:
        """There are free slots on backing nodes of these kinds.

        :return: has that changed?
        """
        changed, self._free = kinds != self._free, kinds
        return changed

    def of_labels(self, kinds: Iterable[BackingKind]) -> dict[str, Reason]:
        """Labels for which there is no slot, and nobody makes a backing node now."""
        records = self._records
        # Those of static hosts keep no pool from making a node, and may stay for weeks.
        if all(kind == "host" for kind, _ in records):
            return {}
        now, pools = self._clock(), self._zk.getRegisteredPools()
        found = {}
        for kind in kinds:
            if kind in self._free:
                continue
            declined, until = self._declined.get(kind, (frozenset[str](), 0.0))
            declined_by = declined if now < until else frozenset[str]()
            held = backing_makers.makers_held(kind.backing_label, pools, declined_by, records, now)
            if held:
                found[kind.label] = backing_makers.reason(kind.label, kind.backing_label, held)
        return found

    def of_node(self, node: Node, backing_label: str) -> bool:
        """Does a backing node get no new nodes?"""
        return maintenance_effect.of_node(self._records, node, backing_label, self._clock()) is not None

    def next_end(self) -> float:
        """Seconds until a record ends by itself."""
        now = self._clock()
        end = maintenance_effect.next_end(self._records, now)
        return math.inf if end is None else end - now
