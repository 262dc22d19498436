# SPDX-License-Identifier: Apache-2.0
"""`WebSnapshot`: all that pages and API show, as it was at one moment; `SnapshotMaker` makes it for all viewers."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from nodepool.clock import monotonic, wall_time
from nodepool.guard import OnError
from nodepool.model.image import NO_IMAGES, ImagesView
from nodepool.model.status import BuilderStatus
from nodepool.plan.observed import FollowedNodes, Observed
from nodepool.web.changed_records import MOST_IDS, ChangedRecords, RecordKind
from nodepool.web.wait_times import WaitTimes

if TYPE_CHECKING:
    from nodepool.model.status import LauncherStatus, PoolStatus
    from nodepool.web.pending_changes import PendingChange
    from nodepool.zk.caches import NodepoolCache

#: A snapshot is used for so long, although something has changed: however many viewers there are.
LIFETIME_SECONDS: Final = 0.5


class StatusSource(Protocol):
    """What pools, launchers and builders report, see `nodepool.zk.caches.StatusCache`. No call blocks."""

    #: Set while it follows ZooKeeper and has read everything.
    ready: threading.Event

    def pools(self) -> Sequence[PoolStatus]: ...

    def launchers(self) -> Sequence[LauncherStatus]: ...

    def builders(self) -> BuilderStatus: ...

    def add_listener(self, listener: Callable[[], None]) -> None:
        """:param listener: called in the connection thread when any record changed; must not block."""


def nobody(_node_id: str) -> str | None:
    """Tells of no lock whose it is."""
    return None


def nothing(_node_id: str) -> PendingChange | None:
    """Tells of no change that waits."""
    return None


@dataclass(frozen=True)
class WebSnapshot:
    """Nothing in it is changed; what it holds is shared with the caches and must not be changed by readers.

    :param number: of this content; another content has a higher one. It counts from the start of the process.
    :param observed: nodes, requests, pools, maintenance, events; its ``now`` is when it was asked for.
    :param waits: of the last hour, as they are when they are asked for.
    :param locker: who has the lock of a node; None = nobody, or that is not known. Asks ZooKeeper, and may block.
    :param pending: the change of a node that waits for its lock in this process.
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
    pending: Callable[[str], PendingChange | None] = field(default=nothing, compare=False)


class SnapshotMaker:
    """Makes snapshots of caches when they are asked for. Any thread.

    :param cache: it is listened to for as long as it lives.
    :param locker: see `WebSnapshot`. ``pending``, too.
    :param builders: hosts of registered builders; None = not known. Must not block.
    :param clock: monotonic seconds. :param now: seconds since the epoch.
    """

    def __init__(
        self,
        cache: NodepoolCache,
        status: StatusSource,
        locker: Callable[[str], str | None] = nobody,
        pending: Callable[[str], PendingChange | None] = nothing,
        builders: Callable[[], frozenset[str] | None] = lambda: None,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = wall_time,
    ) -> None:
        self._cache = cache
        self._status = status
        self._locker = locker
        self._pending = pending
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

    def current(self) -> int | None:
        """Number of the snapshot that `latest` would give; None = it would make one. Neither waits nor computes."""
        latest = self._latest
        due = self._dirty and self._clock() - self._made_at >= LIFETIME_SECONDS
        if latest is None or due or latest.complete != self.complete:
            return None
        return latest.number

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
        return WebSnapshot(
            number, observed, launchers, builders, images, self.complete, self._waits, self._locker, self._pending
        )
