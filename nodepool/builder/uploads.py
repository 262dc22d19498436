# SPDX-License-Identifier: Apache-2.0
"""Uploads of images to providers (rules U).

First the thread that uploads (`UploadWorker`) and the queue that it takes uploads from, then one upload from its lock
to its record (`UploadRun`), the hook that may reject it, and names and metadata of uploaded images.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nodepool import log_names
from nodepool.builder.progress import Meter, Shared, UploadKey
from nodepool.clock import monotonic, sleep, wall_time
from nodepool.config.sections import wanted_images
from nodepool.driver import gateway
from nodepool.driver.framework.uploads import ListedImage, UploadGivenUp, UploadInterrupted, watched
from nodepool.driver.interface import Provider
from nodepool.driver.statemachine import instance
from nodepool.exceptions import BuilderError, ZKConflict, ZKException, ZKLockException
from nodepool.guard import Guard, OnError, as_exception, settle
from nodepool.metrics.catalog import IMAGE_UPDATE
from nodepool.metrics.reports import upload_gauges
from nodepool.model import states
from nodepool.model.image import BuildView, ImageBuild, ImageUpload, ImageView, UploadView
from nodepool.plan.images import (
    UploadFailures,
    UploadHistory,
    UploadJob,
    WantedImages,
    next_upload,
    observe_uploads,
    overtaken,
    uploads_due,
)
from nodepool.plan.launch import meaning
from nodepool.runtime.worker import Worker
from nodepool.tracing import spans
from nodepool.zk.transactions import ZkLock

#: Longest time between two looks; changes come as events.
IDLE_SECONDS: Final = 60.0


class UploadWorker(Worker):
    """Wake it when something of an image, the configuration or the providers has changed.

    A stop ends the running upload as soon as its driver reports progress. The builder does not wait longer for it than
    for other threads (U-11).

    :param number: of the worker in its builder, from 0.
    """

    error_text = "Error in an upload worker, going on"

    def __init__(self, number: int, shared: Shared, queue: UploadQueue) -> None:
        log = logging.getLogger(log_names.upload_worker(number))
        super().__init__(f"UploadWorker-{number}", shared.client, log, IDLE_SECONDS)
        self._shared = shared
        self._queue = queue

    def run_once(self) -> float | None:
        """Make the upload whose turn it is; blocks as long as it takes.

        :return: 0 after an upload: the configuration may have changed (U-7), and there may be others.
        """
        job, wait_seconds = self._queue.take()
        if job is None:
            return wait_seconds
        run = UploadRun(self._shared, job, lambda: self.stopping, self.log)
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


class UploadQueue:
    """Shared by the workers of a builder. Nothing is stored: each look decides anew what is due.

    ``_lock`` guards what runs and what has failed; it is not held over I/O.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
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

    def take(self) -> tuple[UploadJob | None, float | None]:
        """The next upload for a free worker, which calls `ended` after it. Looks at the disk; else does not block.

        :return: None = nothing now; and seconds until there may be something, without a change (None = only a change
            brings something).
        """
        view, now = self._shared.images(), wall_time()
        if view is None:
            return None, None
        wanted = self._served(wanted_images(self._shared.config()))
        formats = self._shared.files.formats_of_builds()
        with self._lock:
            self._history = observe_uploads(self._history, view, now)
            due = uploads_due(wanted, view, formats, self._history, now)
            self._put_off = {key: until for key, until in self._put_off.items() if until > now}
            jobs = [job for job in due.jobs if job.key not in self._put_off]
            workers = self._shared.options.upload_workers
            job = next_upload(jobs, self._running, workers, len(wanted.providers))
            if job is not None:
                self._running.add(job)
                return job, None
            later = [until for until in (due.look_again_at, *self._put_off.values()) if until is not None]
        return None, max(0.0, min(later) - now) if later else None

    def ended(self, job: UploadJob, outcome: Outcome, upload_id: str | None) -> None:
        """An upload of `take` has ended.

        :param upload_id: number of its record; None = there was none.
        """
        now = wall_time()
        with self._lock:
            self._running.discard(job)
            if outcome is Outcome.NOT_DUE:
                self._put_off[job.key] = now + PUT_OFF_SECONDS
            elif outcome is Outcome.FAILED:
                # Its record may be gone before anybody looks.
                failures = self._history.get(job.key, UploadFailures())
                self._history[job.key] = failures.and_one(upload_id or "", now)
            elif outcome is Outcome.READY:
                # The cloud takes uploads: what failed there before is worth another attempt.
                self._forgive(lambda provider: provider == job.provider)

    def configuration_changed(self) -> None:
        """What failed may work now. Any thread; does not block."""
        with self._lock:
            self._forgive(lambda _: True)

    def _forgive(self, which: Callable[[str], bool]) -> None:
        """No pause any more before the next attempt. With ``_lock``."""
        self._history = {
            key: dataclasses.replace(value, last=0.0) if which(key[2]) else value
            for key, value in self._history.items()
        }

    def _served(self, wanted: WantedImages) -> WantedImages:
        """Without providers that cannot be asked now."""
        running = self._shared.providers.running
        providers = {name: images for name, images in wanted.providers.items() if images and name in running}
        return WantedImages(wanted.images, providers)


