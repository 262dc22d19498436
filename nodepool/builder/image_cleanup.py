# SPDX-License-Identifier: Apache-2.0
"""Removal of builds, uploads and files that are not needed any more (rules R-1 to R-17).

First the thread that decides what is removed (`ImageCleanupWorker`), then deletions in the clouds, images in clouds
that no record knows, and the threads of each provider for both.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from typing import Any, Final

from nodepool import log_names
from nodepool.builder import imports
from nodepool.builder.image_files import BuildFile
from nodepool.builder.progress import Shared, UploadKey
from nodepool.builder.uploads import is_of_upload, tell_error
from nodepool.clock import monotonic, wall_time
from nodepool.config.sections import wanted_images
from nodepool.driver import gateway
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.framework.rate import SharedThreads, ThreadShare
from nodepool.driver.framework.uploads import ListedImage
from nodepool.driver.interface import Provider
from nodepool.driver.statemachine import instance
from nodepool.exceptions import BuilderError, ZKConflict, ZKConnectionError, ZKLockException
from nodepool.guard import Guard, settle
from nodepool.metrics import reports
from nodepool.metrics.catalog import UNKNOWN_IMAGES
from nodepool.model import states
from nodepool.model.image import ImagesView
from nodepool.plan.images import (
    DeleteUpload,
    LocalBuild,
    MarkBuild,
    RemoveBuild,
    UploadJob,
    Verdict,
    WantedImages,
    judge_files,
    judge_images,
    left_to_its_builder,
)
from nodepool.plan.retries import Backoff, SeenTwice
from nodepool.runtime.worker import Worker

#: Longest time between two looks; changes come as events.
IDLE_SECONDS: Final = 60.0
#: A warning about builders with other images is repeated after so long.
WARN_SECONDS: Final = 3600.0


class ImageCleanupWorker(Worker):
    """Wake it when something of an image or the configuration has changed.

    :param uploading: uploads that this builder makes now.
    :param publish: called after each look, for gauges; must not block.
    """

    error_text = "Error in the clean-up of images, going on"

    def __init__(
        self, shared: Shared, uploading: Callable[[], Iterable[UploadJob]], publish: Callable[[], None] = lambda: None
    ) -> None:
        log = logging.getLogger(log_names.image_cleanup_worker(0))
        super().__init__("CleanupWorker-0", shared.client, log, IDLE_SECONDS)
        self.shared = shared
        self._uploading = uploading
        self._publish = publish
        self._threads = ProviderThreads("delete")
        self.deletions = CloudDeletions(self, self._threads)
        self.unknown = UnknownImages(self, self._threads)
        self._repeats = Repeats(WARN_SECONDS)
        self._ever_wanted: set[str] = set()
        #: Image and build -> when its record, which kept its files, was last seen; of builds with files here.
        self._recorded: dict[tuple[str, str], float] = {}
        #: The same -> since when it has none.
        self._orphan_since: dict[tuple[str, str], float] = {}

    def on_stop(self) -> None:
        """Deletions in clouds that run are left to themselves: the next builder takes them up."""
        self._threads.close()

    def run_once(self) -> float | None:
        """Look once at everything. Blocks for ZooKeeper and the disk, never for a cloud."""
        view = self.shared.images()
        if view is None:
            return None
        wanted = wanted_images(self.shared.config())
        self._ever_wanted.update(wanted.images)
        verdicts = judge_images(wanted, view, wall_time(), self._ever_wanted)
        uploads = [verdict for verdict in verdicts if isinstance(verdict, DeleteUpload)]
        self.deletions.keep(_upload_keys(view))
        # Only of what is to be deleted now: what another builder has locked, or was kept after all, must not wake us.
        later = [self.deletions.begin(upload) for upload in uploads]
        # Before the records of builds: without them files would stay for an hour.
        with Guard(self.log, "Files in %s are not cleaned", self.shared.files.directory):
            self._clean_files(wanted)
            imports.sweep(self.shared.files)
        waits: list[float] = []
        for verdict in verdicts:
            left = self._left_to_others(verdict, view)
            if left > 0:
                waits.append(left)
                continue
            # one that cannot be carried out stops no other.
            with Guard(self.log, "%s of image %s", type(verdict).__name__, verdict.image, but=ZKConnectionError):
                self._carry_out(verdict)
        self._publish()
        later.append(self.unknown.begin(wanted.providers))
        return min([*waits, *(seconds for seconds in later if seconds is not None)], default=None)

    # -- records --

    def _left_to_others(self, verdict: Verdict, view: ImagesView) -> float:
        """Seconds for which it is left to another builder."""
        if not isinstance(verdict, RemoveBuild):
            return 0.0
        build = view.image(verdict.image).builds.get(verdict.build_id)
        return left_to_its_builder(build, self.shared.builder_id, wall_time())

    def _carry_out(self, verdict: Verdict) -> None:
        try:
            if isinstance(verdict, MarkBuild):
                self._mark(verdict)
            elif isinstance(verdict, RemoveBuild):
                self._remove(verdict)
        except (ZKLockException, ZKConflict) as reason:
            self.log.debug("Build %s is left to the next look: %s", verdict.build_id, reason)

    def _mark(self, verdict: MarkBuild) -> None:
        """R-6, R-14."""
        if verdict.warning and self._repeats.worth_saying((verdict.image, verdict.build_id)):
            self.log.warning("%s", verdict.warning)
        store, image, build_id = self.shared.store, verdict.image, verdict.build_id
        with store.build_id_lock(image, build_id) as lock:
            if verdict.record is None:
                store.replace_bad_build(image, build_id, lock)
            else:
                build = verdict.record.copy()
                build.state = states.DELETING
                store.store_build(build, under=lock)
        self.log.info("Build %s of image %s is being deleted: %s", build_id, image, verdict.reason)

    def _remove(self, verdict: RemoveBuild) -> None:
        store = self.shared.store
        with store.build_id_lock(verdict.image, verdict.build_id) as lock:
            if store.delete_build(verdict.image, verdict.build_id, under=lock):
                self.log.info("Build %s of image %s is removed", verdict.build_id, verdict.image)

    def _has_own_record(self, view: ImagesView) -> bool:
        return any(
            build.record is not None and build.record.builder_id == self.shared.builder_id
            for image in view.images.values()
            for build in image.builds.values()
        )

    # -- files --

    def _clean_files(self, wanted: WantedImages) -> None:
        """R-9, R-10, R-15."""
        shared = self.shared
        # What is being built and uploaded, and the records, are looked at after the files were listed: nothing that was
        # built meanwhile is taken for abandoned.
        found = shared.files.builds()
        building, uploading = shared.builds.ids(), list(self._uploading())
        view = shared.images()
        if view is None:
            return
        self._note_records(found, view)
        local = [
            LocalBuild(
                *key,
                formats=frozenset(file.format for file in files if file.format is not None),
                newest=max(self._recorded.get(key, 0.0), *(_changed(file) for file in files)),
                orphan_since=self._orphan_since.get(key, math.inf),
                running=key[1] in building,
                reading=frozenset(job.format for job in uploading if job.build_id == key[1]),
            )
            for key, files in found.items()
        ]
        verdicts = judge_files(
            local,
            wanted,
            view,
            wall_time(),
            # Now, not ever: ZooKeeper may have been emptied since.
            knows_own_records=self._has_own_record(view),
            clean_orphans=shared.options.clean_orphans,
        )
        for verdict in verdicts:
            self.log.info("Removing files of build %s of image %s: %s", verdict.build_id, verdict.image, verdict.reason)
            shared.files.remove(verdict.image, verdict.build_id, verdict.formats)

    def _note_records(self, found: Iterable[tuple[str, str]], view: ImagesView) -> None:
        """R-15: files whose record vanished without being `deleting` are kept as long as new ones: it may come back."""
        now, recorded, orphan_since = wall_time(), {}, {}
        for key in found:
            build = view.image(key[0]).builds.get(key[1])
            seen = now if build is not None else self._recorded.get(key)
            if seen is not None and (build is None or build.state != states.DELETING):
                recorded[key] = seen
            if build is None:
                orphan_since[key] = self._orphan_since.get(key, now)
        self._recorded, self._orphan_since = recorded, orphan_since


def _upload_keys(view: ImagesView) -> set[UploadKey]:
    """Of all uploads."""
    return {
        UploadKey(image.name, build.id, provider, upload.id)
        for image in view.images.values()
        for build in image.builds.values()
        for provider, uploads in build.uploads.items()
        for upload in uploads
    }


def _changed(file: BuildFile) -> float:
    """When it was changed, in seconds since the epoch; one that does not exist any more is old."""
    try:
        return file.path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


# Deletions of uploaded images in their clouds, in threads: a slow cloud delays no other (rules ).

#: After deletions of one upload that failed in a row. An image may be in use for long.
BACKOFF: Final = Backoff(1.0, 60.0)


class CloudDeletions:
    """Any thread; nothing blocks. ``_lock`` guards the tables and is not held over I/O.

    :param worker: is woken when a deletion has ended.
    :param threads: for calls of providers.
    """

    def __init__(self, worker: ImageCleanupWorker, threads: ProviderThreads) -> None:
        self.log, self._shared, self._on_end = worker.log, worker.shared, worker.wake
        self._threads = threads
        self._lock = threading.Lock()
        #: Begun, and not ended.
        self.running: set[UploadKey] = set()
        #: Deletions that come later: how many failed in a row, and not before when.
        self._later: dict[UploadKey, tuple[int, float]] = {}

    def begin(self, verdict: DeleteUpload) -> float | None:
        """Delete an upload in the background, unless that runs already, has just failed, or its record stays a while.

        :return: seconds until its time comes; None = it runs.
        """
        key = _key(verdict)
        with self._lock:
            if key in self.running:
                return None
            wait_seconds = self._later.get(key, (0, 0.0))[1] - monotonic()
            if wait_seconds > 0:
                return wait_seconds
            self.running.add(key)
        if not self._threads.submit(verdict.provider, lambda: self._run(verdict)):
            # The builder stops.
            with self._lock:
                self.running.discard(key)
        return None

    def keep(self, uploads: Collection[UploadKey]) -> None:
        """Forget what was to come of uploads that do not exist any more.

        One that another builder has locked for a moment stays: builders would otherwise take turns without a pause.

        :param uploads: all that are there.
        """
        with self._lock:
            self._later = {key: value for key, value in self._later.items() if key in uploads or key in self.running}

    # -- in a thread of the provider --

    def _run(self, verdict: DeleteUpload) -> None:
        key = _key(verdict)
        ended: Future[float] = Future()
        settle([ended], lambda: self._delete_unless_changed(verdict))
        error = ended.exception()
        stays_seconds = 0.0 if error is not None else ended.result()
        if error is not None and not self._threads.closed:
            # It is tried again, and keeps no other. At the end of the builder it is left to the next one.
            tell_error(self.log, error, "%s stays for now", _shown(verdict))
        with self._lock:
            self.running.discard(key)
            if error is not None:
                failures = self._later.get(key, (0, 0.0))[0] + 1
                self._later[key] = failures, monotonic() + BACKOFF.pause(failures)
            elif stays_seconds > 0:
                self._later[key] = 0, monotonic() + stays_seconds
            else:
                self._later.pop(key, None)
        self._on_end()

    def _delete_unless_changed(self, verdict: DeleteUpload) -> float:
        try:
            return self._delete(verdict)
        except (ZKLockException, ZKConflict) as reason:
            self.log.debug("%s is left to the next look: %s", _shown(verdict), reason)
            return 0.0

    def _delete(self, verdict: DeleteUpload) -> float:
        """The lock is held all the time: no other builder deletes the same. Blocks; raises what the driver raises.

        :return: seconds for which the record stays; 0 = it is removed.
        """
        place = _key(verdict)
        with self._shared.store.upload_id_lock(*place) as lock:
            record = None if verdict.record is None else verdict.record.copy()
            if record is not None and not self._shared.store.upload_has_data(*place):
                # Another builder has just removed it.
                self._shared.store.delete_upload(*place, under=lock)
                return 0.0
            if record is not None and record.state != states.DELETING:
                # Written with the version that was seen: what has changed since is judged again.
                record.state = states.DELETING
                self._shared.store.store_upload(record)
            provider = self._shared.providers.get(verdict.provider)
            if provider is None:
                raise BuilderError(f"provider {verdict.provider} does not run")
            self.log.info("Deleting %s: %s", _shown(verdict), verdict.reason)
            if verdict.find:
                self._delete_found(provider, verdict)
            elif record is not None:
                gateway.delete_image(provider, record.external_name or "", record.external_id)
            if verdict.stays_seconds <= 0:
                self._shared.store.delete_upload(*place, under=lock)
            return verdict.stays_seconds

    def _delete_found(self, provider: Provider, verdict: DeleteUpload) -> None:
        """Delete what an upload left whose id is not known (R-4, D-3)."""
        try:
            images = gateway.list_images(provider)
        except NotImplementedError:
            # How a driver says that it cannot list images. Nothing can be found then, now or later: the record goes.
            return
        for image in images:
            if is_of_upload(image, verdict.provider, verdict.build_id, verdict.upload_id, verdict.record):
                self.log.warning("Deleting image %s, which %s has left", image.shown_id, _shown(verdict))
                gateway.delete_image(provider, image.name, image.id)
                reports.report_leaks(verdict.provider, "images")


def _key(verdict: DeleteUpload) -> UploadKey:
    return UploadKey(verdict.image, verdict.build_id, verdict.provider, verdict.upload_id)


def _shown(verdict: DeleteUpload) -> str:
    of_image = f"build {verdict.build_id} of image {verdict.image}"
    return f"upload {verdict.upload_id} of {of_image} to provider {verdict.provider}"


# Images in clouds that are marked as ours and have no record (rule D-3).

#: So often each cloud is asked for its images.
LOOK_SECONDS: Final = 600.0
#: The second look comes so soon after one that shows something new.
LOOK_AGAIN_SECONDS: Final = 10.0


class LooksAt:
    """Of one provider."""

    def __init__(self) -> None:
        self.seen: SeenTwice[str] = SeenTwice()
        self.logged: set[str] = set()
        #: Monotonic time of the next look.
        self.due = 0.0
        self.running = False


class UnknownImages:
    """Any thread; nothing blocks. ``_lock`` guards the table; one look of a provider runs at a time.

    :param worker: is woken when a look has ended.
    :param threads: for calls of providers.
    """

    def __init__(self, worker: ImageCleanupWorker, threads: ProviderThreads) -> None:
        self.log, self._shared, self._on_end = worker.log, worker.shared, worker.wake
        self._threads = threads
        self._lock = threading.Lock()
        #: By provider.
        self.looks: dict[str, LooksAt] = {}

    def begin(self, names: Iterable[str]) -> float | None:
        """Look at the providers whose time it is, in the background.

        :param names: of all providers that images are uploaded to.
        :return: seconds until the next one is due; None = there is no provider.
        """
        waits = []
        for name in names:
            provider, now = self._shared.providers.get(name), monotonic()
            if provider is None:
                continue
            with self._lock:
                looks = self.looks.setdefault(name, LooksAt())
                if looks.running:
                    continue
                waits.append(max(0.0, looks.due - now))
                if looks.due > now:
                    continue
                looks.running = self._threads.submit(name, lambda it=looks, of=provider: self._look(it, of))  # type: ignore[misc]
        return min(waits, default=None)

    def _look(self, looks: LooksAt, provider: Provider) -> None:
        ended: Future[None] = Future()
        settle([ended], lambda: self._look_once(looks, provider))
        error = ended.exception()
        # NotImplementedError is how a driver says that it cannot list images: no trouble.
        if error is not None and not isinstance(error, NotImplementedError) and not self._threads.closed:
            tell_error(self.log, error, "Provider %s: images could not be looked for", provider.name)
        again = LOOK_AGAIN_SECONDS if error is None and looks.seen.new else LOOK_SECONDS
        with self._lock:
            looks.due = monotonic() + again
            looks.running = False
        self._on_end()

    def _look_once(self, looks: LooksAt, provider: Provider) -> None:
        # First the cloud, then ZooKeeper: a record is there before its image.
        ours = {found.shown_id: found for found in gateway.list_images(provider) if _upload(found, provider)}
        known = self._shared.store.upload_ids(provider.name)
        unknown = {shown for shown, found in ours.items() if _upload(found, provider) not in known}
        self._shared.registry.set(UNKNOWN_IMAGES.series(provider.name), len(unknown))
        certain = looks.seen.look(unknown)
        section: Any = provider.provider
        for shown in sorted(certain):
            if getattr(section, "clean_leaked_images", False) is True or not ours[shown].usable:
                self.log.warning("Provider %s: deleting image %s, which has no record", provider.name, shown)
                gateway.delete_image(provider, ours[shown].name, ours[shown].id)
                reports.report_leaks(provider.name, "images")
            elif shown not in looks.logged:
                self.log.warning(
                    "Provider %s: image %s (%s) is marked as ours and has no record. It stays unless the provider says "
                    "clean-leaked-images: true; nodepool alien-image-list lists all",
                    *(provider.name, shown, ours[shown].name),
                )
        looks.logged = certain


def _upload(image: ListedImage, provider: Provider) -> tuple[str, str] | None:
    return instance.upload_of(image.metadata, provider.name)


# `ProviderThreads`: a few threads for each provider, so that a slow cloud delays only itself.

#: Of one provider: the clouds bound it anyway, and its API serves other purposes, too.
THREADS: Final = 2


class ProviderThreads:
    """Any thread; nothing blocks. Threads begin with the first work and end without any. ``_lock`` guards the table.

    :param kind: of the work, for the names of the threads.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._shares: dict[str, ThreadShare] = {}
        #: Was it closed? What runs may fail then because providers are stopped, too.
        self.closed = False

    def submit(self, provider: str, call: Callable[[], None]) -> bool:
        """Make a call in a thread of the provider, as soon as one is free. It must not raise.

        :return: False = after `close`: it is not made.
        """
        with self._lock:
            if self.closed:
                return False
            share = self._shares.get(provider)
            if share is None:
                threads = SharedThreads(f"{provider}-images", THREADS)
                share = self._shares[provider] = threads.share(self._kind, THREADS, THREADS)
            share.submit(call)
            return True

    def close(self) -> None:
        """Begin nothing more, and forget what waits. What runs ends in the background."""
        with self._lock:
            self.closed = True
        for share in self._shares.values():
            share.shutdown(wait=False, cancel_futures=True)
