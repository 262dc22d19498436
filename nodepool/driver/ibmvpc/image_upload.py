# SPDX-License-Identifier: Apache-2.0
"""`CosUpload`: one upload of an image: parts of an object, an import of it, and the object goes (IV-9).

An upload that is interrupted leaves its parts, or the import that it began. The next upload of the build finds them by
its id, which is in their names, and goes on with them.
"""

from __future__ import annotations

import hashlib
import logging
import os
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.framework.image_time import ImageTime
from nodepool.driver.framework.parts_upload import PartsUploader
from nodepool.driver.framework.upload import Segment
from nodepool.driver.framework.upload_check import ImageContent, check_stored
from nodepool.driver.framework.upload_progress import UploadInterrupted
from nodepool.driver.ibmvpc.errors import exists, told
from nodepool.driver.ibmvpc.object_store import CosBucket
from nodepool.driver.ibmvpc.types import DELETING, PENDING, USABLE_IMAGES, IbmImage
from nodepool.exceptions import ImageCreateException
from nodepool.guard import Guard

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.client import IbmVpc

log = logging.getLogger("nodepool.driver.ibmvpc.images")

#: Size of a part. A bucket takes at most 10 000 of an object, and IBM no image of more than 250 GB.
PART_BYTES: Final = 32 * 1024 * 1024
#: Longest time of an import.
IMPORT_SECONDS: Final = 4 * 3600.0
#: An image that is not there for so many looks was deleted by others.
UNSEEN_LOOKS: Final = 4


class IbmImageJob(NamedTuple):
    """What is uploaded.

    :param name: of the image; unique.
    :param build: id of the build: in the names of all that its uploads make.
    :param key: of the object.
    :param group: name of the resource group of images, and its id.
    :param operating_system: as IBM calls it.
    :param content: of the file, as far as it is known.
    """

    name: str
    build: str
    key: str
    prefix: str
    group: str
    group_id: str
    operating_system: str
    content: ImageContent


