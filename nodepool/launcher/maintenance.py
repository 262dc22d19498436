# SPDX-License-Identifier: Apache-2.0
"""What operators hold back, as far as the launcher is concerned.

First the worker that logs maintenance records, removes those that have ended, and ends a drained launcher; then the
events of these records and of images.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from nodepool import log_names
from nodepool.clock import wall_time
from nodepool.model import states
from nodepool.model.event import Event, What, clipped
from nodepool.plan import maintenance
from nodepool.plan.maintenance import CLOCK_SKEW_SECONDS
from nodepool.runtime.worker import Worker
from nodepool.zk.maintenance_store import MaintenanceStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodepool.launcher.events import EventRing
    from nodepool.launcher.pool.worker import PoolWorker
    from nodepool.launcher.pool_registry import MaintenanceState
    from nodepool.model.image import ImageBuild, ImageUpload, ImageView
    from nodepool.model.maintenance import Maintenance, MaintenanceRecords
    from nodepool.zk.caches import ImageCache, MaintenanceCache
    from nodepool.zk.client import ZooKeeperClient

IDLE_SECONDS: Final = 60.0
#: So often it is looked whether a launcher that is being drained has finished.
DRAIN_LOOK_SECONDS: Final = 0.5


class MaintenanceWorker(Worker):
    """One thread per launcher. It is woken when a record changes and when a record ends.

    :param cache: of the records.
    :param state: what they mean for this launcher.
    :param pools: the workers of all pools of this launcher, also of those that retire.
    :param changed: called when another set of records holds than before. Must not block.
    :param drained: called when the launcher is drained and has finished what it did. Must not block.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        cache: MaintenanceCache,
        state: MaintenanceState,
        pools: Callable[[], Sequence[PoolWorker]],
        *,
        changed: Callable[[], None],
        drained: Callable[[], None],
        clock: Callable[[], float] = wall_time,
    ) -> None:
        super().__init__("MaintenanceWorker", client, logging.getLogger(log_names.NODEPOOL), IDLE_SECONDS)
        self._cache = cache
        self._state = state
        self._pools = pools
        self._changed = changed
        self._drained = drained
        self._clock = clock
        self._store = MaintenanceStore(client)
        #: Records that held in the pass before.
        self._holding: MaintenanceRecords = {}
        #: Was it told that the launcher is being drained?
        self._drain_told = False

    def run_once(self) -> float | None:
        now, records = self._clock(), self._cache.snapshot()
        holding = {key: record for key, record in records.items() if not record.is_over(now)}
        if holding != self._holding:
            self._tell(holding)
            self._holding = holding
            self._changed()
        self._remove_ended(records, now)
        if self._state.ends_when_idle:
            self._look_at_drain()
            return DRAIN_LOOK_SECONDS
        self._drain_told = False
        end, removal = (maintenance.next_end(records, now - delay) for delay in (0.0, CLOCK_SKEW_SECONDS))
        waits = [None if end is None else end - now, None if removal is None else removal + CLOCK_SKEW_SECONDS - now]
        return min((wait for wait in waits if wait is not None), default=None)

    def _tell(self, holding: MaintenanceRecords) -> None:
        for key, record in holding.items():
            if self._holding.get(key) != record:
                self.log.info("Maintenance: %s", record.text)
        for key, record in self._holding.items():
            if key not in holding:
                self.log.info("Maintenance is over: %s", record.text)

    def _remove_ended(self, records: MaintenanceRecords, now: float) -> None:
        for record in maintenance.ended(records, now - CLOCK_SKEW_SECONDS):
            if self._store.remove_if_over(record, now):
                self.log.info("Removed the maintenance record of %s %s, which is over", record.kind, record.name)

    def _look_at_drain(self) -> None:
        pools = self._pools()
        busy = {pool.place: len(pool.handlers) for pool in pools if not pool.drained}
        if not busy:
            self.log.info("Drained: nothing is being served any more, ending")
            self._drained()
        elif not self._drain_told:
            self._drain_told = True
            text = ", ".join(f"{count} in {place}" for place, count in busy.items() if count) or "none"
            self.log.info("Draining: nothing new is taken; requests that are being served: %s", text)


# `MaintenanceEvents`: what operators pause, drain or quarantine, and its end, as events. `ImageEvents`: the same of
# images, what is asked for, and how builds and uploads end.


