# SPDX-License-Identifier: Apache-2.0
"""`AwsImages`: uploaded images of one provider: upload, deletion, list, and what uploads have left (AW-17 to AW-20)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.aws.client import ImageCalls
from nodepool.driver.aws.config import EBS_DIRECT, IMAGE
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.image_store import (
    ImageJob,
    ObjectStore,
    UploadWait,
    discard_image,
    discard_import,
    discard_snapshot,
    image_tags,
    metadata_of_key,
    provider_prefix,
    registration,
)
from nodepool.driver.aws.types import AVAILABLE, COMPLETED, FAILED_TASKS, AwsSnapshot, ImportTask
from nodepool.driver.aws.uploads import IMAGE_KEY, BlockUpload, ImportUpload
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.images import ListedImage
from nodepool.driver.framework.uploads import PartsUpload, UploadInterrupted
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, Resource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.instance import PROVIDER_KEY
from nodepool.exceptions import ImageCreateException
from nodepool.guard import Guard, OnError

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.config import AwsDiskImage, AwsProviderConfig
    from nodepool.driver.aws.types import AwsImage

log = logging.getLogger("nodepool.driver.aws.images")

#: Longest time until a new AMI can be used, and until one that was deleted is listed no more.
AVAILABLE_SECONDS: Final = 3600.0
_DUPLICATE: Final = "InvalidAMIName.Duplicate"
_DEAD_IMAGE: Final = ("failed", "error", "invalid", "deregistered")


class AwsImages:
    """All methods block; any thread may call them."""

    def __init__(self, config: AwsProviderConfig, ec2: Ec2, clock: Callable[[], float] = monotonic) -> None:
        self._config = config
        self._ec2 = ec2
        self._clock = clock
        self.calls = ImageCalls(ec2.transport)
        self.store = None if config.bucket_name is None else ObjectStore(ec2.transport, config.bucket_name)

    # -- upload --

    def upload(
        self,
        image: AwsDiskImage,
        name: str,
        path: str,
        image_format: str,
        metadata: Mapping[str, Any],
        sha256: str | None,
    ) -> str:
        """Upload a file; returns the id of the AMI. After an error nothing is left, if AWS lets us.

        :param name: of the AMI; unique.
        :param metadata: of the AMI and all that is made for it.
        :param sha256: of the file, hexadecimal; None = it is not known.
        :raises ImageCreateException: AWS cannot use it, or it took too long.
        :raises UploadGivenUp: nobody wants it any more.
        :raises LaunchError: AWS refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        size = os.stat(path).st_size
        job = ImageJob(name, path, size, image_format, image, image_tags(image, metadata), sha256)
        wait = UploadWait(f"Provider {self._config.name}: image {name}", size, self._ec2.transport.stopped, self._clock)
        problem = image.format_problem(image_format)
        if problem is not None:
            raise ImageCreateException(f"{wait.head}: {problem}")
        try:
            return self._upload_by_blocks(job, wait) if image.import_method == EBS_DIRECT else self._import(job, wait)
        except CloudAway as error:
            if wait.stopped:
                raise UploadInterrupted("the provider was stopped") from error
            raise

    def _upload_by_blocks(self, job: ImageJob, wait: UploadWait) -> str:
        snapshot_id = BlockUpload(self.calls, self._ec2, job, wait, self._config.image_import_timeout).upload()
        with OnError(lambda _: self._discard_snapshot(wait, snapshot_id)):
            return self._register(job, wait, snapshot_id)

    def _import(self, job: ImageJob, wait: UploadWait) -> str:
        if self.store is None:
            raise ImageCreateException(f"{wait.head} goes through S3; add object-storage.bucket-name to the provider")
        whole = job.image.import_method == IMAGE
        upload = ImportUpload(self.calls, self._ec2, self.store, job, wait, self._config.image_import_timeout, whole)
        task = upload.run()
        with OnError(lambda _: upload.undo()):
            if whole:
                self._wait_available(task.image_id, wait)
                image_id = task.image_id
            else:
                (snapshot_id,) = task.snapshot_ids
                self._check_size(job, wait, snapshot_id)
                image_id = self._register(job, wait, snapshot_id)
        upload.used_for(image_id)
        return image_id

    def _check_size(self, job: ImageJob, wait: UploadWait, snapshot_id: str) -> None:
        """A raw file becomes a volume that has room for it."""
        for _ in wait.looks(f"snapshot {snapshot_id}", AVAILABLE_SECONDS):
            try:
                snapshot = self.calls.snapshot(snapshot_id)
            except CloudAway as error:
                log.debug("%s: %s", wait.head, error)
                continue
            if snapshot is not None:
                break
        if job.format == "raw" and snapshot is not None and snapshot.size_gib < job.size_gib:
            raise ImageCreateException(
                f"{wait.head} did not arrive as it was sent: the snapshot has {snapshot.size_gib} GiB, "
                f"the file has {job.size_gib}"
            )

    def _register(self, job: ImageJob, wait: UploadWait, snapshot_id: str) -> str:
        """Make an AMI of a snapshot; returns its id when it can be used."""
        image_id = ""
        for _ in wait.looks("its registration", AVAILABLE_SECONDS):
            wait.check()
            try:
                image_id = self.calls.register(registration(job, snapshot_id))
                break
            except CloudAway as error:
                # The name makes it one image.
                log.debug("%s: %s", wait.head, error)
            except CloudRefused as error:
                if error.code != _DUPLICATE:
                    raise
                found = self.calls.image_named(job.name)
                if found is not None and not job.upload_tags.items() <= dict(found.metadata).items():
                    raise
                if found is not None:
                    # It is ours: the answer was lost.
                    image_id = found.id
                    break
        with OnError(lambda _: self._discard_image(wait, image_id)):
            self._wait_available(image_id, wait)
        return image_id

    def _wait_available(self, image_id: str, wait: UploadWait) -> None:
        for _ in wait.looks(f"image {image_id}", AVAILABLE_SECONDS):
            try:
                image = self._ec2.image(image_id)
            except (CloudAway, CloudRefused) as error:
                # It may not be known yet.
                log.debug("%s: %s", wait.head, error)
                continue
            if image.status == AVAILABLE:
                return
            if image.status in _DEAD_IMAGE:
                raise ImageCreateException(f"{wait.head}: {image_id} has become {image.status}")

    def _discard_image(self, wait: UploadWait, image_id: str) -> None:
        with Guard(log, "%s: image %s may be left over", wait.head, image_id, traceback=False):
            discard_image(self._ec2, self.calls, image_id)

    def _discard_snapshot(self, wait: UploadWait, snapshot_id: str) -> None:
        with Guard(log, "%s: snapshot %s may be left over", wait.head, snapshot_id, traceback=False):
            discard_snapshot(self.calls, snapshot_id)

    # -- deletion --

    def delete(self, image_id: str) -> None:
        """Delete an AMI and its snapshots; one that is gone already is no error."""
        discard_image(self._ec2, self.calls, image_id)


