# SPDX-License-Identifier: Apache-2.0
"""All that pages and API show, as it was at one moment, and which records have changed since another moment."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic, wall_time
from nodepool.guard import OnError
from nodepool.model.status import BuilderStatus
from nodepool.plan.observed import Observed

if TYPE_CHECKING:
    from nodepool.zk.caches import StatusCache
from nodepool.zk.nodes import NodepoolCache

#: A snapshot is used for so long, although something has changed: however many viewers there are.
LIFETIME_SECONDS: Final = 0.5
#: Of more changed records of one kind only the number is known.
MOST_IDS: Final = 1000
#: In place of ids: any record of the kind may have changed.
ANY: Final = frozenset({""})


@dataclass(frozen=True)
class WebSnapshot:
    """Nothing in it is changed; what it holds is shared with the caches and must not be changed by readers.

    :param number: of this content; another content has a higher one. It counts from the start of the process.
    :param observed: nodes, requests, pools, maintenance, events; its ``now`` is when it was asked for.
    :param complete: does it show all that ZooKeeper has? Else the caches are being filled, or the connection is away.
    """

    number: int
    observed: Observed
    builders: BuilderStatus = field(default_factory=BuilderStatus)
    complete: bool = True


class RecordKind(enum.StrEnum):
    """Of what viewers are notified."""

    NODES = "nodes"
    REQUESTS = "requests"
    #: Pools, their limits and what is held or paused.
    PROVIDERS = "providers"
    LAUNCHERS = "launchers"
    IMAGES = "images"


class SnapshotMaker:
    """Makes snapshots of caches when they are asked for. Any thread.

    :param cache: it is listened to for as long as it lives.
    :param builders: hosts of registered builders; None = not known. Must not block.
    :param clock: monotonic seconds. :param now: seconds since the epoch.
    """

    def __init__(
        self,
        cache: NodepoolCache,
        status: StatusCache,
        builders: Callable[[], frozenset[str] | None] = lambda: None,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = wall_time,
    ) -> None:
        self._cache = cache
        self._status = status
        self._builders = builders
        self._clock = clock
        self._now = now
        #: Ids of records that came, changed or went since the last snapshot: written by the connection thread, taken by
        #: one other; each operation on a set is atomic.
        self._noted: dict[RecordKind, set[str]] = {kind: set() for kind in RecordKind}
        #: Has anything changed since then?
        self._dirty = True
        #: Guards what follows; held while a snapshot is made, which does no I/O.
        self._lock = threading.Lock()
        self._latest: WebSnapshot | None = None
        self._made_at = 0.0
        #: What the snapshots since the last `take_changes` have that those before have not.
        self._shown: dict[RecordKind, frozenset[str]] = {}
        cache.nodes.add_listener(partial(self._note, RecordKind.NODES))
        cache.requests.add_listener(partial(self._note, RecordKind.REQUESTS))
        cache.pools.add_listener(partial(self._note, RecordKind.PROVIDERS))
        cache.maintenance.add_listener(partial(self._note, RecordKind.PROVIDERS, ""))
        cache.images.add_listener(partial(self._note, RecordKind.IMAGES))
        status.add_listener(self._note_status)

    @property
    def complete(self) -> bool:
        """Do the caches follow ZooKeeper, and have they read everything? Does not block."""
        return self._cache.ready and self._status.ready.is_set()

    def latest(self, lifetime: float = LIFETIME_SECONDS) -> WebSnapshot:
        """The newest snapshot, or one that was made less than ``lifetime`` seconds ago. Its ``observed.now`` is now."""
        with self._lock:
            clock, now = self._clock(), self._now()
            old = self._latest
            if old is None or (self._dirty and clock - self._made_at >= lifetime):
                with OnError(lambda _error: self._note_status()):
                    new = self._made(old, clock)
            else:
                new = old if now == old.observed.now else dataclasses.replace(old, observed=old.observed.at(now))
                if old.complete != (complete := self.complete):
                    new = dataclasses.replace(new, number=old.number + 1, complete=complete)
            self._latest = new
            return new

    def _made(self, old: WebSnapshot | None, clock: float) -> WebSnapshot:
        """What the caches have now."""
        # What changes from here on may be missing in it: it causes another one.
        self._dirty = False
        self._made_at = clock
        for kind, noted in self._noted.items():
            ids = set()
            # One by one: what is noted meanwhile is found now or the next time.
            while noted:
                ids.add(noted.pop())
            if ids:
                self._show(kind, frozenset(ids))
        new = self._make(0 if old is None else old.number + 1)
        if old is not None:
            # Of what daemons report only that something has changed is known: it is compared.
            for kind, before, after in (
                (RecordKind.PROVIDERS, old.observed.statuses, new.observed.statuses),
                (RecordKind.LAUNCHERS, old.observed.launchers, new.observed.launchers),
                (RecordKind.IMAGES, old.builders, new.builders),
            ):
                if before != after:
                    self._show(kind, ANY)
        return new

    def refresh(self) -> None:
        """Ask for the nodes that changed while they were locked: the cache has them soon after.

        By itself it reads them after the lock is released, or once a second. Does not block.
        """
        if self.complete:
            self._cache.nodes.refresh_stale()

    def take_changes(self) -> Mapping[RecordKind, frozenset[str]]:
        """What the latest snapshot shows that was not so at the last call; `ANY` = any may have changed."""
        with self._lock:
            shown, self._shown = self._shown, {}
            return shown

    def _note(self, kind: RecordKind, record_id: str) -> None:
        noted = self._noted[kind]
        if len(noted) < MOST_IDS:
            noted.add(record_id)
        self._dirty = True

    def _note_status(self) -> None:
        self._dirty = True

    def _show(self, kind: RecordKind, ids: frozenset[str]) -> None:
        known = self._shown.get(kind, frozenset()) | ids
        # Without viewers they are not taken, for weeks.
        self._shown[kind] = ANY if known & ANY or len(known) > MOST_IDS else known

    def _make(self, number: int) -> WebSnapshot:
        cache = self._cache
        # By their ids, as nearly all lists show them.
        nodes = dict(sorted(cache.nodes.snapshot().items()))
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
        )
        return WebSnapshot(number, observed, builders, self.complete)
