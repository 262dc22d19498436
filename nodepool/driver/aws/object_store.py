# SPDX-License-Identifier: Apache-2.0
"""`ObjectStore`: our objects in a bucket of S3, through which images are imported (AW-17, AW-20).

s3transfer sends the files, in parts and with a checksum of each, which S3 compares. It is imported when one is sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.image_spec import object_tagging
from nodepool.exceptions import ImageCreateException

if TYPE_CHECKING:
    from nodepool.driver.aws.image_spec import ImageJob
    from nodepool.driver.aws.upload_wait import UploadWait

#: Size of a part. S3 takes at most 10 000 of an object.
PART_BYTES: Final = 8 * 1024 * 1024
_MOST_PARTS: Final = 9_000
#: Parts that are under way at once, and so in memory.
_PARTS_AT_ONCE: Final = 4
#: So often the builder is told how far an upload is.
_REPORT_SECONDS: Final = 0.5


class UnfinishedObject(NamedTuple):
    """An upload in parts that was never completed. Its parts cost money until it is ended."""

    key: str
    upload_id: str


class ObjectStore:
    """One bucket. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has."""

    def __init__(self, transport: t.AwsTransport, bucket: str) -> None:
        self.bucket = bucket
        self._transport = transport

    def upload(self, job: ImageJob, wait: UploadWait) -> None:
        """Send the file. After an error parts of it may be left, if S3 does not take their end; no object is.

        :raises ImageCreateException: it is not the file that was built, or S3 has not got all of it.
        :raises UploadGivenUp: nobody wants it any more.
        :raises OSError: the file cannot be read.
        """
        with open(job.path, "rb") as file:
            source = CheckedFile(file)
            self._send(job, source, wait)
        problem = source.problem(job)
        if problem is None:
            stored = self._call("HeadObject", {"Key": job.key})["ContentLength"]
            problem = None if stored == job.size else f"{stored} of {job.size} bytes are in the bucket"
        if problem is not None:
            self.delete(job.key)
            raise ImageCreateException(f"{wait.head} did not arrive as it was built: {problem}")

    def _send(self, job: ImageJob, source: CheckedFile, wait: UploadWait) -> None:
        from s3transfer.manager import TransferConfig, TransferManager

        config = TransferConfig(
            multipart_threshold=PART_BYTES,
            multipart_chunksize=max(PART_BYTES, -(-job.size // _MOST_PARTS)),
            max_request_concurrency=_PARTS_AT_ONCE,
            max_in_memory_upload_chunks=_PARTS_AT_ONCE,
            max_submission_concurrency=1,
        )
        watch = _Watch()
        client = self._transport.transfer_client("s3")
        with self._transport.translated("PutObject"), TransferManager(client, config) as manager:
            more = {"Tagging": object_tagging(job.tags), "ChecksumAlgorithm": "CRC32"}
            future = manager.upload(source, self.bucket, job.key, extra_args=more, subscribers=[watch])
            while not watch.ended.wait(_REPORT_SECONDS):
                # What it raises ends the transfer, and s3transfer takes back what was sent.
                wait.sent(watch.sent)
            future.result()
        wait.sent(job.size)

    def delete(self, key: str) -> None:
        """Delete an object; one that is gone already is no error."""
        with contextlib.suppress(AwsNotFound):
            self._call("DeleteObject", {"Key": key})

    def keys(self, prefix: str) -> Iterator[str]:
        """Of all objects whose keys begin so."""
        given = {"Prefix": prefix}
        while True:
            answer = self._call("ListObjectsV2", given)
            yield from (found["Key"] for found in answer.get("Contents") or ())
            if not answer.get("IsTruncated"):
                return
            given["ContinuationToken"] = answer["NextContinuationToken"]

    def unfinished(self, prefix: str) -> Iterator[UnfinishedObject]:
        """Uploads in parts that were never completed, of keys that begin so."""
        given = {"Prefix": prefix}
        while True:
            answer = self._call("ListMultipartUploads", given)
            yield from (UnfinishedObject(found["Key"], found["UploadId"]) for found in answer.get("Uploads") or ())
            if not answer.get("IsTruncated"):
                return
            given |= {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

    def end_unfinished(self, found: UnfinishedObject) -> None:
        """Delete the parts of an upload."""
        self._call("AbortMultipartUpload", {"Key": found.key, "UploadId": found.upload_id})

    def _call(self, operation: str, arguments: dict[str, str]) -> dict[str, Any]:
        return self._transport.call("s3", t.STORE, operation, {"Bucket": self.bucket, **arguments})


class CheckedFile:
    """A file that is read once, from its beginning to its end, and has its checksum made on the way.

    It has no ``seek`` on purpose: s3transfer would read its parts out of order.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0

    def read(self, amount: int = -1) -> bytes:
        data = self._file.read(amount)
        self._digest.update(data)
        self._size += len(data)
        return data

    def problem(self, job: ImageJob) -> str | None:
        """What is wrong with what was read; None = nothing, as far as it is known."""
        return file_problem(job, self._size, self._digest.hexdigest())


def file_problem(job: ImageJob, size: int, sha256: str) -> str | None:
    """In what a file that was read differs from the one that was built, for people; None = in nothing that is known."""
    if size != job.size:
        return f"the file had {job.size} bytes at first, and {size} when it was read"
    if job.sha256 is not None and job.sha256.strip().lower() != sha256:
        return f"the sha256 of the file was {job.sha256} when it was built, and is {sha256} now; is the disk well?"
    return None


class _Watch:
    """Hears from s3transfer, in its threads, how far a transfer is."""

    def __init__(self) -> None:
        #: Bytes; parts that are sent again are taken off.
        self.sent = 0
        self.ended = threading.Event()
        self._lock = threading.Lock()

    def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
        with self._lock:
            self.sent += bytes_transferred

    def on_done(self, future: Any, **_: Any) -> None:
        self.ended.set()
