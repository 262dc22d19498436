# SPDX-License-Identifier: Apache-2.0
"""`BuildWorker`: a thread that builds images, one after the other (rules B)."""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.builder.build_attempt import BuildAttempt, BuildServices, BuildSettings
from nodepool.builder.image_files import ImageFiles
from nodepool.builder.progress import RunningBuilds
from nodepool.clock import wall_time
from nodepool.config.sections import wanted_images
from nodepool.driver.framework.fact import Repeats
from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.metrics.registry import Registry
from nodepool.metrics.reports import build_gauges, running_gauges
from nodepool.model.image import ImagesView, ImageView
from nodepool.plan.images import (
    BuildHistory,
    Due,
    NotDue,
    OwnBuilds,
    WantedImage,
    WantedImages,
    build_due,
    observe_builds,
)
from nodepool.runtime.worker import Worker

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.zk.locks import ZkLock


# Failed builds of each image, as this builder has seen them: its own, and those of others (rule B-13).

#: Own failed builds of an image that are remembered by their ids. Their records are gone long before.
_REMEMBERED: Final = 100


class BuildHistories:
    """Shared by the build workers. Any thread, nothing blocks. ``_lock`` guards the rest.

    :param clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = wall_time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._histories: dict[str, BuildHistory] = {}
        #: Own failed builds: their records may be removed before, or after, they are seen as failed.
        self._own: dict[str, deque[str]] = {}

    def look(self, view: ImageView, settings: Hashable) -> BuildHistory:
        """What is known of an image after a look at it.

        :param settings: of the image in the configuration now.
        """
        with self._lock:
            before = self._histories.get(view.name, BuildHistory())
            before = replace(before, counted=before.counted | frozenset(self._own.get(view.name, ())))
            after = self._histories[view.name] = observe_builds(before, view, settings, self._clock())
            return after

    def failed(self, image: str, build_id: str, created_zxid: int, settings: Hashable) -> None:
        """A build of this builder has failed.

        :param created_zxid: ZooKeeper's number of the change that made its record.
        :param settings: with which it was built.
        """
        with self._lock:
            own = self._own.setdefault(image, deque(maxlen=_REMEMBERED))
            before = self._histories.get(image, BuildHistory())
            # Somebody may have looked while its end was being stored.
            more = 0 if build_id in before.counted else 1
            own.append(build_id)
            self._histories[image] = replace(
                before,
                failures=before.failures + more,
                last_failure=self._clock(),
                last_begun_zxid=max(before.last_begun_zxid, created_zxid),
                settings=settings,
            )


#: Longest time between two looks; changes come as events.
IDLE_SECONDS: Final = 60.0
#: The disk is looked at again after so long when there was no room for a build.
SPACE_SECONDS: Final = 60.0
#: A reason that lasts is logged again after so long.
REMIND_SECONDS: Final = 3600.0


class BuildClaims:
    """Images that a worker of this process builds or is about to build.

    The other workers do not build them. ``_lock`` guards.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._images: set[str] = set()

    def take(self, image: str) -> bool:
        """True: it is this caller's until `give_back`."""
        with self._lock:
            if image in self._images:
                return False
            self._images.add(image)
            return True

    def give_back(self, image: str) -> None:
        with self._lock:
            self._images.discard(image)


@dataclass(frozen=True)
class BuildPlan:
    """What the build workers of a builder share.

    :param images: all images as they are known; None = not all of them are known yet.
    """

    services: BuildServices
    images: Callable[[], ImagesView | None]
    config: Callable[[], Config]
    histories: BuildHistories = field(default_factory=BuildHistories)
    claims: BuildClaims = field(default_factory=BuildClaims)
    told: Repeats = field(default_factory=lambda: Repeats(REMIND_SECONDS))


