# SPDX-License-Identifier: Apache-2.0
"""`BuildWorker`: a thread that builds images, one after the other (rules B)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.builder import last_build
from nodepool.builder.build_attempt import BuildAttempt, BuildServices, BuildSettings
from nodepool.builder.build_histories import BuildHistories
from nodepool.clock import wall_time
from nodepool.config.image_use import wanted_images
from nodepool.driver.framework.repeats import Repeats
from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model.image_view import ImagesView, ImageView
from nodepool.plan.image_builds import Due, NotDue, OwnBuilds, build_due
from nodepool.plan.wanted_images import WantedImage, WantedImages
from nodepool.runtime.worker import Worker

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.zk.locks import ZkLock

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
        problem = last_build.lacking_space(view, self._plan.services.files)
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
        attempt = BuildAttempt(self._plan.services, settings, last_build.estimate(view), self.log)
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
