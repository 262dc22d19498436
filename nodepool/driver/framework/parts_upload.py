# SPDX-License-Identifier: Apache-2.0
"""`PartsUploader`: a file becomes an object of a bucket that speaks the S3 API, in parts.

An upload that is interrupted leaves its parts in the bucket. The next upload of the same build finds them by the key,
and sends only what is missing: https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.framework.upload import ImageUploader, Segment


class StoredPart(NamedTuple):
    """A part of an upload, as the bucket has it.

    :param tag: its entity tag; unless the bucket encrypts, the MD5 of its bytes in hexadecimal digits.
    :param crc32: of its bytes, as the bucket writes it; "" = it does not say.
    """

    number: int
    tag: str
    size: int
    crc32: str = ""


class PartsUpload(NamedTuple):
    """An upload in parts that was not completed. Its parts cost money until it is ended."""

    key: str
    upload_id: str


class PartsBucket(Protocol):
    """Calls of a bucket. All block, and raise what `nodepool.driver.framework.cloud_errors` has."""

    def put_part(self, upload: PartsUpload, number: int, data: bytes) -> StoredPart:
        """Write a part. The bucket compares its checksum.

        :param number: from 1.
        """

    def parts(self, upload: PartsUpload) -> dict[int, StoredPart]:
        """What is there of an upload, by number; raises CloudNotFound if the upload is gone."""

    def complete(self, upload: PartsUpload, parts: Mapping[int, StoredPart]) -> None:
        """Make an object of the parts; raises CloudNotFound if the upload is gone."""

    def abort(self, upload: PartsUpload) -> None:
        """Delete the parts; an upload that is gone is no error."""

    def open_uploads(self, prefix: str) -> Iterable[PartsUpload]:
        """Uploads that were not completed, of keys that begin so."""


class PartsUploader(ImageUploader):
    """One upload. A subclass calls `begin_parts` in `startUpload`, and `complete_parts` in `finishUpload`.

    :param head: whose upload it is, for texts.
    :param key: of the object, if no interrupted upload has begun another one.
    :param stopped: set when the provider ends.
    """

    def __init__(
        self,
        bucket: PartsBucket,
        log: logging.Logger,
        path: str | os.PathLike[str],
        image_name: str,
        head: str,
        key: str,
        stopped: threading.Event,
    ) -> None:
        super().__init__(bucket, log, path, image_name, {})
        self.head = head
        #: Of the object: that of this upload, or of the one that was interrupted.
        self.key = key
        #: As long as it is not completed.
        self.parts_upload: PartsUpload | None = None
        self._parts_bucket = bucket
        self._provider_stopped = stopped
        #: Was a call made that begins an upload? Its answer may have been lost.
        self._begin_sent = False
        #: What the bucket has. ``_parts_lock`` guards it.
        self._parts: dict[int, StoredPart] = {}
        self._parts_lock = threading.Lock()

    def new_upload(self) -> str:
        """Begin an upload of `key`; returns its id. Blocks."""
        # Not abstract: the base class cannot be, see `uploadSegment` there.
        raise NotImplementedError

    @property
    def stopped(self) -> bool:
        """Has the provider ended?"""
        return self._provider_stopped.is_set()

    def shouldRetryException(self, exception: BaseException) -> bool:
        return isinstance(exception, CloudAway) and not self.stopped

    def begin_parts(self, prefix: str, ending: str) -> None:
        """Go on with an interrupted upload of the build, or begin one. Blocks.

        :param prefix: keys of uploads of the build begin so, and end with ``ending``.
        """
        with self.unless_refused("parts of an interrupted upload"):
            for found in self.retry(lambda: list(self._parts_bucket.open_uploads(prefix))):
                if found.key.endswith(ending) and self._goes_on(found):
                    return
        self.parts_upload = self.retry(self._begin)

    @contextlib.contextmanager
    def unless_refused(self, what: str) -> Iterator[None]:
        """Inside, something is looked for that saves time. Without the right to see it the upload begins anew.

        :param what: is looked for, for the log.
        """
        try:
            yield
        except CloudRefused as error:
            self.log.info("%s: %s could not be looked for: %s", self.head, what, error)

    def _goes_on(self, found: PartsUpload) -> bool:
        try:
            self._parts = self.retry(self._parts_bucket.parts, found)
        except CloudNotFound:
            # It has ended meanwhile.
            return False
        self.log.info("%s: %d parts of an interrupted upload are there", self.head, len(self._parts))
        self.parts_upload, self.key = found, found.key
        return True

    def _begin(self) -> PartsUpload:
        if self._begin_sent:
            found = [one for one in self._parts_bucket.open_uploads(self.key) if one.key == self.key]
            if found:
                return found[0]
        self._begin_sent = True
        return PartsUpload(self.key, self.new_upload())

    def uploadSegment(self, segment: Segment) -> None:
        assert self.parts_upload is not None
        number = segment.index + 1
        with self._parts_lock:
            there = self._parts.get(number)
        if there is not None and is_part(there, segment.data):
            return
        stored = self._parts_bucket.put_part(self.parts_upload, number, segment.data)
        with self._parts_lock:
            self._parts[number] = stored

    def complete_parts(self) -> None:
        """Make the object of all parts. Blocks."""
        assert self.parts_upload is not None
        last = -(-self.size // self.segment_size)
        parts = {number: part for number, part in self._parts.items() if number <= last}
        if not parts:
            # An object has one part at least, also that of an empty file.
            parts[1] = self.retry(self._parts_bucket.put_part, self.parts_upload, 1, b"")
        try:
            self.retry(self._parts_bucket.complete, self.parts_upload, parts)
        except CloudNotFound:
            # The answer of an earlier call was lost: then the object is there.
            self.log.debug("%s: the upload was completed before", self.head)
        self.parts_upload = None

    def abort_parts(self) -> None:
        """Delete the parts, if there is no object of them yet. Blocks."""
        if self.parts_upload is not None:
            self._parts_bucket.abort(self.parts_upload)


def is_part(there: StoredPart, data: bytes) -> bool:
    """Has the bucket this piece of the file as that part? If it does not say, the answer is no."""
    if there.size != len(data):
        return False
    if there.crc32:
        return there.crc32 == crc32_of(data)
    return there.tag == hashlib.md5(data, usedforsecurity=False).hexdigest()


def crc32_of(data: bytes) -> str:
    """The checksum of a part, as the S3 API writes it: Base64 of four bytes, the highest first."""
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
