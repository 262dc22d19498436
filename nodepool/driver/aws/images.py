# SPDX-License-Identifier: Apache-2.0
"""Uploaded images of one AWS provider: upload, deletion, list, and what uploads have left (AW-17 to AW-20).

First `AwsImages`, then the two kinds of uploads: imports from S3
(`ImportUpload`), and blocks of a snapshot (`BlockUpload`).
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.aws.config import EBS_DIRECT, IMAGE
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.image_store import (
    PREFIX,
    ImageJob,
    ObjectStore,
    S3Upload,
    UploadWait,
    file_problem,
    import_arguments,
    metadata_of_key,
    provider_prefix,
    registration,
    snapshot_start,
)
from nodepool.driver.aws.types import AVAILABLE, COMPLETED, ERROR, FAILED_TASKS, PENDING, AwsSnapshot, ImportTask
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.uploads import ImageUploader, ListedImage, PartsUpload, Segment, UploadInterrupted
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, CloudResource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.instance import PROVIDER_KEY
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import OnError

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.config import AwsProviderConfig
    from nodepool.driver.aws.types import AwsImage

log = logging.getLogger("nodepool.driver.aws.images")

#: Longest time until a new AMI can be used, and until one that was deleted is listed no more.
AVAILABLE_SECONDS: Final = 3600.0
_DUPLICATE: Final = "InvalidAMIName.Duplicate"
_DEAD_IMAGE: Final = ("failed", "error", "invalid", "deregistered")

# What uploads can leave, by kind (AW-20). Only what carries our tags, or has a key of ours, is asked for. Results of
# imports have no tags at first: they are found by their task, and get its tags, so that nothing of others is looked at.

AMI: Final = "ami"
SNAPSHOT: Final = "snapshot"
IMPORT: Final = "import"
OBJECT: Final = "object"
PARTS: Final = "part"
#: Between two looks of a provider to which no images are uploaded now.
IDLE_SECONDS: Final = 600.0


class AwsImages:
    """Of one provider. All methods block; any thread may call them."""

    def __init__(self, config: AwsProviderConfig, ec2: Ec2) -> None:
        self._config = config
        self._ec2 = ec2
        self.store = None if config.bucket_name is None else ObjectStore(ec2.transport, config.bucket_name)
        self._tags = {PROVIDER_KEY: config.name}
        self._images: Fact[list[AwsImage]] = Fact(lambda: ec2.own_images(self._tags))
        self._snapshots: Fact[list[AwsSnapshot]] = Fact(lambda: ec2.snapshots(self._tags))
        #: Results of imports that do not exist any more, though their tasks are still listed.
        self._gone: set[str] = set()
        #: For the builder, which must not take an image for deleted because it cannot be listed.
        self._listing = ResourceKinds(config.name, self.kinds(for_builder=True))

    # -- upload --

    def upload(self, job: ImageJob) -> str:
        """Upload a file; returns the id of the AMI. After an error nothing is left, if AWS lets us.

        :raises ImageCreateException: AWS cannot use it, or it took too long.
        :raises UploadGivenUp: nobody wants it any more.
        :raises LaunchError: AWS refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        wait = UploadWait(self._config, job, self._ec2.transport.stopped)
        problem = job.image.format_problem(job.format)
        if problem is not None:
            raise ImageCreateException(f"{wait.head}: {problem}")
        by_blocks = job.image.import_method == EBS_DIRECT
        try:
            return self._upload_by_blocks(job, wait) if by_blocks else self._import(job, wait)
        except CloudAway as error:
            if wait.stopped:
                raise UploadInterrupted("the provider was stopped") from error
            raise

    def _upload_by_blocks(self, job: ImageJob, wait: UploadWait) -> str:
        snapshot_id = BlockUpload(self._ec2, job, wait).upload()
        with OnError(lambda _: wait.discard("snapshot", snapshot_id, self._ec2.discard_snapshot)):
            return self._register(job, wait, snapshot_id)

    def _import(self, job: ImageJob, wait: UploadWait) -> str:
        if self.store is None:
            raise ImageCreateException(f"{wait.head} goes through S3; add object-storage.bucket-name to the provider")

        def image_of(task: ImportTask) -> str:
            if task.image_id:
                self._wait_available(task.image_id, wait)
                return task.image_id
            (snapshot_id,) = task.snapshot_ids
            return self._register(job, wait, snapshot_id)

        return str(ImportUpload(self._ec2, self.store, job, wait, image_of).upload())

    def _register(self, job: ImageJob, wait: UploadWait, snapshot_id: str) -> str:
        """Make an AMI of a snapshot; returns its id when it can be used."""
        looks = wait.answers("its registration", AVAILABLE_SECONDS, lambda: self._registered(job, wait, snapshot_id))
        image_id = next(filter(None, looks))
        with OnError(lambda _: wait.discard("image", image_id, self._ec2.discard_image)):
            self._wait_available(image_id, wait)
        return image_id

    def _registered(self, job: ImageJob, wait: UploadWait, snapshot_id: str) -> str | None:
        """The id of the AMI; None = it is not known yet. The name makes it one image."""
        wait.check()
        try:
            return self._ec2.register(registration(job, snapshot_id))
        except CloudRefused as error:
            if error.code != _DUPLICATE:
                raise
            found = self._ec2.image_named(job.name)
            if found is not None and not job.upload_tags.items() <= dict(found.metadata).items():
                raise
            # It is ours: the answer was lost.
            return None if found is None else found.id

    def _wait_available(self, image_id: str, wait: UploadWait) -> None:
        # It may not be known yet.
        passing = (CloudAway, CloudRefused)
        for image in wait.answers(f"image {image_id}", AVAILABLE_SECONDS, lambda: self._ec2.image(image_id), passing):
            if image.status == AVAILABLE:
                return
            if image.status in _DEAD_IMAGE:
                raise ImageCreateException(f"{wait.head}: {image_id} has become {image.status}")

    # -- lists and deletions --

    def kinds(self, for_builder: bool = False) -> Iterator[ResourceKind[CloudResource]]:
        """Rows for the table of resources. Deletions of what does not exist any more are no errors."""
        ec2, store = self._ec2, self.store
        vital, idle = for_builder, 0.0 if for_builder or self._config.diskimages else IDLE_SECONDS
        if store is not None:
            # First, because it gives the results of imports their tags.
            yield ResourceKind(IMPORT, self._found_imports, lambda one: ec2.discard_import(one.id), idle)
        yield ResourceKind(AMI, self._found_images, lambda one: ec2.discard_image(one.id), idle, vital)
        yield ResourceKind(SNAPSHOT, self._found_snapshots, lambda one: ec2.discard_snapshot(one.id), idle, vital)
        if store is not None:
            ours = provider_prefix(self._config.name)

            def objects() -> Iterator[CloudResource]:
                for key in store.keys(ours):
                    yield CloudResource(metadata_of_key(key), OBJECT, key, usable=False)

            def parts() -> Iterator[CloudResource]:
                for found in store.open_uploads(ours):
                    yield CloudResource(metadata_of_key(found.key), PARTS, found.upload_id, found.key, usable=False)

            yield ResourceKind(OBJECT, objects, lambda one: store.delete(one.id), idle)
            yield ResourceKind(PARTS, parts, lambda one: store.abort(PartsUpload(one.name, one.id)), idle)

    def listed(self) -> Iterator[ListedImage]:
        """AMIs with our tags, and what uploads have left or not completed yet (D-1, R-4)."""
        for found in self._listing.all():
            usable = found.type == AMI
            yield ListedImage(found.id if usable else found, found.name, found.metadata, usable=usable)

    def _found_images(self) -> Iterator[CloudResource]:
        for image in self._images.get_new():
            yield CloudResource(image.metadata, AMI, image.id, image.name)

    def _found_snapshots(self) -> Iterator[CloudResource]:
        """Those that no AMI of ours is made of: the others go with it."""
        images = self._images.get(SWEEP_LIST_SECONDS)
        used = {volume.get("SnapshotId") for image in images for _, volume in image.devices}
        for snapshot in self._snapshots.get_new():
            if snapshot.id not in used:
                yield CloudResource(snapshot.metadata, SNAPSHOT, snapshot.id, usable=False)

    def _found_imports(self) -> Iterator[CloudResource]:
        """Those that run. Results of the others get the tags of their task, unless they have them."""
        claimed: set[str] | None = None
        for task in (*self._ec2.import_tasks(whole=False), *self._ec2.import_tasks(whole=True)):
            if task.metadata.get(PROVIDER_KEY) != self._config.name or task.status in FAILED_TASKS:
                continue
            if task.status != COMPLETED:
                yield CloudResource(task.metadata, IMPORT, task.id, usable=False)
            elif IMAGE_KEY not in task.metadata and not self._gone.issuperset(task.result_ids):
                if claimed is None:
                    claimed = {found.id for found in self._images.get_new()}
                    claimed |= {found.id for found in self._snapshots.get_new()}
                self._claim(task, claimed)

    def _claim(self, task: ImportTask, claimed: set[str]) -> None:
        for found in task.result_ids:
            if found in claimed or found in self._gone:
                continue
            try:
                self._ec2.tag_now([found], task.metadata)
            except AwsNotFound:
                self._gone.add(found)
                continue
            log.info(
                "Provider %s: %s is the result of import %s, and has its tags now", self._config.name, found, task.id
            )