class CosUpload(PartsUploader):
    """Made in the thread that calls ``uploadImage()``. ``upload()`` returns the id of the image."""

    segment_size = PART_BYTES
    concurrency: ClassVar[int] = 4
    error_retries: ClassVar[int] = 5

    def __init__(
        self, client: IbmVpc, bucket: CosBucket, path: str | os.PathLike[str], job: IbmImageJob, import_seconds: float
    ) -> None:
        head = f"Provider {client.calls.provider}: image {job.name}"
        super().__init__(bucket, log, path, job.name, head, job.key, client.calls.stopped)
        self._client = client
        self._bucket = bucket
        self._job = job
        self._check = upload_progress.checker()
        self._import_seconds = import_seconds
        self._digest = hashlib.sha256()
        self._image: IbmImage | None = None
        #: An import was ordered, with or without an answer.
        self._ordered = False

    # -- the whole --

    def run(self) -> str:
        """Upload, or go on with an import of the build that was interrupted; returns the id of the image. Blocks.

        :raises ImageCreateException: IBM cannot use it, or it took too long.
        :raises UploadGivenUp: nobody wants it any more.
        :raises LaunchError: IBM refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        try:
            return str(self.upload())
        except CloudAway as error:
            if self.stopped:
                raise UploadInterrupted("the provider was stopped") from error
            raise

    def _upload_segments(self) -> None:
        if self._image is None:
            super()._upload_segments()

    # -- hooks --

    def startUpload(self) -> None:
        self._check()
        if self._interrupted_import():
            return
        self.begin_parts(self._job.prefix, f"-{self._job.build}{os.path.splitext(self._job.key)[1]}")

    def new_upload(self) -> str:
        return self._bucket.begin(self.key)

    def segmentRead(self, segment: Segment) -> None:
        self._digest.update(segment.data)

    def finishUpload(self) -> str:
        if self._image is None:
            self._check_file()
            self._complete()
            self._check()
            self._image = self._order_import()
        image = self._imported(self._image)
        check_stored(self.image_name, self._job.content, ImageContent.of(None, sha256=image.sha256))
        self._discard_object()
        return image.id

    def abortUpload(self) -> None:
        if isinstance(self.error, UploadInterrupted) or self.stopped:
            log.info("%s: what was uploaded is left for the next upload of the build", self.head)
            return
        with Guard(log, "%s: parts of %s may be left over", self.head, self.key, traceback=False):
            self.abort_parts()
        with Guard(log, "%s: it may be left over", self.head, level=logging.WARNING, traceback=False) as guard:
            self._discard_image()
        if guard.error is None:
            self._discard_object()
        # Else the object tells that the upload never ended; see `IbmImages.resources`.

    def _discard_image(self) -> None:
        """Raises what `delete_image` does. IBM may have made one without telling."""
        image = self._named() if self._image is None and self._ordered else self._image
        if image is not None:
            delete_image(self._client, image.id)

    # -- what an interrupted upload has left --

    def _interrupted_import(self) -> bool:
        """Is an import of the build under way, or has it ended? Then it is that of this upload from now on."""
        keys = set(self._bucket.keys(self._job.prefix))
        for image in self._client.images(visibility="private"):
            key = f"{self._job.prefix}{image.name}{os.path.splitext(self._job.key)[1]}"
            ours = image.group == self._job.group and image.name.endswith(f"-{self._job.build}")
            # Without the object the upload has ended: the image has a record of its own.
            if ours and key in keys and image.status in (PENDING, *USABLE_IMAGES):
                log.info("%s: the import of an interrupted upload, %s, is taken up again", self.head, image.name)
                self.key = key
                self._image = image
                if image.name != self.image_name:
                    self._image = self._client.rename_image(image.id, self.image_name)
                return True
        return False

    # -- steps --

    def _check_file(self) -> None:
        """Is it the file that was built? Disks forget."""
        read = ImageContent.of(self.size, sha256=self._digest.hexdigest())
        check_stored(self.image_name, self._job.content, read)

    def _complete(self) -> None:
        self.complete_parts()
        stored = self.retry(self._bucket.size, self.key)
        check_stored(self.image_name, ImageContent.of(self.size), ImageContent.of(stored))

    def _order_import(self) -> IbmImage:
        body = {
            "name": self.image_name,
            "resource_group": {"id": self._job.group_id},
            "file": {"href": f"cos://{self.retry(self._bucket.region)}/{self._bucket.name}/{self.key}"},
            "operating_system": {"name": self._job.operating_system},
        }
        self._ordered = True
        try:
            return self.retry(self._client.create_image, body, self._check)
        except CloudRefused as error:
            found = self._named() if exists(error) else None
            if found is None:
                raise
            # It is ours: the answer was lost.
            return found

    def _named(self) -> IbmImage | None:
        wanted = (self.image_name, self._job.group)
        found = self._client.images(name=self.image_name, visibility="private")
        return next((one for one in found if (one.name, one.group) == wanted), None)

    def _imported(self, image: IbmImage) -> IbmImage:
        """Wait until an image can be used."""
        self._go_on()
        stopped = self._client.calls.stopped
        time = ImageTime(f"{self.head}: its import", self._import_seconds, stopped, wanted=self._go_on)
        unseen = 0
        for _ in time.looks():
            try:
                image = self._client.image(image.id)
            except CloudAway as error:
                # It goes on meanwhile.
                log.debug("%s: %s", self.head, error)
                continue
            except CloudNotFound:
                # What IBM has just made may not be there for each of its servers.
                unseen += 1
                if unseen == UNSEEN_LOOKS:
                    raise
                continue
            if image.status in USABLE_IMAGES:
                return image
            if image.status != PENDING:
                why = told(image.reasons) or "IBM gives no reason"
                raise ImageCreateException(f"{self.head}: its import is {image.status}: {why}")
        time.check()
        raise time.over()

    def _go_on(self) -> None:
        """Is it still wanted? Raises UploadGivenUp."""
        self._report(self.size, self.size)

    def _discard_object(self) -> None:
        with Guard(log, "%s: object %s may be left over", self.head, self.key, level=logging.WARNING, traceback=False):
            self._bucket.delete(self.key)


def delete_image(client: IbmVpc, image_id: str) -> None:
    """Delete an image; one that is gone, or is deleted now, is no error. Blocks.

    :raises CloudRefused: its import is under way, for example.
    """
    try:
        client.delete_image(image_id)
    except CloudNotFound:
        return
    except CloudRefused as error:
        if error.status != 409 or not _is_deleted(client, image_id):
            raise
        log.debug("Image %s is deleted already: %s", image_id, error)


def _is_deleted(client: IbmVpc, image_id: str) -> bool:
    try:
        return client.image(image_id).status == DELETING
    except CloudNotFound:
        return True