# `AwsResources`: what can be left over in a region, kind by kind, and how one is deleted (AW-20).

INSTANCE: Final = "instance"
VOLUME: Final = "volume"


class AwsResource(Resource):
    """Something that says whose it is; ``id`` is that of AWS.

    :param name: "" = it has none.
    :param usable: see `nodepool.driver.statemachine.Resource`.
    """

    def __init__(self, metadata: Mapping[str, str], type: str, id: str, name: str = "", *, usable: bool = True) -> None:
        super().__init__(dict(metadata), type)
        self.id = id
        self.name = name
        self.usable = usable


@dataclass(frozen=True, kw_only=True)
class AwsKind(ResourceKind[AwsResource]):
    """Things of one kind; its name is their ``type``.

    :param delete: one by its id; blocks. One that is gone already may raise NotFound.
    """

    delete: Callable[[str], None]


class AwsResources(ResourceKinds[AwsResource]):
    """The kinds of one provider. Parameters as those of `ResourceKinds`."""

    def __init__(self, provider: str, kinds: Iterable[AwsKind], clock: Callable[[], float] = monotonic) -> None:
        rows = tuple(kinds)
        super().__init__(provider, rows, clock)
        self._deletions = {kind.name: kind.delete for kind in rows}

    def delete(self, resource: AwsResource) -> None:
        """Delete a thing of `all`. Raises what the client raises."""
        self._deletions[resource.type](resource.id)


# `ImageLeaks`: uploaded images as lists show them, and what uploads can leave: snapshots, imports, objects (AW-20).
#
# Only what carries our tags, or has a key of ours, is asked for. Results of imports have none at first: they are found
# by
# their task, and get its tags, so that nothing of others is ever looked at.

AMI: Final = "ami"
SNAPSHOT: Final = "snapshot"
IMPORT: Final = "import"
OBJECT: Final = "object"
PARTS: Final = "part"
#: Between two looks of a provider to which no images are uploaded now.
IDLE_SECONDS: Final = 600.0
#: Between id and key of an upload in parts.
_BETWEEN: Final = " "