# `ImportUpload`: AWS makes a snapshot or an AMI of an object in S3 (``import-method: snapshot``, ``image``; AW-17).
#
# An import takes long, and goes on without us. It is known by its tags: when the builder was restarted meanwhile, the
# next upload of the build takes it up again. One whose result became an image has a tag that says so.

#: Tag of a task: the image that was made of its result.
IMAGE_KEY: Final = "nodepool_image_id"
#: Longest time of an import.
IMPORT_SECONDS: Final = 24 * 3600.0


class ImportUpload(S3Upload):
    """One upload. ``upload()`` returns the id of the AMI.

    :param image_of: gives the id of the AMI that is made of an import's results; blocks until it can be used.
    """

    def __init__(
        self,
        ec2: Ec2,
        store: ObjectStore,
        job: ImageJob,
        wait: UploadWait,
        image_of: Callable[[ImportTask], str],
    ) -> None:
        super().__init__(store, job, wait)
        self._ec2 = ec2
        self._image_of = image_of
        self._whole = job.image.import_method == IMAGE
        #: The import, as soon as there is one.
        self._task: ImportTask | None = None

    # -- hooks --

    def startUpload(self) -> None:
        self._task = self._interrupted()
        if self._task is None:
            super().startUpload()

    def _upload_segments(self) -> None:
        if self._task is None:
            super()._upload_segments()

    def finishUpload(self) -> str:
        if self._task is None:
            super().finishUpload()
            arguments = import_arguments(self._job, self._store.bucket, self.key, whole=self._whole)
            # The token makes it one import.
            self._task = self._wait.when_allowed(
                lambda: self.retry(self._ec2.begin_import, arguments, whole=self._whole)
            )
        self._task = task = self._imported(self._task)
        self.discard_object()
        self._ec2.tag_now(task.result_ids, self._job.tags)
        image_id = self._image_of(task)
        try:
            self._ec2.tag_now([task.id], {IMAGE_KEY: image_id})
        except LaunchError as error:
            log.warning("%s: import %s is not marked as used: %s", self.head, task.id, error)
        return image_id

    def abortUpload(self) -> None:
        if self._task is not None and self.interrupted:
            log.info("%s: import %s goes on", self.head, self._task.id)
            return
        if self._task is not None:
            self._wait.discard("import", self._task.id, self._ec2.discard_import)
        super().abortUpload()

    # -- inside --

    def _interrupted(self) -> ImportTask | None:
        """What an upload of the same build has begun; it is that of this upload from now on."""
        wanted = self._job.build_tags.items()
        for task in self._ec2.import_tasks(whole=self._whole):
            ours = wanted <= dict(task.metadata).items() and IMAGE_KEY not in task.metadata
            if ours and task.status not in FAILED_TASKS and self._has_result(task):
                log.info("%s: import %s of an interrupted upload is taken up again", self._wait.head, task.id)
                self._ec2.tag_now([task.id], self._job.tags)
                self._wait.sent(self._job.size)
                if task.bucket == self._store.bucket and task.key.startswith(PREFIX):
                    self.key = task.key
                return task
        return None

    def _has_result(self, task: ImportTask) -> bool:
        """Not if somebody has deleted it."""
        if task.status != COMPLETED:
            return True
        found = [self._ec2.snapshot(snapshot_id) for snapshot_id in task.snapshot_ids]
        return bool(found) and None not in found

    def _imported(self, task: ImportTask) -> ImportTask:
        told, task_id = "", task.id
        # It goes on while there is no answer.
        for task in self._wait.answers(f"import {task_id}", IMPORT_SECONDS, lambda: self._ec2.import_task(task_id)):
            if task.status == COMPLETED:
                return task
            if task.status in FAILED_TASKS:
                why = task.message or "AWS does not say why"
                raise ImageCreateException(f"{self._wait.head}: import {task.id} is {task.status}: {why}")
            if task.message != told:
                told = task.message
                log.debug("%s: import %s: %s, %s%%", self._wait.head, task.id, told, task.progress or "?")
        raise AssertionError("the looks end with an error")


