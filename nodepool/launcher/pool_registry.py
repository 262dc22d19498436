# SPDX-License-Identifier: Apache-2.0
"""`PoolRegistry`: the pools of all launchers, and those that left a moment ago (rule A-15)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.plan.assignment import PoolInfo

if TYPE_CHECKING:
    from nodepool.model.component import PoolComponent
    from nodepool.zk.cache import RecordCache

#: How long a pool that went is waited for: its launcher may be on its way back.
ABSENT_SECONDS: Final = 60.0
#: Characters of the random end of a pool's id.
RANDOM_CHARACTERS: Final = 32


class PoolRegistry:
    """What the registry in ZooKeeper says, kept as long as nothing changes there.

    Any thread may ask. ``_lock`` guards all but ``_changes``; it is held for dictionary work only.

    :param pools: the cache of the registry.
    """

    def __init__(self, pools: RecordCache[PoolComponent], clock: Callable[[], float] = monotonic) -> None:
        self._pools = pools
        self._clock = clock
        self._lock = threading.Lock()
        self._changes = 0
        self._known = -1
        self._registered: list[PoolInfo] = []
        #: Pools that went, and until when they are waited for.
        self._absent: dict[str, tuple[PoolInfo, float]] = {}
        #: Ids of pools that will not come back: our configuration does not name them any more.
        self._gone: set[str] = set()

    def changed(self) -> None:
        """The registry changed. For the cache thread only."""
        self._changes += 1

    def gone_for_good(self, pool_id: str) -> None:
        """One of our pools is not configured any more."""
        with self._lock:
            self._gone.add(pool_id)

    def registered(self) -> list[PoolInfo]:
        """All registered pools of all launchers."""
        with self._lock:
            self._update()
            return self._registered

    def absent(self) -> list[PoolInfo]:
        """Pools that were registered a moment ago, and whose launcher may be on its way back."""
        with self._lock:
            self._update()
            now = self._clock()
            self._absent = {pool_id: entry for pool_id, entry in self._absent.items() if now < entry[1]}
            return [pool for pool, _ in self._absent.values()]

    def _update(self) -> None:
        # Asked before the cache is: a change in between makes the next question count anew.
        changes = self._changes
        if self._known == changes:
            return
        before, until = self._registered, self._clock() + ABSENT_SECONDS
        self._registered = [
            PoolInfo(
                pool.id, pool.provider_name, frozenset(pool.supported_labels), pool.priority, pool.paused, pool.name
            )
            for pool in self._pools.values()
        ]
        self._absent.update({pool.id: (pool, until) for pool in before if pool.id not in self._gone})
        present: dict[str, list[PoolInfo]] = {}
        for pool in self._registered:
            present.setdefault(_place(pool.id), []).append(pool)
        self._absent = {
            pool_id: entry
            for pool_id, entry in self._absent.items()
            if not any(_is_back(entry[0], pool) for pool in present.get(_place(pool_id), ()))
        }
        self._known = changes


def _is_back(absent: PoolInfo, pool: PoolInfo) -> bool:
    """Is this pool of the same place the absent one? Several launchers of a host may have pools of one name."""
    return absent.id == pool.id or absent.labels <= pool.labels


def _place(pool_id: str) -> str:
    """What stays the same of a pool's id when its launcher is started again: host, provider and pool."""
    place, _, end = pool_id.rpartition("-")
    return place if len(end) == RANDOM_CHARACTERS else pool_id
