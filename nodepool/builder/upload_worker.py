# SPDX-License-Identifier: Apache-2.0
"""`UploadWorker`: a thread that uploads images, one after the other."""

from __future__ import annotations

import dataclasses
import logging
import math
import socket
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool import log_names
from nodepool.builder.image_files import ImageFiles
from nodepool.builder.progress import RunningUploads
from nodepool.builder.upload_run import Outcome, UploadRun, UploadServices
from nodepool.clock import monotonic, wall_time
from nodepool.config.sections import wanted_images
from nodepool.metrics.registry import Registry
from nodepool.metrics.reports import progress_gauges, upload_gauges
from nodepool.model.image import ImagesView
from nodepool.plan.images import UploadHistory, UploadJob, WantedImages, next_upload, observe_uploads, uploads_due
from nodepool.runtime.worker import Worker
from nodepool.zk.client import ZooKeeperClient

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.interface import Provider

#: Longest time between two looks; changes come as events.
IDLE_SECONDS: Final = 60.0


class UploadWorker(Worker):
    """Wake it when something of an image, the configuration or the providers has changed.

    A stop ends the running upload as soon as its driver reports progress. The builder does not wait longer for it than
    for other threads (U-11).

    :param number: of the worker in its builder, from 0.
    """

    error_text = "Error in an upload worker, going on"

    def __init__(self, number: int, client: ZooKeeperClient, queue: UploadQueue, services: UploadServices) -> None:
        log = logging.getLogger(log_names.upload_worker(number))
        super().__init__(f"UploadWorker-{number}", client, log, IDLE_SECONDS)
        self._queue = queue
        self._services = services

    def run_once(self) -> float | None:
        """Make the upload whose turn it is; blocks as long as it takes.

        :return: 0 after an upload: the configuration may have changed (U-7), and there may be others.
        """
        job, wait_seconds = self._queue.take()
        if job is None:
            return wait_seconds
        run = UploadRun(self._services, job, lambda: self.stopping, self.log)
        outcome: Outcome | None = None
        try:
            outcome = run.run()
        finally:
            if outcome is None:
                # Without a record the cloud had no part in it.
                outcome = Outcome.NOT_DUE if run.upload_id is None else Outcome.FAILED
            self._queue.ended(job, outcome, run.upload_id)
        return 0.0


# `UploadQueue`: which upload does a free worker begin? (rules U-1, U-6, U-15)

#: An upload that somebody else is making, or that turned out not to be due, is not looked at again before.
PUT_OFF_SECONDS: Final = 2.0


class Taken(NamedTuple):
    """What a worker does next.

    :param job: None = nothing now.
    :param wait_seconds: until there may be something, without a change; None = only a change brings something.
    """

    job: UploadJob | None
    wait_seconds: float | None = None


class UploadQueue:
    """Shared by the workers of a builder. Nothing is stored: each look decides anew what is due.

    ``_lock`` guards what runs and what has failed; it is not held over I/O.

    :param images: all images as they are known; None = not all of them are known yet.
    :param running_providers: those that can be asked.
    :param workers: how many there are.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        images: Callable[[], ImagesView | None],
        config: Callable[[], Config],
        running_providers: Callable[[], Mapping[str, Provider]],
        files: ImageFiles,
        workers: int,
        clock: Callable[[], float] = wall_time,
    ) -> None:
        self.workers = workers
        self._images = images
        self._config = config
        self._running_providers = running_providers
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()
        self._running: set[UploadJob] = set()
        self._history = UploadHistory()
        #: Image, build and provider -> not before this time.
        self._put_off: dict[tuple[str, str, str], float] = {}

    @property
    def running(self) -> frozenset[UploadJob]:
        """Uploads that this builder makes now. Any thread; does not block."""
        with self._lock:
            return frozenset(self._running)

    def take(self) -> Taken:
        """The next upload for a free worker, which calls `ended` after it. Looks at the disk; else does not block."""
        view, now = self._images(), self._clock()
        if view is None:
            return Taken(None)
        wanted = self._served(wanted_images(self._config()))
        formats = self._files.formats_of_builds()
        with self._lock:
            self._history = observe_uploads(self._history, view, now)
            due = uploads_due(wanted, view, formats, self._history, now)
            self._put_off = {key: until for key, until in self._put_off.items() if until > now}
            jobs = [job for job in due.jobs if job.key not in self._put_off]
            job = next_upload(jobs, self._running, self.workers, len(wanted.providers))
            if job is not None:
                self._running.add(job)
                return Taken(job)
            later = [until for until in (due.look_again_at, *self._put_off.values()) if until is not None]
        return Taken(None, max(0.0, min(later) - now) if later else None)

    def ended(self, job: UploadJob, outcome: Outcome, upload_id: str | None) -> None:
        """An upload of `take` has ended.

        :param upload_id: number of its record; None = there was none.
        """
        now = self._clock()
        with self._lock:
            self._running.discard(job)
            if outcome is Outcome.NOT_DUE:
                self._put_off[job.key] = now + PUT_OFF_SECONDS
            elif outcome is Outcome.FAILED:
                # Its record may be gone before anybody looks.
                failures = self._history.of(*job.key).and_one(upload_id or "", now)
                self._history = UploadHistory({**self._history.failures, job.key: failures})
            elif outcome is Outcome.READY:
                # The cloud takes uploads: what failed there before is worth another attempt.
                self._forgive(lambda provider: provider == job.provider)

    def configuration_changed(self) -> None:
        """What failed may work now. Any thread; does not block."""
        with self._lock:
            self._forgive(lambda _: True)

    def _forgive(self, which: Callable[[str], bool]) -> None:
        """No pause any more before the next attempt. With ``_lock``."""
        failures = {
            key: dataclasses.replace(value, last=0.0) if which(key[2]) else value
            for key, value in self._history.failures.items()
        }
        self._history = UploadHistory(failures)

    def _served(self, wanted: WantedImages) -> WantedImages:
        """Without providers that cannot be asked now."""
        running = self._running_providers()
        providers = {name: images for name, images in wanted.providers.items() if images and name in running}
        return WantedImages(wanted.images, providers)


# Reports to the metrics of this process what its builder uploads.

#: Groups of gauges.
GROUP: Final = "uploads"
PROGRESS_GROUP: Final = "progress of uploads"
#: Between two times at which it is told how far uploads are.
PROGRESS_SECONDS: Final = 5.0


class UploadMetrics:
    """Any thread; does not block. ``_lock`` guards ``_told_at``.

    :param workers: threads that upload.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        registry: Registry,
        config: Callable[[], Config],
        running: RunningUploads,
        workers: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._registry = registry
        self._config = config
        self._running = running
        self._workers = workers
        self._clock = clock
        self._builder = socket.getfqdn()
        self._lock = threading.Lock()
        self._told_at = -math.inf

    def publish(self) -> None:
        """What is now."""
        providers = wanted_images(self._config()).providers
        paused = {(image, name): use.paused for name, images in providers.items() for image, use in images.items()}
        running = {(key.image, key.provider) for key in self._running.states()}
        self._registry.replace(GROUP, upload_gauges(self._builder, paused, running, self._workers))

    def progress(self) -> None:
        """An upload has begun, ended or got on: how far all are, but not as often as that."""
        states = self._running.states()
        now = self._clock()
        with self._lock:
            if states and now - self._told_at < PROGRESS_SECONDS:
                return
            self._told_at = now
        running = {(key.image, key.provider): (state.percent, state.bytes_per_second) for key, state in states.items()}
        self._registry.replace(PROGRESS_GROUP, progress_gauges(self._builder, running))