class BuildWorker(Worker):
    """Wake it when something of an image or the configuration has changed.

    A stop ends the thread after its present build. `end_build` ends the build, too.

    :param number: of the worker in its builder, from 0.
    """

    error_text = "Error in a build worker, going on"

    def __init__(self, number: int, plan: BuildPlan) -> None:
        log = logging.getLogger(log_names.build_worker(number))
        super().__init__(f"BuildWorker-{number}", plan.services.client, log, IDLE_SECONDS)
        self._plan = plan
        self._attempt: BuildAttempt | None = None
        self._end_reason = ""
        plan.services.client.add_session_listener(self._on_session)

    def end_build(self, reason: str) -> None:
        """End the build that runs, and begin no other. Any thread; does not block."""
        self._end_reason = self._end_reason or reason
        attempt = self._attempt
        if attempt is not None:
            attempt.stop(self._end_reason)

    def _on_session(self, state: str) -> None:
        attempt = self._attempt
        if state == "lost" and attempt is not None:
            attempt.session_lost()

    def run_once(self) -> float | None:
        """Build what is due and nobody else builds; blocks as long as one build takes.

        :return: seconds until something may be due without a change; 0 after a build: others may be due.
        """
        view = self._plan.images()
        if view is None:
            return None
        wanted = wanted_images(self._plan.config())
        services = self._plan.services
        own = OwnBuilds(services.builder_id, services.files.formats_of_builds())
        waits = []
        for image in _in_order(wanted, view):
            verdict = self._verdict(image, wanted, view.image(image.name), own)
            if isinstance(verdict, NotDue):
                if verdict.look_again_at is not None:
                    waits.append(verdict.look_again_at - wall_time())
                continue
            if self.stopping or self._end_reason:
                return None
            wait_seconds = self._build_alone(image, wanted, view.image(image.name), verdict)
            if wait_seconds is not None:
                waits.append(wait_seconds)
            if wait_seconds == 0:
                break
        return min(waits, default=None)

    def _verdict(self, image: WantedImage, wanted: WantedImages, view: ImageView, own: OwnBuilds) -> Due | NotDue:
        history = self._plan.histories.look(view, image.settings)
        return build_due(image, view, history, wall_time(), wanted.users(image.name), own)

    def _build_alone(self, image: WantedImage, wanted: WantedImages, view: ImageView, due: Due) -> float | None:
        """Build an image if nobody else does (B-3, B-11).

        :return: 0 = it was built, or has changed; None = only a change makes it worth another look.
        """
        # Before the lock: to take and to release it is a change, which makes everybody look again.
        if not self._has_room(view, due):
            return SPACE_SECONDS
        claims = self._plan.claims
        if not claims.take(image.name):
            return None
        try:
            with self._plan.services.store.build_lock(image.name) as lock:
                return self._build(image, wanted, view, due, lock)
        except ZKLockException:
            # Its release is a change.
            return None
        except ZKConflict as reason:
            # The lock was lost before the build began.
            self.log.warning("Image %s is not built: %s", image.name, reason)
            return self.error_wait_seconds
        finally:
            claims.give_back(image.name)

    def _has_room(self, view: ImageView, due: Due) -> bool:
        """Is there space for another build? If not, that is logged now and then."""
        problem = lacking_space(view, self._plan.services.files)
        if not problem:
            self._plan.told.over(view.name)
        elif self._plan.told.worth_saying(view.name):
            self.log.error("Image %s cannot be built, though %s: %s", view.name, due.reason, problem)
        return not problem

    def _build(self, image: WantedImage, wanted: WantedImages, view: ImageView, due: Due, lock: ZkLock) -> float | None:
        if not self._still_as(view):
            # What the decision was made on is old: the change is on its way to us.
            return None
        config = self._plan.config()
        diskimage = config.diskimages.get(image.name)
        if diskimage is None:
            # It went from the configuration meanwhile.
            return None
        self.log.info("Image %s is to be built: %s", image.name, due.reason)
        settings = BuildSettings(
            diskimage,
            image.formats,
            config.build_log_dir,
            config.build_log_retention,
            config.elements_dir,
        )
        attempt = BuildAttempt(self._plan.services, settings, estimate(view), self.log)
        self._attempt = attempt
        try:
            if self._end_reason:
                attempt.stop(self._end_reason)
            ready = attempt.build(lock)
        finally:
            self._attempt = None
        if not ready:
            self._note_failure(image, view, attempt)
        return 0.0

    def _still_as(self, view: ImageView) -> bool:
        """Under the lock: is what ZooKeeper has what the decision was made on?"""
        store = self._plan.services.store
        known = {build.id: build.state for build in view.builds.values() if build.record is not None}
        found = {build.key: build.state for build in store.builds(view.name)}
        request = store.build_request(view.name)
        asked = None if request is None else request.state_time
        return (known, view.paused, view.build_requested) == (found, store.paused(view.name), asked)

    def _note_failure(self, image: WantedImage, view: ImageView, attempt: BuildAttempt) -> None:
        build_id = attempt.record.key
        current = (self._plan.images() or ImagesView()).image(image.name)
        build = current.builds.get(build_id)
        # Unknown, it is as late as the request that it served.
        created = view.request_zxid if build is None else build.created_zxid
        self._plan.histories.failed(image.name, build_id, created, image.settings)


