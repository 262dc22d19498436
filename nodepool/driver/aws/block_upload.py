# SPDX-License-Identifier: Apache-2.0
"""`BlockUpload`: writes an image to a snapshot, block by block, without S3 (``import-method: ebs-direct``, AW-18).

Blocks that are empty are left out: AWS reads them as zeros. Each block goes with its SHA-256, and the snapshot is
completed with one over all of these, so that AWS refuses what is not what was sent. How far it is stands in a tag of
the snapshot, because nobody can read a snapshot that is not complete: if this upload is interrupted, the next one of
the build writes only the blocks that are missing.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, ClassVar, Final

from nodepool.clock import monotonic
from nodepool.driver.aws.discard import discard_snapshot
from nodepool.driver.aws.image_spec import file_problem, snapshot_start
from nodepool.driver.aws.image_types import COMPLETED, ERROR, PENDING, AwsSnapshot
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.framework.upload import ImageUploader, Segment
from nodepool.driver.framework.upload_progress import UploadInterrupted
from nodepool.exceptions import ImageCreateException, LaunchError

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.image_calls import ImageCalls
    from nodepool.driver.aws.image_spec import ImageJob
    from nodepool.driver.aws.upload_wait import UploadWait

log = logging.getLogger("nodepool.driver.aws.images")

#: The only size that AWS knows.
BLOCK_BYTES: Final = 512 * 1024
_EMPTY: Final = bytes(BLOCK_BYTES)
#: Tag of a snapshot that is not complete: all blocks with a lower index are written, or empty.
WRITTEN_KEY: Final = "nodepool_blocks_written"
#: It is set after so long for the first time, each time after twice as long, and then so often.
FIRST_MARK_SECONDS: Final = 1.0
MARK_SECONDS: Final = 30.0
#: AWS gives a snapshot up that gets no block for so long.
IDLE_MINUTES: Final = 240
#: Longest time that AWS may need to complete one.
COMPLETE_SECONDS: Final = 3600.0
#: Refusals of a block that another attempt may not meet (AW-18).
_PASSING: Final = frozenset({"ValidationException"})


class BlockUpload(ImageUploader):
    """One upload. ``upload()`` returns the id of the snapshot.

    :param wait: made by the thread that calls ``upload()``.
    :param limit_seconds: ``image-import-timeout``.
    """

    segment_size = BLOCK_BYTES
    #: AWS takes 1000 blocks a second of an account; what it puts off makes all of them slower.
    concurrency: ClassVar[int] = 16
    error_retries: ClassVar[int] = 4

    def __init__(
        self, calls: ImageCalls, ec2: Ec2, job: ImageJob, wait: UploadWait, limit_seconds: float | None
    ) -> None:
        super().__init__(calls, log, job.path, job.name, dict(job.tags))
        self._calls = calls
        self._ec2 = ec2
        self._job = job
        self._wait = wait
        self._limit_seconds = limit_seconds
        self._snapshot_id = ""
        #: Blocks before this one were written by an upload that was interrupted.
        self._written_before = 0
        self._whole = hashlib.sha256()
        self._read = 0
        #: Guards all of the following.
        self._block_lock = threading.Lock()
        self._digests: dict[int, bytes] = {}
        #: Blocks that are done; those before the first one that is not are only counted.
        self._done_blocks: set[int] = set()
        self._first_open = 0
        self._marked_at = monotonic()
        self._mark_seconds = FIRST_MARK_SECONDS

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
        self._snapshot_id = self._wait.when_allowed(
            lambda: self.retry(self._calls.start_snapshot, arguments), self._limit_seconds
        )

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
                self._calls.put_block(self._snapshot_id, segment.index, data, digest)
            with self._block_lock:
                self._digests[segment.index] = digest
        self._block_done(segment.index)

    def finishUpload(self) -> str:
        problem = file_problem(self._job, self._read, self._whole.hexdigest())
        if problem is not None:
            raise ImageCreateException(f"{self._wait.head} is not what was built: {problem}")
        digest = hashlib.sha256(b"".join(digest for _, digest in sorted(self._digests.items()))).digest()
        ordered = False
        for _ in self._wait.looks(f"snapshot {self._snapshot_id}", COMPLETE_SECONDS):
            ordered = ordered or self._complete(digest)
            snapshot = self._look()
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
        discard_snapshot(self._calls, self._snapshot_id)

    def shouldRetryException(self, exception: BaseException) -> bool:
        if self._wait.stopped:
            return False
        passing = isinstance(exception, CloudRefused) and exception.code in _PASSING
        # What AWS puts off was sent again several times.
        return isinstance(exception, CloudAway) or passing

    # -- inside --

    def _interrupted(self) -> AwsSnapshot | None:
        """What an upload of the same build has begun."""
        for found in self._calls.snapshots(self._job.build_tags):
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
            if now - self._marked_at < self._mark_seconds or written <= self._written_before:
                return
            self._marked_at = now
            self._mark_seconds = min(MARK_SECONDS, 2 * self._mark_seconds)
        self._mark(written)

    def _mark(self, written: int) -> None:
        """Note how far it is. Without the tag nobody goes on with the snapshot, that is all."""
        try:
            self._ec2.tag_now([self._snapshot_id], {WRITTEN_KEY: str(written)})
        except LaunchError as error:
            log.debug("%s: snapshot %s is not marked: %s", self._wait.head, self._snapshot_id, error)

    def _complete(self, digest: bytes) -> bool:
        """Was it ordered?"""
        try:
            self._calls.complete_snapshot(self._snapshot_id, len(self._digests), digest)
        except CloudAway as error:
            log.debug("%s: %s", self._wait.head, error)
            return False
        except CloudRefused:
            snapshot = self._look()
            if snapshot is None or snapshot.status != COMPLETED:
                raise
            # The answer of an earlier call was lost.
        return True

    def _look(self) -> AwsSnapshot | None:
        try:
            return self._calls.snapshot(self._snapshot_id)
        except CloudAway as error:
            log.debug("%s: %s", self._wait.head, error)
            return None