class _CacheEvents:
    """Events of what a cache shows. Everything belongs to the thread of the cache.

    :param host: of the launcher.
    """

    def __init__(self, ring: EventRing, host: str) -> None:
        self._ring = ring
        self._host = host

    def _put(self, at: float, subject: str, what: What, text: str, actor: str | None = None) -> None:
        """:param actor: who caused it, unless it is the launcher."""
        self._ring.put(Event(at, actor or self._host, subject, what.value, text=text))


class MaintenanceEvents(_CacheEvents):
    """Listens to the cache of maintenance records.

    :param records: the cache; made before it follows ZooKeeper, so that nothing is missed.
    """

    def __init__(self, records: MaintenanceCache, ring: EventRing, host: str) -> None:
        super().__init__(ring, host)
        self._cache = records
        self._known: MaintenanceRecords = {}
        records.add_listener(self._changed)

    def _changed(self) -> None:
        before, now = self._known, self._cache.snapshot()
        self._known = now
        for key, record in now.items():
            old = before.get(key)
            if old is None or (old.mode, old.since, old.reason) != (record.mode, record.since, record.reason):
                self._tell(record.since or wall_time(), record, What.MAINTENANCE_BEGAN, record.text)
        for key, record in before.items():
            if key not in now:
                self._tell(wall_time(), record, What.MAINTENANCE_ENDED, "")

    def _tell(self, at: float, record: Maintenance, what: What, text: str) -> None:
        self._put(at, f"{record.kind} {record.name}", what, clipped(text))


#: States in which a build or an upload has ended, and what that is.
_ENDS = {states.READY: What.AVAILABLE, states.FAILED: What.FAILED}
#: What of a build or an upload is an event, who caused it, and when, in seconds since the epoch.
_End: TypeAlias = tuple[What, str, float | None]


class ImageEvents(_CacheEvents):
    """Listens to the cache of images.

    :param images: the cache; made before it follows ZooKeeper, so that nothing is missed.
    """

    def __init__(self, images: ImageCache, ring: EventRing, host: str) -> None:
        super().__init__(ring, host)
        self._cache = images
        #: Image -> is it paused?
        self._paused: dict[str, bool] = {}
        #: Image -> when a build was asked for; None = none is.
        self._asked: dict[str, float | None] = {}
        #: Image -> texts of the ends of its builds and uploads.
        self._ended: dict[str, Mapping[str, _End]] = {}
        self._begun = False
        images.add_listener(self._changed)

    def _changed(self, image: str) -> None:
        view = self._cache.snapshot()
        for name in [image] if image else {*view.images, *self._ended}:
            self._look(name, view.image(name))
        # What was there at the start is no event.
        self._begun = self._begun or self._cache.complete

    def _look(self, name: str, image: ImageView) -> None:
        ends = _ends_of(image, self._host)
        paused, ended = self._paused.get(name, False), self._ended.get(name, {})
        asked, self._asked[name] = self._asked.get(name), image.build_requested
        self._paused[name], self._ended[name] = image.paused, ends
        if not self._begun:
            return
        if image.paused != paused:
            what = What.MAINTENANCE_BEGAN if image.paused else What.MAINTENANCE_ENDED
            self._put(wall_time(), f"image {name}", what, "it is not built" if image.paused else "it is built again")
        if image.build_requested is not None and image.build_requested != asked:
            self._put(image.build_requested, f"image {name}", What.CHANGED, "a build is asked for")
        for text, (what, actor, at) in ends.items():
            if text not in ended:
                self._put(at or wall_time(), f"image {name}", what, text, actor)


def _ends_of(image: ImageView, host: str) -> dict[str, _End]:
    """Builds and uploads that have ended, or that an operator deletes, each with a text."""
    found: dict[str, _End] = {}

    def look(about: str, record: ImageBuild | ImageUpload) -> None:
        by = record.deleted_by
        if record.state in _ENDS:
            found[f"{about} is {record.state}"] = _ENDS[record.state], host, record.state_time
        elif record.state == states.DELETING and by is not None:
            found[f"{about}: delete by {by}"] = What.CHANGED, by, record.state_time

    for build in image.builds.values():
        if build.record is not None:
            builder = f" of {build.record.builder}" if build.record.builder else ""
            look(f"build {build.id}{builder}", build.record)
        for upload in build.all_uploads():
            look(f"upload {upload.id} of build {build.id} to {upload.provider_name}", upload)
    return found
