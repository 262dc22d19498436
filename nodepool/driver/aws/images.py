# SPDX-License-Identifier: Apache-2.0
"""`AwsImages`: uploaded images of one provider: upload, deletion, list, and what uploads have left (AW-17 to AW-20)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.aws.block_upload import BlockUpload
from nodepool.driver.aws.discard import discard_image, discard_snapshot
from nodepool.driver.aws.image_calls import ImageCalls
from nodepool.driver.aws.image_config import EBS_DIRECT, IMAGE
from nodepool.driver.aws.image_spec import ImageJob, image_tags, registration
from nodepool.driver.aws.image_types import AVAILABLE
from nodepool.driver.aws.import_upload import ImportUpload
from nodepool.driver.aws.object_store import ObjectStore
from nodepool.driver.aws.upload_wait import UploadWait
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.framework.upload_progress import UploadInterrupted
from nodepool.exceptions import ImageCreateException
from nodepool.guard import Guard, OnError

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.config import AwsProviderConfig
    from nodepool.driver.aws.image_config import AwsDiskImage

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
