# SPDX-License-Identifier: Apache-2.0
"""`ImageCleanupWorker`: removes builds, uploads and files that are not needed any more (rules R-1 to R-17)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.builder.cloud_cleanup import CloudDeletions, ProviderThreads, UnknownImages
from nodepool.builder.image_files import BuildFile, ImageFiles
from nodepool.builder.upload_run import ProviderTable
from nodepool.clock import wall_time
from nodepool.config.sections import wanted_images
from nodepool.driver.framework.fact import Repeats
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.guard import Guard
from nodepool.metrics.registry import Registry
from nodepool.metrics.statsd import REGISTRY
from nodepool.model import states
from nodepool.model.image import ImagesView
from nodepool.plan.image_cleanup import (
    DeleteUpload,
    LocalBuild,
    MarkBuild,
    RemoveBuild,
    Verdict,
    judge_files,
    judge_images,
    left_to_its_builder,
)
from nodepool.plan.images import UploadJob, WantedImages
from nodepool.runtime.worker import Worker
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.images import ImageStore

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: Longest time between two looks; changes come as events.
IDLE_SECONDS: Final = 60.0
#: A warning about builders with other images is repeated after so long.
WARN_SECONDS: Final = 3600.0


def _nothing() -> None:
    """Stands for who publishes."""


@dataclass(frozen=True)
class CleanupServices:
    """What the clean-up uses.

    :param images: all images as they are known; None = not all of them are known yet.
    :param building: ids of the builds that this builder makes now.
    :param uploading: uploads that this builder makes now.
    :param builder_id: of this builder.
    :param clean_orphans: the operator said that files without a record may go.
    :param publish: called after each look, for gauges; must not block.
    """

    store: ImageStore
    images: Callable[[], ImagesView | None]
    config: Callable[[], Config]
    providers: ProviderTable
    files: ImageFiles
    building: Callable[[], Collection[str]]
    uploading: Callable[[], Iterable[UploadJob]]
    builder_id: str
    clean_orphans: bool = False
    publish: Callable[[], None] = _nothing
    registry: Registry = REGISTRY


class ImageCleanupWorker(Worker):
    """Wake it when something of an image or the configuration has changed.

    :param clock: seconds since the epoch.
    """

    error_text = "Error in the clean-up of images, going on"

    def __init__(
        self, client: ZooKeeperClient, services: CleanupServices, clock: Callable[[], float] = wall_time
    ) -> None:
        log = logging.getLogger(log_names.image_cleanup_worker(0))
        super().__init__("CleanupWorker-0", client, log, IDLE_SECONDS)
        self._services = services
        self._clock = clock
        self._threads = ProviderThreads("delete")
        self.deletions = CloudDeletions(services.store, services.providers, self._threads, log, self.wake)
        self.unknown = UnknownImages(
            services.store, services.providers, self._threads, services.registry, log, self.wake
        )
        self._repeats = Repeats(WARN_SECONDS)
        self._ever_wanted: set[str] = set()
        #: Image and build -> when its record, which kept its files, was last seen; of builds with files here.
        self._recorded: dict[tuple[str, str], float] = {}
        #: The same -> since when it has none.
        self._orphan_since: dict[tuple[str, str], float] = {}

    def on_stop(self) -> None:
        """Deletions in clouds that run are left to themselves: whoever comes next takes them up."""
        self._threads.close()

    def run_once(self) -> float | None:
        """Look once at everything. Blocks for ZooKeeper and the disk, never for a cloud."""
        view = self._services.images()
        if view is None:
            return None
        wanted = wanted_images(self._services.config())
        self._ever_wanted.update(wanted.images)
        verdicts = judge_images(wanted, view, self._clock(), self._ever_wanted)
        uploads = [verdict for verdict in verdicts if isinstance(verdict, DeleteUpload)]
        self.deletions.keep(_upload_keys(view))
        # Only of what is to be deleted now: what somebody else has locked, or was kept after all, must not wake us.
        later = [self.deletions.begin(upload) for upload in uploads]
        # Before the records of builds: without them files would stay for an hour.
        with Guard(self.log, "Files in %s are not cleaned", self._services.files.directory):
            self._clean_files(wanted)
        waits: list[float] = []
        for verdict in verdicts:
            left = self._left_to_others(verdict, view)
            if left > 0:
                waits.append(left)
                continue
            # one that cannot be carried out stops no other.
            with Guard(self.log, "%s of image %s", type(verdict).__name__, verdict.image, but=ZKConnectionError):
                self._carry_out(verdict)
        self._services.publish()
        later.append(self.unknown.begin(wanted.providers))
        return min([*waits, *(seconds for seconds in later if seconds is not None)], default=None)

    # -- records --

    def _left_to_others(self, verdict: Verdict, view: ImagesView) -> float:
        """Seconds for which it is left to another builder."""
        if not isinstance(verdict, RemoveBuild):
            return 0.0
        build = view.image(verdict.image).builds.get(verdict.build_id)
        return left_to_its_builder(build, self._services.builder_id, self._clock())

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
        store, image, build_id = self._services.store, verdict.image, verdict.build_id
        with store.build_id_lock(image, build_id) as lock:
            if verdict.record is None:
                store.replace_bad_build(image, build_id, lock)
            else:
                build = verdict.record.copy()
                build.state = states.DELETING
                store.store_build(build, under=lock)
        self.log.info("Build %s of image %s is being deleted: %s", build_id, image, verdict.reason)

    def _remove(self, verdict: RemoveBuild) -> None:
        store = self._services.store
        with store.build_id_lock(verdict.image, verdict.build_id) as lock:
            if store.delete_build(verdict.image, verdict.build_id, under=lock):
                self.log.info("Build %s of image %s is removed", verdict.build_id, verdict.image)

    def _has_own_record(self, view: ImagesView) -> bool:
        return any(
            build.record is not None and build.record.builder_id == self._services.builder_id
            for image in view.images.values()
            for build in image.builds.values()
        )

    # -- files --

    def _clean_files(self, wanted: WantedImages) -> None:
        """R-9, R-10, R-15."""
        services = self._services
        # What is being built and uploaded, and the records, are looked at after the files were listed: nothing that was
        # built meanwhile is taken for abandoned.
        found = list(services.files.builds().items())
        building, uploading = set(services.building()), list(services.uploading())
        view = services.images()
        if view is None:
            return
        self._note_records(found, view)
        local = [
            _local(
                (image, build_id),
                files,
                self._recorded.get((image, build_id), 0.0),
                self._orphan_since.get((image, build_id), math.inf),
                building,
                uploading,
            )
            for (image, build_id), files in found
        ]
        verdicts = judge_files(
            local,
            wanted,
            view,
            self._clock(),
            # Now, not ever: ZooKeeper may have been emptied since.
            knows_own_records=self._has_own_record(view),
            clean_orphans=services.clean_orphans,
        )
        for verdict in verdicts:
            self.log.info("Removing files of build %s of image %s: %s", verdict.build_id, verdict.image, verdict.reason)
            services.files.remove(verdict.image, verdict.build_id, verdict.formats)

    def _note_records(self, found: Iterable[tuple[tuple[str, str], list[BuildFile]]], view: ImagesView) -> None:
        """R-15: files whose record vanished without being `deleting` are kept as long as new ones: it may come back."""
        now, recorded, orphan_since = self._clock(), {}, {}
        for key, _ in found:
            build = view.image(key[0]).builds.get(key[1])
            seen = now if build is not None else self._recorded.get(key)
            if seen is not None and (build is None or build.state != states.DELETING):
                recorded[key] = seen
            if build is None:
                orphan_since[key] = self._orphan_since.get(key, now)
        self._recorded, self._orphan_since = recorded, orphan_since


def _upload_keys(view: ImagesView) -> set[tuple[str, str, str, str]]:
    """Image, build, provider and number of all uploads."""
    return {
        (image.name, build.id, provider, upload.id)
        for image in view.images.values()
        for build in image.builds.values()
        for provider, uploads in build.uploads.items()
        for upload in uploads
    }


def _local(
    build: tuple[str, str],
    files: Iterable[BuildFile],
    recorded: float,
    orphan_since: float,
    building: Collection[str],
    uploading: Iterable[UploadJob],
) -> LocalBuild:
    """A build with files, by image and id.

    :param recorded: when it was last seen to have a record, in seconds since the epoch.
    :param orphan_since: see `LocalBuild`.
    """
    found = list(files)
    image, build_id = build
    return LocalBuild(
        image,
        build_id,
        formats=frozenset(file.format for file in found if file.format is not None),
        newest=max(recorded, *(_changed(file) for file in found)),
        orphan_since=orphan_since,
        running=build_id in building,
        reading=frozenset(job.format for job in uploading if job.build_id == build_id),
    )


def _changed(file: BuildFile) -> float:
    """When it was changed, in seconds since the epoch; one that is gone is old."""
    try:
        return file.path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0