# Reports to the metrics of this process what its builder uploads.

#: A group of gauges.
GROUP: Final = "uploads"


def publish_uploads(shared: Shared) -> None:
    """What is now. Any thread; does not block."""
    providers = wanted_images(shared.config()).providers
    paused = {(image, name): use.paused for name, images in providers.items() for image, use in images.items()}
    running = {(key.image, key.provider) for key in shared.uploads.current()}
    shared.registry.replace(GROUP, upload_gauges(shared.host, paused, running, shared.options.upload_workers))


# One upload of a build to a provider, from its lock to its record (rules U-2 to U-9, U-12 to U-14).

#: So often an upload that runs is asked whether it is still wanted.
LOOK_SECONDS: Final = 1.0
#: So often an upload asks again whether its lock is held still, without a connection to ZooKeeper.
CERTAIN_LOOK_SECONDS: Final = 0.2
#: Between attempts to delete an image that has no record any more, in seconds.
DELETE_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
#: So often it is asked meanwhile whether the builder stops.
PAUSE_LOOK_SECONDS: Final = 0.2


class Outcome(enum.Enum):
    """How an upload ended."""

    READY = "ready"
    FAILED = "failed"
    #: A newer build came first, or the builder stops.
    GIVEN_UP = "given up"
    #: There was nothing to do: somebody else does it, or has taken it over, or it is done, or not wanted any more.
    NOT_DUE = "not due"