def _in_order(wanted: WantedImages, view: ImagesView) -> Iterator[WantedImage]:
    """Images that somebody asked for first, the longest wait first; the others as they are configured."""

    def key(image: WantedImage) -> float:
        asked = view.image(image.name).build_requested
        return float("inf") if asked is None else asked

    return iter(sorted(wanted.images.values(), key=key))


# What the newest ready build of an image tells of the next one: how long it takes, and how much space.

#: So many times the size of the last build must be free before the next one: it has its temporary files, too.
SPACE_FACTOR = 2


def estimate(view: ImageView) -> float | None:
    """How long the next build may take, in seconds; None = nobody knows."""
    last = next(iter(view.ready_builds()), None)
    return None if last is None or last.record is None else last.record.duration


def lacking_space(view: ImageView, files: ImageFiles) -> str:
    """Why there is no room for another build, in words; empty = there is, or nobody knows. Blocks for the disk."""
    last = next(iter(view.ready_builds()), None)
    if last is None:
        return ""
    told = None if last.record is None else last.record.size
    size = told or sum(files.sizes(view.name, last.id).values())
    free = files.free_bytes()
    if free >= SPACE_FACTOR * size:
        return ""
    return (
        f"{files.directory} has {_gibibytes(free)} free, and the last build takes {_gibibytes(size)}: "
        f"{SPACE_FACTOR} times as much must be free"
    )


def _gibibytes(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB"


# Reports to the metrics of this process what its builder builds.

#: Groups of gauges.
GROUP: Final = "builds"
RUNNING_GROUP: Final = "running builds"


class BuildMetrics:
    """:param images: all images as they are known.

    :param workers: threads that build.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        registry: Registry,
        images: Callable[[], ImagesView],
        config: Callable[[], Config],
        running: RunningBuilds,
        workers: int,
        clock: Callable[[], float] = wall_time,
    ) -> None:
        self._registry = registry
        self._images = images
        self._config = config
        self._running = running
        self._workers = workers
        self._clock = clock
        self._builder = socket.getfqdn()

    def publish(self) -> None:
        """What is now. Any thread; does not block."""
        paused = {name: image.paused for name, image in wanted_images(self._config()).images.items()}
        builds = self._running.current()
        building = [build.image for build in builds]
        self._registry.replace(GROUP, build_gauges(self._builder, self._workers, self._images(), paused, building))
        now = self._clock()
        running = {build.image: (max(0.0, now - build.since), build.estimate) for build in builds}
        self._registry.replace(RUNNING_GROUP, running_gauges(self._builder, running))
