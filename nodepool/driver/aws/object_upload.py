# SPDX-License-Identifier: Apache-2.0
"""`S3Upload`: sends a file to S3, or finds out that an interrupted upload of the build has sent it (AW-17)."""

from __future__ import annotations

import base64
import hashlib
import logging
import zlib
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from nodepool.driver.aws.image_spec import file_problem
from nodepool.driver.framework.parts_upload import PartsUploader
from nodepool.driver.framework.upload_progress import UploadInterrupted
from nodepool.exceptions import ImageCreateException
from nodepool.guard import Guard

if TYPE_CHECKING:
    from nodepool.driver.aws.image_spec import ImageJob
    from nodepool.driver.aws.object_store import ObjectStore, S3Object
    from nodepool.driver.aws.upload_wait import UploadWait
    from nodepool.driver.framework.upload import Segment

log = logging.getLogger("nodepool.driver.aws.images")

#: Size of a part. S3 takes at most 10 000 of an object.
PART_BYTES: Final = 8 * 1024 * 1024
_MOST_PARTS: Final = 9_000


def part_bytes(size: int) -> int:
    """Size of the parts of a file: the same for each upload of it."""
    return max(PART_BYTES, -(-size // _MOST_PARTS))


def send_file(store: ObjectStore, job: ImageJob, wait: UploadWait) -> str:
    """Have a file in the bucket; returns the key of its object. Blocks.

    After an error nothing is left of it, unless the upload was interrupted.

    :param wait: made by the thread that calls this.
    :raises ImageCreateException: it is not the file that was built, or S3 has not got all of it.
    :raises UploadGivenUp: nobody wants it any more.
    :raises LaunchError: AWS refused it, or is away.
    :raises OSError: the file cannot be read.
    """
    upload = S3Upload(store, job, wait)
    key = upload.sent_before()
    if key is None:
        key = str(upload.upload())
    wait.sent(job.size)
    return key


class S3Upload(PartsUploader):
    """One upload. ``upload()`` returns the key of the object."""

    #: Parts that are under way at once, and so in memory.
    concurrency: ClassVar[int] = 4
    error_retries: ClassVar[int] = 5

    def __init__(self, store: ObjectStore, job: ImageJob, wait: UploadWait) -> None:
        super().__init__(store, log, job.path, job.name, wait.head, job.key, store.stopped)
        self.segment_size = part_bytes(job.size)
        self._store = store
        self._job = job
        self._wait = wait
        self._digest = hashlib.sha256()
        self._read = 0

    # -- what an interrupted upload has sent --

    def sent_before(self) -> str | None:
        """The key of an object of the build that has the whole file; None = there is none. Blocks.

        The file is read: AWS has made checksums of the parts when they came.
        """
        content: FileContent | None = None
        with self.unless_refused("an object of an interrupted upload"):
            for key in self.retry(lambda: list(self._store.keys(self._job.build_prefix))):
                if not key.endswith(f".{self._job.format}"):
                    continue
                stored = self.retry(self._store.stored, key)
                if stored.size == self._job.size:
                    content = content or read_file(self._job, self.segment_size, self._wait)
                    self._check_file(content.size, content.sha256)
                    if content.is_in(stored):
                        log.info("%s: the file is in the bucket already, as %s", self.head, key)
                        return key
                log.info("%s: object %s is not the file, it is deleted", self.head, key)
                self.retry(self._store.delete, key)
        return None

    # -- hooks --

    def startUpload(self) -> None:
        self._wait.check()
        self.begin_parts(self._job.build_prefix, f".{self._job.format}")

    def new_upload(self) -> str:
        return self._store.begin(self.key, self._job.tags)

    def segmentRead(self, segment: Segment) -> None:
        self._digest.update(segment.data)
        self._read += len(segment.data)

    def finishUpload(self) -> str:
        self._check_file(self._read, self._digest.hexdigest())
        self.complete_parts()
        stored = self.retry(self._store.stored, self.key)
        if stored.size != self._job.size:
            text = f"{stored.size} of {self._job.size} bytes are in the bucket"
            raise ImageCreateException(f"{self.head} did not arrive as it was built: {text}")
        return self.key

    def abortUpload(self) -> None:
        if isinstance(self.error, UploadInterrupted) or self.stopped:
            return
        with Guard(log, "%s: parts of %s may be left over", self.head, self.key, traceback=False):
            self.abort_parts()
            if self.key != self._job.key:
                # Of the interrupted upload; that of this one the caller deletes.
                self._store.delete(self.key)

    def _check_file(self, size: int, sha256: str) -> None:
        problem = file_problem(self._job, size, sha256)
        if problem is not None:
            raise ImageCreateException(f"{self.head} did not arrive as it was built: {problem}")


class FileContent(NamedTuple):
    """A file that was read.

    :param tag: as S3 makes the entity tag of an object of such parts, unless it encrypts.
    :param crc32: as S3 makes the checksum of the checksums.
    """

    size: int
    sha256: str
    tag: str
    crc32: str

    def is_in(self, stored: S3Object) -> bool:
        """Is it what an object has? If S3 does not say, the answer is no."""
        if stored.size != self.size:
            return False
        if stored.crc32:
            # After it stands the number of parts.
            return stored.crc32.partition("-")[0] == self.crc32
        return stored.tag == self.tag


def read_file(job: ImageJob, piece_bytes: int, wait: UploadWait) -> FileContent:
    """Read the file of an upload. Blocks; raises UploadGivenUp, OSError.

    :param piece_bytes: of each part.
    """
    whole, size, count = hashlib.sha256(), 0, 0
    tags, checksums = hashlib.md5(usedforsecurity=False), 0
    with open(job.path, "rb") as file:
        while data := file.read(piece_bytes):
            wait.go_on()
            whole.update(data)
            size += len(data)
            count += 1
            tags.update(hashlib.md5(data, usedforsecurity=False).digest())
            checksums = zlib.crc32(zlib.crc32(data).to_bytes(4, "big"), checksums)
    crc32 = base64.b64encode(checksums.to_bytes(4, "big")).decode()
    return FileContent(size, whole.hexdigest(), f"{tags.hexdigest()}-{count}", crc32)