# `BlockUpload`: writes an image to a snapshot, block by block, without S3 (``import-method: ebs-direct``, AW-18).
#
# Blocks that are empty are left out: AWS reads them as zeros. Each block goes with its SHA-256, and the snapshot is
# completed with one over all of these, so that AWS refuses what is not what was sent. How far it is stands in a tag of
# the snapshot, because a snapshot that is not complete cannot be read: if this upload is interrupted, the next one of
# the build writes only the blocks that are missing.

#: The only size that AWS knows.
BLOCK_BYTES: Final = 512 * 1024
_EMPTY: Final = bytes(BLOCK_BYTES)
#: Tag of a snapshot that is not complete: all blocks with a lower index are written, or empty.
WRITTEN_KEY: Final = "nodepool_blocks_written"
#: It is set so often, in seconds.
MARK_SECONDS: Final = 10.0
#: AWS gives a snapshot up that gets no block for so long.
IDLE_MINUTES: Final = 240
#: Longest time that AWS may need to complete one.
COMPLETE_SECONDS: Final = 3600.0
#: Refusals of a block that another attempt may not meet (AW-18).
_PASSING: Final = frozenset({"ValidationException"})


class BlockUpload(ImageUploader):
    """One upload. ``upload()`` returns the id of the snapshot.

    :param wait: made by the thread that calls ``upload()``.
    """

    segment_size = BLOCK_BYTES
    #: AWS takes 1000 blocks a second of an account; what it puts off makes all of them slower.
    concurrency: ClassVar[int] = 16
    error_retries: ClassVar[int] = 4

    def __init__(self, ec2: Ec2, job: ImageJob, wait: UploadWait) -> None:
        super().__init__(ec2, log, job.path, job.name, dict(job.tags))
        self._ec2 = ec2
        self._job = job
        self._wait = wait
        self._snapshot_id = ""
        #: Blocks before this one were written by an upload that was interrupted.
        self._written_before = 0
        self._whole = hashlib.sha256()
        self._read = 0
        #: Was its completion ordered?
        self._ordered = False
        #: Guards all of the following.
        self._block_lock = threading.Lock()
        self._digests: dict[int, bytes] = {}
        #: Blocks that are done; those before the first one that is not are only counted.
        self._done_blocks: set[int] = set()
        self._first_open = 0
        self._marked_at = monotonic()

    # -- hooks --

    def startUpload(self) -> None:
        interrupted = self._interrupted()
        if interrupted is not None:
            self._snapshot_id = interrupted.id
            self._written_before = int(interrupted.metadata[WRITTEN_KEY])
            # From now on it is that of this upload.
            self._ec2.tag_now([interrupted.id], self._job.tags)
            log.info(
                "%s: snapshot %s of an interrupted upload is written on from block %s",
                *(self._wait.head, interrupted.id, self._written_before),
            )
            return
        # Already the first moment has the tag: the snapshot is used, whenever the builder is killed.
        arguments = snapshot_start(self._job, IDLE_MINUTES, {WRITTEN_KEY: "0"})
        self._snapshot_id = self._wait.when_allowed(lambda: self.retry(self._ec2.start_snapshot, arguments))

    def segmentRead(self, segment: Segment) -> None:
        self._whole.update(segment.data)
        self._read += len(segment.data)

    def uploadSegment(self, segment: Segment) -> None:
        data = segment.data
        if data != _EMPTY[: len(data)]:
            if len(data) < BLOCK_BYTES:
                data += bytes(BLOCK_BYTES - len(data))
            digest = hashlib.sha256(data).digest()
            if segment.index >= self._written_before:
                self._ec2.put_block(self._snapshot_id, segment.index, data, digest)
            with self._block_lock:
                self._digests[segment.index] = digest
        self._block_done(segment.index)

    def finishUpload(self) -> str:
        problem = file_problem(self._job, self._read, self._whole.hexdigest())
        if problem is not None:
            raise ImageCreateException(f"{self._wait.head} is not what was built: {problem}")
        digest = hashlib.sha256(b"".join(digest for _, digest in sorted(self._digests.items()))).digest()
        for snapshot in self._wait.answers(
            f"snapshot {self._snapshot_id}", COMPLETE_SECONDS, lambda: self._ended(digest)
        ):
            if snapshot is not None and snapshot.status == COMPLETED:
                break
            if snapshot is not None and snapshot.status == ERROR:
                raise ImageCreateException(f"{self._wait.head}: AWS gave the snapshot up: {snapshot.reason or ERROR}")
        return self._snapshot_id

    def abortUpload(self) -> None:
        if not self._snapshot_id:
            return
        if isinstance(self.error, UploadInterrupted) or self._wait.stopped:
            with self._block_lock:
                written = self._first_open
            self._mark(max(written, self._written_before))
            return
        self._ec2.discard_snapshot(self._snapshot_id)

    def shouldRetryException(self, exception: BaseException) -> bool:
        if self._wait.stopped:
            return False
        passing = isinstance(exception, CloudRefused) and exception.code in _PASSING
        # What AWS puts off was sent again several times.
        return isinstance(exception, CloudAway) or passing

    # -- inside --

    def _interrupted(self) -> AwsSnapshot | None:
        """What an upload of the same build has begun."""
        for found in self._ec2.snapshots(self._job.build_tags):
            usable = found.status == PENDING and found.size_gib == self._job.size_gib
            if usable and found.metadata.get(WRITTEN_KEY, "").isdigit():
                return found
        return None

    def _block_done(self, index: int) -> None:
        with self._block_lock:
            self._done_blocks.add(index)
            while self._first_open in self._done_blocks:
                self._done_blocks.remove(self._first_open)
                self._first_open += 1
            written, now = self._first_open, monotonic()
            if now - self._marked_at < MARK_SECONDS or written <= self._written_before:
                return
            self._marked_at = now
        self._mark(written)

    def _mark(self, written: int) -> None:
        """Note how far it is. Without the tag nobody goes on with the snapshot, that is all."""
        try:
            self._ec2.tag_now([self._snapshot_id], {WRITTEN_KEY: str(written)})
        except LaunchError as error:
            log.debug("%s: snapshot %s is not marked: %s", self._wait.head, self._snapshot_id, error)

    def _ended(self, digest: bytes) -> AwsSnapshot | None:
        """How it looks after its completion was ordered."""
        if not self._ordered:
            try:
                self._ec2.complete_snapshot(self._snapshot_id, len(self._digests), digest)
            except CloudRefused:
                snapshot = self._ec2.snapshot(self._snapshot_id)
                if snapshot is None or snapshot.status != COMPLETED:
                    raise
                # The answer of an earlier call was lost.
            self._ordered = True
        return self._ec2.snapshot(self._snapshot_id)