class UploadRun:
    """For one thread.

    :param stopping: does the builder stop? Does not block.
    """

    def __init__(self, shared: Shared, job: UploadJob, stopping: Callable[[], bool], log: logging.Logger) -> None:
        self._shared = shared
        self._job = job
        self._stopping = stopping
        self.log = log
        self._look_at = monotonic() + LOOK_SECONDS
        #: Number of the record, once there is one.
        self.upload_id: str | None = None

    def run(self) -> Outcome:
        """Blocks until it has ended. What the driver raises is logged, and ends in the record.

        :raises ZKConnectionError: whether the record tells the result is not known; it is found as abandoned, if not.
        """
        try:
            with self._shared.store.upload_lock(*self._job.key) as lock:
                return self._under_lock(lock)
        except ZKLockException as reason:
            self.log.debug("Not uploading %s: %s", self, reason)
        except ZKConflict as reason:
            if self.upload_id is not None:
                self.log.warning("Upload of %s, number %s, is lost: %s", self, self.upload_id, reason)
            else:
                self.log.debug("Not uploading %s: %s", self, reason)
        return Outcome.NOT_DUE

    def __str__(self) -> str:
        return f"build {self._job.build_id} of image {self._job.image} to provider {self._job.provider}"

    # -- is it due? --

    def _under_lock(self, lock: ZkLock) -> Outcome:
        shared, job = self._shared, self._job
        config = shared.config()
        section: Any = config.providers.get(job.provider)
        diskimage = config.diskimages.get(job.image)
        provider_image = getattr(section, "diskimages", {}).get(job.image)
        provider = shared.providers.get(job.provider)
        build = shared.store.build(job.image, job.build_id)
        path = shared.files.path(job.image, job.build_id, job.format)
        if diskimage is None or provider_image is None or provider is None or getattr(provider_image, "pause", False):
            return Outcome.NOT_DUE
        # Also the size: somebody may remove the file at any time.
        size = _size_of(path)
        if build is None or build.state != states.READY or self._is_there() or size is None:
            return Outcome.NOT_DUE
        upload = ImageUpload(job.image, job.build_id, job.provider)
        upload.state = states.UPLOADING
        self.upload_id = shared.store.new_upload(upload, under=lock)
        target = _Target(section, provider, provider_image, diskimage.metadata, path)
        key = UploadKey(job.image, job.build_id, job.provider, upload.key)
        with shared.uploads.running(key, Meter(size)) as meter:
            return self._upload(target, build, upload, lock, meter)

    def _is_there(self) -> bool:
        """Has the build a ready upload there?"""
        found = self._shared.store.uploads(*self._job.key)
        return any(upload.state == states.READY for upload in found)

    # -- the upload --

    def _upload(self, target: _Target, build: ImageBuild, upload: ImageUpload, lock: ZkLock, meter: Meter) -> Outcome:
        begun = monotonic()
        self.log.info("Uploading %s, number %s, file %s", self, upload.id, target.path)
        transfer: Future[None] = Future()
        settle([transfer], lambda: self._transfer(target, upload, lock, meter))
        error = transfer.exception()
        if error is not None:
            self._trace(upload, monotonic() - begun, "failed", str(error) or type(error).__name__)
            if isinstance(error, UploadInterrupted) and getattr(target.section, "resumes_uploads", False):
                # The record stays as it is: the next upload of the build there goes on with what was done.
                self.log.info("Upload of %s is interrupted: %s", self, error)
                return Outcome.GIVEN_UP
            return self._failed(upload, lock, as_exception(error))
        upload.format = self._job.format
        upload.username, upload.python_path, upload.shell_type = build.username, build.python_path, build.shell_type
        try:
            outcome = self._store(upload, lock)
        except ZKConflict:
            # Somebody took it for abandoned, and may have looked for the image before it was there.
            self._delete_without_record(upload)
            raise
        seconds = monotonic() - begun
        self._trace(upload, seconds, outcome.value, "")
        if outcome is Outcome.READY:
            self._shared.registry.time(IMAGE_UPDATE.series(self._job.image, self._job.provider), seconds)
            what = "ready" if upload.candidate is None else "a candidate"
            self.log.info(
                "Image %s (%s) is %s in %s", upload.external_name, upload.external_id, what, self._job.provider
            )
        return outcome

    def _trace(self, upload: ImageUpload, seconds: float, outcome: str, error: str) -> None:
        job = self._job
        spans.upload_ended(job.image, job.build_id, job.provider, upload.key, seconds, outcome, error)

    def _transfer(self, target: _Target, upload: ImageUpload, lock: ZkLock, meter: Meter) -> None:
        """Send the file, and ask the hook. Sets id and name of the image; raises whatever the driver raises."""
        job, shared = self._job, self._shared
        name = external_name(target.section.image_name_format, job.image, upload.key, int(wall_time()))
        # Should this builder die, the name helps to find what it left.
        upload.external_name = name
        shared.store.store_upload(upload, under=lock)
        checksums = shared.files.checksums(job.image, job.build_id, job.format)
        meta = properties(target.metadata, target.provider_image, job.provider, job.build_id, upload.key)
        with watched(lambda done, total: self._report(meter, lock, done, total), lambda: self._check(lock)):
            external_id = gateway.upload_image(
                target.provider,
                target.provider_image,
                name,
                str(target.path),
                image_type=job.format,
                meta=meta,
                md5=checksums.md5,
                sha256=checksums.sha256,
            )
        if not external_id:
            raise BuilderError(f"the driver of provider {job.provider} gave no id of image {name}")
        upload.external_id = external_id
        hook = getattr(target.section, "post_upload_hook", None)
        if hook:
            # U-8: it leaves nothing in the cloud that was not accepted.
            with OnError(lambda _: self._delete(target.provider, upload)):
                run_hook(hook, job.provider, str(external_id), str(target.path))

    def _report(self, meter: Meter, lock: ZkLock, done: int, total: int) -> None:
        """The driver says how far it is. Raises UploadGivenUp: nobody wants it any more."""
        if meter.report(done, total):
            self._shared.uploads.on_change()
        self._check_possible(lock)
        now = monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            view = self._shared.images()
            reason = None if view is None else self._overtaken(view.image(self._job.image))
            if reason is not None:
                raise UploadGivenUp(reason)

    def _check_possible(self, lock: ZkLock) -> None:
        """Raises UploadInterrupted: this builder cannot go on with it. Does not block."""
        if self._stopping():
            raise UploadInterrupted("the builder stops")
        if self._shared.store.is_lost(lock):
            raise UploadInterrupted("the session with ZooKeeper was lost, and the lock with it")

    def _check(self, lock: ZkLock) -> None:
        """Is the lock held beyond doubt? Blocks while that is not known. Raises UploadInterrupted: it is not.

        Who finds the lock free deletes what the upload has made so far: nothing may be made after that.
        """
        self._check_possible(lock)
        while not self._shared.store.is_certain(lock):
            sleep(CERTAIN_LOOK_SECONDS)
            self._check_possible(lock)

    def _overtaken(self, view: ImageView) -> str | None:
        return overtaken(view.builds.get(self._job.build_id), view, self._job.provider)

    # -- its record --

    def _failed(self, upload: ImageUpload, lock: ZkLock, error: Exception) -> Outcome:
        """U-6. Its record goes when the cloud was asked for what may be left (D-3)."""
        given_up = isinstance(error, UploadGivenUp)
        if given_up:
            self.log.info("Upload of %s is abandoned: %s", self, error)
        else:
            tell_error(self.log, error, "Upload of %s failed", self)
        if upload.external_id is None:
            # As in 11.0.0: it has nothing but its state.
            upload.external_name = None
        upload.state = states.FAILED
        self._shared.store.store_upload(upload, under=lock)
        return Outcome.GIVEN_UP if given_up else Outcome.FAILED

    def _store(self, upload: ImageUpload, lock: ZkLock) -> Outcome:
        """The image is in the cloud: is it the newest there (U-12)?

        Launchers choose by the time of the record. The look before keeps an overtaken upload from being ready; the one
        after finds a newer build that became ready in between.
        """
        view = self._view_now()
        if self._is_given_up(view, upload, lock):
            return Outcome.GIVEN_UP
        diskimage = self._shared.config().diskimages.get(self._job.image)
        promotion = None if diskimage is None else diskimage.promotion
        current = view.current_upload(self._job.provider)
        if promotion is None or current is None:
            upload.state = states.READY
        else:
            upload.become_candidate(promotion, current)
        self._shared.store.store_upload(upload, under=lock)
        return Outcome.GIVEN_UP if self._is_given_up(self._view_now(), upload, lock) else Outcome.READY

    def _is_given_up(self, view: ImageView, upload: ImageUpload, lock: ZkLock) -> bool:
        """Was it overtaken? Then it is `deleting` from now on, and the clean-up deletes it."""
        reason = self._overtaken(view)
        if reason is None:
            return False
        self.log.info("Upload of %s is abandoned: %s", self, reason)
        upload.state = states.DELETING
        self._shared.store.store_upload(upload, under=lock)
        return True

    def _view_now(self) -> ImageView:
        """What ZooKeeper has of the image and the provider: a cache may be late."""
        store, image, provider = self._shared.store, self._job.image, self._job.provider
        views: dict[str, BuildView] = {}
        for record in store.builds(image):
            uploads = tuple(UploadView(one.key, one) for one in store.uploads(image, record.key, provider))
            views[record.key] = BuildView(record.key, record, uploads={provider: uploads})
        return ImageView(image, builds=views)

    def _delete_without_record(self, upload: ImageUpload) -> None:
        """Nobody else will delete this image: try again while the cloud refuses. Blocks, not after the builder's stop.

        The provider may be another one by then: a configuration that changes replaces it.
        """
        for pause_seconds in (*DELETE_PAUSES, 0.0):
            provider = self._shared.providers.get(self._job.provider)
            if provider is not None:
                self._delete(provider, upload)
            deadline = monotonic() + pause_seconds
            while upload.external_id is not None and not self._stopping() and monotonic() < deadline:
                sleep(PAUSE_LOOK_SECONDS)
            if upload.external_id is None or self._stopping():
                return

    def _delete(self, provider: Provider, upload: ImageUpload) -> None:
        """Take the image away again; if that fails its record keeps the id, and the clean-up does it."""
        with Guard(self.log, "Image %s stays for now", upload.external_id, but=ZKException, traceback=False):
            gateway.delete_image(provider, upload.external_name or "", upload.external_id)
            upload.external_id = None


