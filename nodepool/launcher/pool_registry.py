# SPDX-License-Identifier: Apache-2.0
"""What pools know of each other.

First the pools of all launchers, and those that left a moment ago (rule A-15), then what operators hold back in this
launcher, then how many free nodes each pool has, then which pool serves a request first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.clock import monotonic, wall_time
from nodepool.model import states
from nodepool.model.event import grouped
from nodepool.model.status import Maintenance, Mode
from nodepool.plan import maintenance
from nodepool.plan.triage import PoolInfo, able_pools, first_choice

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.model.status import MaintenanceRecords, PoolComponent
    from nodepool.plan.triage import RequestKind
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
        present = grouped(self._registered, lambda pool: _place(pool.id))
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


class MaintenanceState:
    """Any thread may ask; nothing blocks.

    :param records: all that are known now.
    :param host_names: by which a record may mean this launcher's host; the first one is that of its registration.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        records: Callable[[], MaintenanceRecords],
        host_names: Sequence[str],
        clock: Callable[[], float] = wall_time,
    ) -> None:
        self._records = records
        self._host_names = tuple(dict.fromkeys(host_names))
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


# `Turns`: leaves requests to the pool that is their first choice, for a moment.
#
# Each request has one owner among the pools that may take it (`first_choice`). A pool that has room prefers its own
# requests, and passes over the others. It takes another's when
#
# * no other has ready nodes for it, or this pool is the first choice of those that have (at the end of its pass, so
#   that its own come first);
# * the owner, and who came after it, did nothing for `GRACE_SECONDS` each;
# * it was passed over `MAX_PASSED` times, or there is nothing of its own among the first `WINDOW` requests.

#: How long a pool whose turn it is may take. It takes some 20 ms when the machine is not busy.
GRACE_SECONDS: Final = 0.3
#: Who had its turn is remembered for so long; a request that comes up again later begins with its owner.
TURN_SECONDS: Final = 1.5
#: What was left is forgotten after this time.
FORGET_SECONDS: Final = 60.0
#: With more of them it is looked for old ones.
MANY: Final = 1000
#: So often a pool serves others before a request that it could serve as well.
MAX_PASSED: Final = 10
#: Requests that a pool leaves in one pass before it takes one at any rate.
WINDOW: Final = 64


class _PassedOver(NamedTuple):
    """A request that was left to another pool.

    :param times: how often. ``asked``: pools whose turn it was.
    """

    times: int
    when: float
    asked: tuple[str, ...]


class Turns:
    """Owned by the pool worker's thread.

    :param free: counts of free nodes of all pools.
    """

    def __init__(self, free: FreeCounts, clock: Callable[[], float] = monotonic) -> None:
        self._free = free
        self._clock = clock
        self._me = ""
        self._registered: Sequence[PoolInfo] = ()
        self._able: dict[RequestKind, list[PoolInfo]] = {}
        self._left: dict[str, _PassedOver] = {}
        self._many = MANY
        self._passed_over = 0
        #: Requests whose owner has no node for them, while this pool has: passed over in this pass, or to be taken.
        self._ours_next: list[str] = []
        self._ours: set[str] = set()

    def begin_pass(self, me: str, registered: Sequence[PoolInfo]) -> None:
        """:param registered: the same object as long as the registry does not change."""
        if self._registered is not registered or len(self._able) > 10_000:
            self._able.clear()
        self._me, self._registered = me, registered
        self._passed_over = 0
        self._ours_next.clear()
        if len(self._left) > self._many:
            old = self._clock() - FORGET_SECONDS
            self._left = {request_id: left for request_id, left in self._left.items() if left.when > old}
            # Most may be young: not all of them are looked at in each pass.
            self._many = max(MANY, 2 * len(self._left))

    def of_others(self, kind: RequestKind, request: NodeRequest) -> Sequence[PoolInfo]:
        """The pools whose turn it is before this one; empty = it is this pool's turn.

        To be asked only when this pool could serve the request now. Changes nothing; see `pass_over`.
        """
        able = self._able.get(kind)
        if able is None:
            able = self._able[kind] = able_pools(kind, self._registered)
        request_id, now = request.key, self._clock()
        if len(able) < 2 or request_id in self._ours or self._passed_over >= WINDOW:
            return ()
        before = self._left.get(request_id, _PassedOver(0, now, ()))
        if before.times >= MAX_PASSED:
            return ()
        asked = before.asked if now < before.when + TURN_SECONDS else ()
        turns = self._turns([pool for pool in able if pool.id not in asked], request)
        if not turns or turns[0].id == self._me:
            return ()
        return turns

    def pass_over(self, request: NodeRequest, turns: Sequence[PoolInfo]) -> None:
        """Note that a request is left to others; look again after `GRACE_SECONDS`.

        :param turns: the answer of `of_others`.
        """
        request_id, now = request.key, self._clock()
        before = self._left.get(request_id, _PassedOver(0, now, ()))
        asked = before.asked if now < before.when + TURN_SECONDS else ()
        if turns[-1].id == self._me:
            self._ours_next.append(request_id)
        self._left[request_id] = _PassedOver(before.times + 1, now, (*asked, *(pool.id for pool in turns)))
        self._passed_over += 1

    def _turns(self, pools: list[PoolInfo], request: NodeRequest) -> list[PoolInfo]:
        """Whose turn it is: the owner; and if only others have ready nodes, one of these."""
        request_id = request.key
        ready = [pool for pool in pools if self._free.could_serve(pool, request.node_types)] if request.reuse else []
        owner = first_choice(request_id, [pool for pool in pools if not pool.paused] or pools)
        turns = [owner, None if owner in ready else first_choice(request_id, ready)]
        return [pool for pool in turns if pool is not None]

    def end_pass(self) -> list[str]:
        """Requests that were passed over, but may be taken if there is still room after this pool's own."""
        self._ours = set(self._ours_next)
        return list(self._ours_next)