Found = Callable[[], Iterable[AwsResource]]


class ImageLeaks:
    """Of one provider. All methods block; any thread may call them."""

    def __init__(self, config: AwsProviderConfig, ec2: Ec2, images: AwsImages) -> None:
        self._provider = config.name
        self._idle_seconds = 0.0 if config.diskimages else IDLE_SECONDS
        self._ec2 = ec2
        self._calls = images.calls
        self._store = images.store
        self._tags = {PROVIDER_KEY: config.name}
        self._images: Fact[list[AwsImage]] = Fact(lambda: self._calls.images(self._tags))
        self._snapshots: Fact[list[AwsSnapshot]] = Fact(lambda: self._calls.snapshots(self._tags))
        #: Results of imports that are gone, though their tasks are still listed.
        self._gone: set[str] = set()
        #: For the builder, which must not take an image for gone because it cannot be listed.
        self._listing = AwsResources(config.name, self.kinds(for_builder=True))

    def kinds(self, for_builder: bool = False) -> Iterator[AwsKind]:
        """Rows for the table of resources."""

        def row(name: str, found: Found, delete: Callable[[str], None], vital: bool = False) -> AwsKind:
            idle = 0.0 if for_builder else self._idle_seconds
            return AwsKind(name, found, idle, vital and for_builder, delete=delete)

        if self._store is not None:
            # First, because it gives the results of imports their tags.
            yield row(IMPORT, self._found_imports, self._end_import)
        yield row(AMI, self._found_images, lambda image_id: discard_image(self._ec2, self._calls, image_id), True)
        yield row(SNAPSHOT, self._found_snapshots, lambda found: discard_snapshot(self._calls, found), True)
        if self._store is not None:
            yield row(OBJECT, self._found_objects, self._store.delete)
            yield row(PARTS, self._found_parts, self._end_parts)

    def listed(self) -> Iterator[ListedImage]:
        """AMIs with our tags, and what uploads have left or not completed yet (D-1, R-4)."""
        for found in self._listing.all():
            if found.type == AMI:
                yield ListedImage(found.id, found.name, found.metadata)
            else:
                yield ListedImage(found, found.name, found.metadata, usable=False)

    # -- lists --

    def _found_images(self) -> Iterator[AwsResource]:
        for image in self._images.get_new():
            yield AwsResource(image.metadata, AMI, image.id, image.name)

    def _found_snapshots(self) -> Iterator[AwsResource]:
        """Those that no AMI of ours is made of: the others go with it."""
        images = self._images.get(SWEEP_LIST_SECONDS)
        used = {volume.get("SnapshotId") for image in images for _, volume in image.devices}
        for snapshot in self._snapshots.get_new():
            if snapshot.id not in used:
                yield AwsResource(snapshot.metadata, SNAPSHOT, snapshot.id, usable=False)

    def _found_imports(self) -> Iterator[AwsResource]:
        """Those that run. Results of the others get the tags of their task, unless they have them."""
        claimed: set[str] | None = None
        for task in (*self._calls.snapshot_imports.tasks(), *self._calls.image_imports.tasks()):
            if task.metadata.get(PROVIDER_KEY) != self._provider or task.status in FAILED_TASKS:
                continue
            if task.status != COMPLETED:
                yield AwsResource(task.metadata, IMPORT, task.id, usable=False)
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
            log.info("Provider %s: %s is the result of import %s, and has its tags now", self._provider, found, task.id)

    def _found_objects(self) -> Iterator[AwsResource]:
        assert self._store is not None
        for key in self._store.keys(provider_prefix(self._provider)):
            yield AwsResource(metadata_of_key(key), OBJECT, key, usable=False)

    def _found_parts(self) -> Iterator[AwsResource]:
        assert self._store is not None
        for found in self._store.open_uploads(provider_prefix(self._provider)):
            name = f"{found.upload_id}{_BETWEEN}{found.key}"
            yield AwsResource(metadata_of_key(found.key), PARTS, name, usable=False)

    # -- deletions --

    def _end_import(self, task_id: str) -> None:
        kind = self._calls.image_imports if task_id.startswith("import-ami") else self._calls.snapshot_imports
        discard_import(self._ec2, self._calls, kind, task_id)

    def _end_parts(self, name: str) -> None:
        assert self._store is not None
        upload_id, _, key = name.partition(_BETWEEN)
        self._store.abort(PartsUpload(key, upload_id))