@dataclass(frozen=True)
class _Target:
    """Where an upload goes, by the configuration at its beginning.

    :param section: of the provider.
    :param metadata: of the image in every cloud.
    """

    section: Any
    provider: Provider
    provider_image: Any
    metadata: dict[str, Any]
    path: Path


def _size_of(path: Path) -> int | None:
    """Of a file, in bytes; None = there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


# The program of an administrator that accepts or rejects an upload (rule U-8, reference/configuration 9).

log = logging.getLogger("nodepool.builder.uploads")

#: A program that takes longer is ended.
HOOK_SECONDS: Final = 3600.0
#: So much of what it writes goes into the log: its end.
OUTPUT_BYTES: Final = 16 * 1024


class PostUploadHookFailed(BuilderError):
    """The program did not accept the upload, or could not be run."""


def run_hook(program: str, provider: str, external_id: str, filename: str, seconds: float = HOOK_SECONDS) -> None:
    """Run it as ``<program> <provider> <external id> <file>``; blocks until it has ended. Exit code 0 = accepted.

    :param seconds: after these it is killed, with what it started.
    :raises PostUploadHookFailed: it does not accept the upload; what it wrote is in the log.
    """
    command = [program, provider, external_id, filename]
    with tempfile.TemporaryFile() as output:
        try:
            code = _wait(command, output.fileno(), seconds)
        except OSError as error:
            raise PostUploadHookFailed(f"{program} cannot be run: {error}") from error
        except subprocess.TimeoutExpired:
            problem = f"took longer than {seconds:g} s"
        else:
            problem = f"exit code {code}" if code else ""
        written = _end_of(output.fileno())
    if written:
        log.log(logging.ERROR if problem else logging.INFO, "Output of %s: %s", program, written)
    if problem:
        raise PostUploadHookFailed(f"{program} does not accept image {external_id}: {problem}")


def _wait(command: list[str], output: int, seconds: float) -> int:
    """Run a command in a session of its own. Returns its exit code."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return process.wait(seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _end_of(output: int) -> str:
    size = os.fstat(output).st_size
    data = os.pread(output, OUTPUT_BYTES, max(0, size - OUTPUT_BYTES))
    return data.decode("utf-8", "replace").strip()


