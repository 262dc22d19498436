# SPDX-License-Identifier: Apache-2.0
"""All that pages and API show, as it was at one moment.

First how long requests waited, then the snapshot and its maker, then which records changed, and who has locks.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic, wall_time
from nodepool.exceptions import ZKException
from nodepool.guard import OnError
from nodepool.model import states
from nodepool.model.image import NO_IMAGES, ImagesView
from nodepool.model.status import BuilderStatus
from nodepool.plan.observed import FollowedNodes, Observed
from nodepool.plan.triage import MIN_READY_REQUESTOR
from nodepool.zk.locks import LockOwners

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest
    from nodepool.model.status import LauncherStatus
    from nodepool.zk.caches import NodepoolCache, StatusCache
    from nodepool.zk.client import ZooKeeperClient


# `WaitTimes`: how long requests of the last hour waited, by label, in memory. Longer times are in the metrics.

#: Waits that ended longer ago do not count.
WINDOW_SECONDS: Final = 3600.0
#: Waits that are kept of a label, and labels. Both come from other programs: memory must have a bound.
MOST_WAITS: Final = 1000
MOST_LABELS: Final = 1000
#: Ends that are remembered, so that a record that is read again does not count again.
MOST_ENDS: Final = 10_000


@dataclass(frozen=True)
class WaitSummary:
    """Of the requests with a label that were fulfilled in the last hour, or in its last part if there were very many.

    :param count: requests. ``shared``: those of them that wanted other labels, too. Their wait counts as a whole for
        each label, because a record does not tell which of its nodes was there first.
    :param p50: seconds from submission until the request was fulfilled, which half of them did not exceed; ``p95``: 95
        of 100; None = there was no request.
    :param covered_seconds: the part of the hour of which all are known; less than 3,600 if only the last ones are kept.
    """

    count: int
    shared: int
    p50: float | None
    p95: float | None
    covered_seconds: float = WINDOW_SECONDS


@dataclass(frozen=True)
class _EndedWait:
    at: float
    seconds: float
    shared: bool


class WaitTimes:
    """Any thread. Nothing blocks: ``_lock`` is held for dictionary work only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: OrderedDict[str, deque[_EndedWait]] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def note(self, request: NodeRequest | None) -> None:
        """Count a request if it was fulfilled. Nobody waits for those of ``min-ready``.

        :param request: as it is now; None = it has gone.
        """
        if request is None or request.state != states.FULFILLED or request.requestor == MIN_READY_REQUESTOR:
            return
        created, at = request.created_time, request.state_time
        if created is None or at is None:
            return
        labels = set(request.node_types)
        wait = _EndedWait(at, max(0.0, at - created), len(labels) > 1)
        with self._lock:
            if request.key in self._ended:
                return
            self._ended[request.key] = None
            if len(self._ended) > MOST_ENDS:
                self._ended.popitem(last=False)
            for label in labels:
                self._waits.setdefault(label, deque(maxlen=MOST_WAITS)).append(wait)
                self._waits.move_to_end(label)
            while len(self._waits) > MOST_LABELS:
                self._waits.popitem(last=False)

    def of_label(self, label: str, now: float) -> WaitSummary:
        """:param now: seconds since the epoch."""
        with self._lock:
            kept = list(self._waits.get(label, ()))
        waits = [one for one in kept if now - WINDOW_SECONDS <= one.at]
        seconds = sorted(one.seconds for one in waits)
        # Those before the oldest one were forgotten.
        all_kept = len(waits) < MOST_WAITS
        covered = WINDOW_SECONDS if all_kept else max(0.0, now - min(one.at for one in waits))
        shared = sum(one.shared for one in waits)
        return WaitSummary(len(waits), shared, percentile(seconds, 50), percentile(seconds, 95), covered)


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The least of sorted values that so many of 100 do not exceed (nearest rank); None = there is none."""
    if not values:
        return None
    return values[max(0, -(-len(values) * percent // 100) - 1)]


#: A snapshot is used for so long, although something has changed: however many viewers there are.
LIFETIME_SECONDS: Final = 0.5


def nobody(_node_id: str) -> str | None:
    """Tells of no lock whose it is."""
    return None


@dataclass(frozen=True)
class WebSnapshot:
    """Nothing in it is changed; what it holds is shared with the caches and must not be changed by readers.

    :param number: of this content; another content has a higher one. It counts from the start of the process.
    :param observed: nodes, requests, pools, maintenance, events; its ``now`` is when it was asked for.
    :param waits: of the last hour, as they are when they are asked for.
    :param locker: who has the lock of a node; None = nobody, or that is not known. Asks ZooKeeper, and may block.
    :param complete: does it show all that ZooKeeper has? Else the caches are being filled, or the connection is away.
    """

    number: int
    observed: Observed
    launchers: Sequence[LauncherStatus] = ()
    builders: BuilderStatus = field(default_factory=BuilderStatus)
    images: ImagesView = NO_IMAGES
    complete: bool = True
    waits: WaitTimes = field(default_factory=WaitTimes, compare=False)
    locker: Callable[[str], str | None] = field(default=nobody, compare=False)


class SnapshotMaker:
    """Makes snapshots of caches when they are asked for. Any thread.

    :param cache: it is listened to for as long as it lives.
    :param locker: see `WebSnapshot`.
    :param builders: hosts of registered builders; None = not known. Must not block.
    :param clock: monotonic seconds. :param now: seconds since the epoch.
    """

    def __init__(
        self,
        cache: NodepoolCache,
        status: StatusCache,
        locker: Callable[[str], str | None] = nobody,
        builders: Callable[[], frozenset[str] | None] = lambda: None,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = wall_time,
    ) -> None:
        self._cache = cache
        self._status = status
        self._locker = locker
        self._builders = builders
        self._clock = clock
        self._now = now
        #: Guards what follows; held while a snapshot is made, which does no I/O.
        self._lock = threading.Lock()
        self._latest: WebSnapshot | None = None
        self._made_at = 0.0
        self._dirty = True
        self._changes = ChangedRecords()
        self._nodes = FollowedNodes()
        self._waits = WaitTimes()
        #: What the snapshots since the last `take_changes` have that those before have not.
        self._shown: dict[RecordKind, frozenset[str]] = {}
        cache.nodes.add_listener(lambda node_id: self._note(RecordKind.NODES, node_id))
        cache.requests.add_listener(lambda request_id: self._note(RecordKind.REQUESTS, request_id))
        cache.requests.add_listener(lambda request_id: self._waits.note(cache.requests.get(request_id)))
        cache.pools.add_listener(lambda pool_id: self._note(RecordKind.PROVIDERS, pool_id))
        cache.maintenance.add_listener(lambda: self._note(RecordKind.PROVIDERS, ""))
        cache.images.add_listener(lambda image: self._note(RecordKind.IMAGES, image))
        status.add_listener(self._note_status)

    @property
    def complete(self) -> bool:
        """Do the caches follow ZooKeeper, and have they read everything? Does not block."""
        return self._cache.ready and self._status.ready.is_set()

    def latest(self, lifetime: float = LIFETIME_SECONDS) -> WebSnapshot:
        """The newest snapshot, or one that was made less than ``lifetime`` seconds ago. Its ``observed.now`` is now."""
        with self._lock:
            clock = self._clock()
            old = self._latest
            if old is None or (self._dirty and clock - self._made_at >= lifetime):
                with OnError(lambda _error: self._start_anew()):
                    new = self._made(old, clock)
            elif old.complete != (complete := self.complete):
                new = dataclasses.replace(self._renewed(old), number=old.number + 1, complete=complete)
            else:
                new = self._renewed(old)
            self._latest = new
            return new

    def _made(self, old: WebSnapshot | None, clock: float) -> WebSnapshot:
        """What the caches have now."""
        # What changes from here on may be missing in it: it causes another one.
        self._dirty = False
        self._made_at = clock
        changes = self._changes.take()
        for kind, ids in changes.items():
            self._show(kind, ids)
        new = self._make(0 if old is None else old.number + 1, changes.get(RecordKind.NODES, frozenset()))
        if old is not None:
            self._compare_status(old, new)
        return new

    def _start_anew(self) -> None:
        """After an error in the middle: nothing of what was followed is relied on."""
        self._nodes = FollowedNodes()
        self._dirty = True

    def refresh(self) -> None:
        """Ask for the nodes that changed while somebody has their lock: the cache has them soon after.

        By itself it reads them after the lock is released, or once a second. Does not block.
        """
        if self.complete:
            self._cache.nodes.refresh_stale()

    def take_changes(self) -> Mapping[RecordKind, frozenset[str]]:
        """What the latest snapshot shows that was not so at the last call; an id '' = any may have changed."""
        with self._lock:
            shown, self._shown = self._shown, {}
            return shown

    def _renewed(self, old: WebSnapshot) -> WebSnapshot:
        """The same, as of now."""
        now = self._now()
        if now == old.observed.now:
            return old
        return dataclasses.replace(old, observed=old.observed.at(now))

    def _note(self, kind: RecordKind, record_id: str) -> None:
        self._changes.note(kind, record_id)
        self._dirty = True

    def _note_status(self) -> None:
        self._dirty = True

    def _compare_status(self, old: WebSnapshot, new: WebSnapshot) -> None:
        """What daemons tell is compared: the cache says that something of it changed, not what."""
        pairs = (
            (RecordKind.PROVIDERS, old.observed.statuses, new.observed.statuses),
            (RecordKind.LAUNCHERS, old.launchers, new.launchers),
            (RecordKind.IMAGES, old.builders, new.builders),
        )
        for kind, before, now in pairs:
            if before != now:
                self._show(kind, frozenset({""}))

    def _show(self, kind: RecordKind, ids: frozenset[str]) -> None:
        known = self._shown.get(kind, frozenset()) | ids
        # Without viewers nobody takes them, for weeks.
        self._shown[kind] = frozenset({""}) if "" in known or len(known) > MOST_IDS else known

    def _make(self, number: int, changed: frozenset[str]) -> WebSnapshot:
        """:param changed: ids of nodes that were noted since the last one."""
        cache = self._cache
        raw = cache.nodes.snapshot()
        if len(changed) >= MOST_IDS:
            # There may be more of them than were noted.
            self._nodes = FollowedNodes()
        # By their ids, as nearly all lists show them.
        nodes, index = self._nodes.follow(raw, changed)
        launchers, images = tuple(self._status.launchers()), cache.images.snapshot()
        builders = self._status.builders()
        observed = Observed(
            now=self._now(),
            requests=cache.requests.snapshot(),
            nodes=nodes,
            registered=cache.pools.values(),
            statuses=tuple(self._status.pools()),
            maintenance=(*cache.maintenance.snapshot().values(), *images.pauses()),
            events=[event for launcher in launchers for event in launcher.events],
            launchers=launchers,
            locked=cache.nodes.locked_ids(),
            images=images,
            builders=self._builders(),
            builder_providers=builders.providers,
        ).with_node_index(index)
        return WebSnapshot(number, observed, launchers, builders, images, self.complete, self._waits, self._locker)


# `ChangedRecords`: which records changed since the last call, so that viewers are notified of them.

#: Of more changed records of one kind only the number is known.
MOST_IDS: Final = 1000


class RecordKind(enum.StrEnum):
    """What viewers can be told of."""

    NODES = "nodes"
    REQUESTS = "requests"
    #: Pools, their limits and what is held or paused.
    PROVIDERS = "providers"
    LAUNCHERS = "launchers"
    IMAGES = "images"


class ChangedRecords:
    """Written by the connection thread, taken by one other. Each operation on a set is atomic."""

    def __init__(self) -> None:
        self._ids: dict[RecordKind, set[str]] = {kind: set() for kind in RecordKind}

    def note(self, kind: RecordKind, record_id: str) -> None:
        """A record came, changed or went; '' = any may have. Does not block."""
        ids = self._ids[kind]
        if len(ids) < MOST_IDS:
            ids.add(record_id)

    def take(self) -> Mapping[RecordKind, frozenset[str]]:
        """The kinds of which something changed, each with the ids that are known."""
        taken: dict[RecordKind, frozenset[str]] = {}
        for kind, ids in self._ids.items():
            found = set()
            # One by one: what is noted meanwhile is found now or the next time.
            while ids:
                found.add(ids.pop())
            if found:
                taken[kind] = frozenset(found)
        return taken


# `LockNames`: who has the lock of a node, for pages and answers about one node.

log = logging.getLogger("nodepool.web.snapshot")

#: An answer is given again for so long, however many viewers there are.
KNOWN_SECONDS: Final = 1.0
#: The processes that are registered are read again after so long.
PROCESSES_SECONDS: Final = 10.0
#: An answer is waited for so long.
WAIT_SECONDS: Final = 0.3
#: Answers that are kept.
MOST_KNOWN: Final = 200


class LockNames:
    """Any thread. At most one question to ZooKeeper is under way at a time.

    :param owners: makes what knows the processes; raises ZKException.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        owners: Callable[[ZooKeeperClient], LockOwners] = LockOwners,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._client = client
        self._make_owners = owners
        self._clock = clock
        self._asking = threading.Lock()
        self._owners: LockOwners | None = None
        self._owners_at = -math.inf
        #: Id of a node -> who has its lock, and when that was asked.
        self._known: dict[str, tuple[str | None, float]] = {}

    def of_node(self, node_id: str) -> str | None:
        """Who has the lock of a node: a launcher, Zuul's executor, a person; None = nobody, or that is not known.

        Blocks for `WAIT_SECONDS` at most: parts of all pages wait for each other. Without a connection, without an
        answer in time, and while another thread asks, the last answer holds.
        """
        name, at = self._known.get(node_id, (None, -math.inf))
        if self._clock() < at + KNOWN_SECONDS or not self._client.connected or not self._asking.acquire(blocking=False):
            return name
        thread = threading.Thread(target=self._ask, args=(node_id,), name="LockNames", daemon=True)
        with OnError(lambda _error: self._asking.release()):
            thread.start()
        thread.join(WAIT_SECONDS)
        return self._known.get(node_id, (name, at))[0]

    def _ask(self, node_id: str) -> None:
        """Of a thread of its own: nobody can end the wait for ZooKeeper."""
        try:
            self._learn(node_id)
        except ZKException as error:
            # It is only shown: the page has all the rest.
            log.debug("Who has the lock of node %s is not known: %s", node_id, error)
        finally:
            self._asking.release()

    def _learn(self, node_id: str) -> None:
        now = self._clock()
        if self._owners is None or now >= self._owners_at + PROCESSES_SECONDS:
            self._owners, self._owners_at = self._make_owners(self._client), now
        name = self._owners.of_node(node_id)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[node_id] = (name, now)
