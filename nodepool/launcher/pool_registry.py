# SPDX-License-Identifier: Apache-2.0
"""What pools know of each other.

First the pools of all launchers, and those that left a moment ago (rule A-15), then what operators hold back in this
launcher, then how many free nodes each pool has.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic, wall_time
from nodepool.model import states
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.plan import maintenance
from nodepool.plan.triage import PoolInfo

if TYPE_CHECKING:
    from nodepool.model.component import PoolComponent
    from nodepool.model.maintenance import MaintenanceRecords
    from nodepool.model.node import Node
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


# `MaintenanceState`: what operators hold back in this launcher (rules MT).


def names_of_this_host() -> Sequence[str]:
    """The names by which a record may mean this launcher."""
    return tuple(dict.fromkeys((socket.gethostname(), socket.getfqdn())))


class MaintenanceState:
    """Any thread may ask; nothing blocks.

    :param records: all that are known now.
    :param host_names: of this launcher's host; the first one is that of its registration.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        records: Callable[[], MaintenanceRecords],
        host_names: Sequence[str],
        clock: Callable[[], float] = wall_time,
    ) -> None:
        self._records = records
        self._host_names = tuple(host_names)
        self._clock = clock
        #: Set once, by a signal.
        self._own_drain: Maintenance | None = None
        #: The record that drained the launcher before it started.
        self._old_drain: Maintenance | None = None

    # -- the main thread --

    def note_start(self) -> None:
        """A record that drains the launcher already now does not end it: somebody has started it all the same."""
        found = self.launcher
        self._old_drain = found if found is not None and found.mode is Mode.DRAIN else None

    def drain(self, reason: str) -> None:
        """Take nothing new from now on, until the process ends."""
        self._own_drain = Maintenance("launcher", self._host_names[0], Mode.DRAIN, reason, since=self._clock())

    # -- any thread --

    @property
    def launcher(self) -> Maintenance | None:
        """The record that holds for the whole launcher now."""
        return self._own_drain or maintenance.of_launcher(self._records(), self._host_names, self._clock())

    @property
    def ends_when_idle(self) -> bool:
        """Is the launcher to end as soon as it has finished what it does?"""
        found = self.launcher
        return found is not None and found.mode is Mode.DRAIN and found != self._old_drain

    def of_pool(self, provider_name: str, pool_name: str) -> Maintenance | None:
        """Why a pool takes nothing new; None = it does."""
        now = self._clock()
        return self._own_drain or maintenance.of_pool(self._records(), self._host_names, provider_name, pool_name, now)

    def of_labels(self) -> dict[str, Maintenance]:
        """The labels that no pool serves now."""
        return maintenance.of_labels(self._records(), self._clock())

    def holds(self, provider_name: str, pool_name: str, label: str) -> bool:
        """Is nothing launched for a label in a pool?"""
        return self.of_pool(provider_name, pool_name) is not None or label in self.of_labels()


# How many free ready nodes does each pool have, those of other launchers included?

#: Provider and name of a pool.
PoolKey = tuple[str | None, str | None]


class FreeCounts:
    """Only the cache thread changes it.

    Other threads call `could_serve`, whose answer may lack the latest event. It must be the first listener of the
    cache, so that it has each change before other listeners get it.
    """

    def __init__(self, nodes: RecordCache[Node]) -> None:
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
        if (
            node is not None
            and node.state == states.READY
            and not node.allocated_to
            and not self._nodes.is_locked(node_id)
        ):
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