# Names and metadata of uploaded images, and how an image is recognised by them (rules U-3, U-4, D-1, R-4).

#: A time in the name of an image is that of its record, give or take so many seconds.
_NAME_SECONDS: Final = 3600.0


def external_name(form: str, image: str, upload_id: str, timestamp: int) -> str:
    """Name of an image in the cloud (U-3).

    :param form: ``image-name-format``.
    :param timestamp: seconds since the epoch.
    :raises BuilderError: the format has a field that there is not.
    """
    try:
        return form.format(image_name=image, upload_id=upload_id, timestamp=str(timestamp))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise BuilderError(
            f"image-name-format {form!r} cannot be used: {type(error).__name__}: {error}; it knows the fields "
            "image_name, upload_id and timestamp"
        ) from error


def properties(
    of_image: Mapping[str, Any], provider_image: Any, provider: str, build_id: str, upload_id: str
) -> dict[str, Any]:
    """What is stored with the image (U-4): of the image, of the provider's image, and whose it is (D-1).

    :param of_image: ``metadata`` of the image.
    :param provider_image: ``meta``, or ``tags`` as some drivers call it, win over it.
    """
    own = getattr(provider_image, "meta", None) or getattr(provider_image, "tags", None) or {}
    ours = {instance.PROVIDER_KEY: provider, instance.BUILD_KEY: build_id, instance.UPLOAD_KEY: upload_id}
    return {**of_image, **own, **ours}


def is_of_upload(image: ListedImage, provider: str, build_id: str, upload_id: str, record: ImageUpload | None) -> bool:
    """Is an image in the cloud what an upload has made there (R-4)?

    By its ids. An image that has none of ours, because the cloud keeps none or they were to be added later, is known by
    its name, if nothing else can have the same: it holds the time of the upload.

    :param record: of the upload; None = it is unreadable.
    """
    ids = instance.upload_of(image.metadata, provider)
    if ids is not None:
        return ids == (build_id, upload_id)
    if instance.PROVIDER_KEY in image.metadata or record is None or not record.external_name:
        return False
    return image.name == record.external_name and _tells_time(record.external_name, record.state_time or 0.0)


def _tells_time(name: str, seconds: float) -> bool:
    return any(abs(int(digits) - seconds) < _NAME_SECONDS for digits in re.findall(r"\d{9,11}", name))


# How errors of work with images get into the log: the text of those that explain themselves, else all of it.


def tell_error(log: logging.Logger, error: BaseException, text: str, *args: object) -> None:
    """Log an error behind a text.

    :param args: of the text.
    """
    if isinstance(error, BuilderError) or meaning(error).expected:
        log.error("%s: %s: %s", text % args, type(error).__name__, error)
    else:
        log.error(text, *args, exc_info=error)
