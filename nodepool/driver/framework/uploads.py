# SPDX-License-Identifier: Apache-2.0
"""Uploads of large image files, and images in a cloud, for drivers (reference/driver 12).

First a file in segments (`ImageUploader`), then in parts of an S3 object, then progress, then the check of what the
cloud stored, then an image as a cloud lists it, then how long something about an image may take.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import logging
import math
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple, Protocol, TypeVar

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.framework.rate import HeldTime, TimeLimit, held_here, held_work, working_for
from nodepool.exceptions import ImageCreateException
from nodepool.guard import ERRORS, Guard, OnError, as_exception
from nodepool.plan.retries import Backoff

R = TypeVar("R")
T = TypeVar("T")


@dataclass(slots=True)
class Segment:
    """A piece of the image file.

    :param index: number of the segment, from 0.
    :param offset: position in the file, in bytes.
    :param data: ``segment_size`` bytes; the last segment may be shorter.
    """

    index: int
    offset: int
    data: bytes


class ImageUploader:
    """Base of a driver's uploader of one image file.

    The hooks run in this order: `startUpload` once, `uploadSegment` for each segment in up to ``concurrency`` threads
    at once, then `finishUpload`; after an error or a timeout `abortUpload` instead. At most ``concurrency`` segments
    are in memory.

    :param adapter: of the driver, for the hooks.
    :param path: of the image file.
    :param image_name: of the image in the cloud, for the hooks.
    :param metadata: for the hooks.
    :raises OSError: there is no such file.
    """

    #: Bytes; a subclass sets it, or an object before its upload begins.
    segment_size: int
    #: Segments under way at once.
    concurrency: ClassVar[int] = 10
    #: Attempts of a call that is made through `retry`.
    error_retries: ClassVar[int] = 3
    #: Seconds before the second attempt; twice as long before each further one.
    retry_pause_seconds: ClassVar[float] = 1.0
    #: Seconds that segments under way get to end before `abortUpload`.
    abort_wait_seconds: ClassVar[float] = 30.0

    def __init__(
        self, adapter: Any, log: logging.Logger, path: str | os.PathLike[str], image_name: str, metadata: dict[str, Any]
    ) -> None:
        self.adapter = adapter
        self.log = log
        self.path = path
        self.image_name = image_name
        self.metadata = metadata
        self.size = os.stat(path).st_size
        self.timeout: float | None = None
        self._limit: TimeLimit | None = None
        #: Guards the position in the file, the bytes that were uploaded, and the first error.
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        #: What ended the upload, for `abortUpload`.
        self.error: BaseException | None = None
        self._next = 0
        self._done = 0
        self._report = reporter()
        #: Errors that ended a `retry`: an outer one does not start again.
        self._given_up: list[BaseException] = []

    # -- hooks --

    def startUpload(self) -> None:
        """Begin; may block. Default: nothing."""

    def uploadSegment(self, segment: Segment) -> None:
        """Upload one segment; may block. Called in several threads, in no order; again after some errors."""
        # Not abstract: drivers of the released interface are instances of what they override.
        raise NotImplementedError

    def finishUpload(self) -> Any:
        """Complete the upload; may block. What it returns is the result of `upload`. Default: nothing, None."""
        return None

    def abortUpload(self) -> None:
        """Remove what was uploaded; may block. Called also when `startUpload` failed. Default: nothing.

        `error` is why.
        """

    def segmentRead(self, segment: Segment) -> None:
        """A segment was read; called in the order of the file, one at a time. Default: nothing."""

    def shouldRetryException(self, exception: BaseException) -> bool:
        """May the call that raised this succeed later?"""
        return True

    # -- for drivers --

    def upload(self, timeout: float | None = None) -> Any:
        """Upload the file; blocks until that is done and returns what `finishUpload` returned.

        :param timeout: seconds for everything but the clean-up; None = no limit.
        :raises ImageCreateException: it took too long.
        :raises Exception: what a hook raised, after `abortUpload`.
        """
        self.timeout = timeout
        self._limit = None if timeout is None else TimeLimit(timeout, held_here())
        self._report = reporter()
        with OnError(self._abort):
            self.startUpload()
            self._upload_segments()
            # That of the segments is set: the hook may use `retry`.
            self._stop = threading.Event()
            return self.finishUpload()

    def checkTimeout(self) -> None:
        """Raise ImageCreateException if the time is over; for loops in the hooks."""
        if self._limit is not None and self._limit.left <= 0:
            raise self._timed_out()

    def getTimeout(self) -> float | None:
        """Seconds that are left; None = there is no limit. Raises ImageCreateException if the time is over."""
        self.checkTimeout()
        return None if self._limit is None else self._limit.left

    def _timed_out(self) -> ImageCreateException:
        return ImageCreateException(f"Upload of {self.path} took longer than {self.timeout} s")

    def retry(self, func: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Call ``func`` until it succeeds, at most ``error_retries`` times.

        Waits in between. `uploadSegment` is called through it, and a hook may use it for single calls: attempts of
        nested uses do not multiply.

        :raises Exception: the last error, or one that `shouldRetryException` does not want.
        """
        pauses = Backoff(self.retry_pause_seconds, math.inf)
        for attempt in range(1, self.error_retries + 1):
            pause = pauses.pause(attempt)
            try:
                return func(*args, **kwargs)
            except Exception as error:
                # Which are worth another attempt the hook `shouldRetryException` says.
                if any(error is seen for seen in self._given_up):
                    raise
                out_of_time = self._limit is not None and self._limit.left <= pause
                if attempt == self.error_retries or not self.shouldRetryException(error) or out_of_time:
                    self._given_up.append(error)
                    raise
                self.log.warning("Upload of %s, attempt %s: %s", self.path, attempt, error)
            if self._stop.wait(pause):
                break
        raise ImageCreateException(f"Upload of {self.path} was stopped")

    # -- inner part --

    def _upload_segments(self) -> None:
        stop, work = self._stop, held_work()
        with open(self.path, "rb") as file:
            workers: list[threading.Thread] = []
            try:
                for number in range(min(self.concurrency, -(-self.size // self.segment_size))):
                    name = f"ImageUploader-{number}"
                    worker = threading.Thread(target=self._work, args=(file, stop, work), name=name, daemon=True)
                    worker.start()
                    workers.append(worker)
                # After an error the other workers end with their present segment.
                self._join(workers, self._limit)
                if self._error is None and any(worker.is_alive() for worker in workers):
                    raise self._timed_out()
            finally:
                stop.set()
                self._join(workers, TimeLimit(self.abort_wait_seconds, HeldTime()))
        if self._error is not None:
            raise self._error
        if self._next != self.size:
            raise OSError(f"{self.path} changed its size while it was uploaded")

    @staticmethod
    def _join(workers: list[threading.Thread], limit: TimeLimit | None) -> None:
        for worker in workers:
            while worker.is_alive() and (limit is None or limit.left > 0):
                worker.join(None if limit is None else limit.left)

    def _work(self, file: BinaryIO, stop: threading.Event, work: tuple[HeldTime, ...]) -> None:
        """One thread: take the next segment and upload it, until there is none."""
        try:
            with working_for(work):
                while not stop.is_set() and (segment := self._read_segment(file)) is not None:
                    self.retry(self.uploadSegment, segment)
                    with self._lock:
                        self._done += len(segment.data)
                        done = self._done
                    self._report(done, self.size)
        except ERRORS as error:
            # `upload` raises it.
            with self._lock:
                if self._error is None:
                    self._error = as_exception(error)
            stop.set()

    def _read_segment(self, file: BinaryIO) -> Segment | None:
        with self._lock:
            offset = self._next
            data = file.read(self.segment_size)
            self._next += len(data)
            segment = Segment(offset // self.segment_size, offset, data)
            if data:
                self.segmentRead(segment)
        return segment if data else None

    def _abort(self, error: BaseException) -> None:
        self.error = error
        # The hook may use `retry`, which must not think that it was stopped.
        self._stop = threading.Event()
        self.log.warning("Upload of %s is aborted", self.path)
        # The error that ended the upload counts, and is on its way.
        with Guard(self.log, "What was uploaded of %s could not be removed", self.path):
            self.abortUpload()


# `PartsUploader`: a file becomes an object of a bucket that speaks the S3 API, in parts.
#
# An upload that is interrupted leaves its parts in the bucket. The next upload of the same build finds them by the key,
# and sends only what is missing: https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html.


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
        """What is there of an upload, by number; raises CloudNotFound if the upload is deleted."""

    def complete(self, upload: PartsUpload, parts: Mapping[int, StoredPart]) -> None:
        """Make an object of the parts; raises CloudNotFound if the upload is deleted."""

    def abort(self, upload: PartsUpload) -> None:
        """Delete the parts; an upload that is not there is no error."""

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
        try:
            for found in self.retry(lambda: list(self._parts_bucket.open_uploads(prefix))):
                if found.key.endswith(ending) and self._goes_on(found):
                    return
        except CloudRefused as error:
            # To look saves time. Without the right to see it the upload begins anew.
            self.log.info("%s: parts of an interrupted upload could not be looked for: %s", self.head, error)
        self.parts_upload = self.retry(self._begin)

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


# The progress of an upload: drivers report it, and the builder shows it. A driver need not report it.
#
# The builder binds two functions to the thread in which it calls ``uploadImage()``; `report` and `check` call those of
# their thread. A driver that uploads in threads of its own asks for them with `reporter` and `checker` first.

#: Gets the bytes that are uploaded, and the bytes in all. Does not block; may raise `UploadGivenUp`. Any thread.
Report = Callable[[int, int], None]
#: Raises `UploadGivenUp` when the upload is to end. Blocks while no one knows, e.g. without ZooKeeper. Any thread.
Check = Callable[[], None]


class UploadGivenUp(Exception):
    """No one wants the upload any more. A driver ends it as after any other error (U-9), and lets this pass."""


class UploadInterrupted(UploadGivenUp):
    """The builder cannot go on with the upload; it is still wanted.

    A driver whose `nodepool.driver.config.ProviderConfig` says ``resumes_uploads`` may leave what it has done so far:
    the next upload of the same build to the same provider goes on with it, and only then the record of this one goes.
    """


_bound: Final = threading.local()


def _nobody(done: int, total: int) -> None:
    """Stands for the builder where no one watches."""


def _wanted() -> None:
    """The same for `check`."""


@contextlib.contextmanager
def watched(report: Report, check: Check = _wanted) -> Iterator[None]:
    """Inside, what this thread reports goes to a function, and another one says whether the upload is still wanted."""
    before = reporter(), checker()
    _bound.report, _bound.check = report, check
    try:
        yield
    finally:
        _bound.report, _bound.check = before


def reporter() -> Report:
    """The function that is bound to this thread; one that does nothing if there is none. Does not block."""
    bound: Report = getattr(_bound, "report", _nobody)
    return bound


def report(done: int, total: int) -> None:
    """Say how far the upload of this thread is, in bytes. Does not block.

    :raises UploadGivenUp: it is to end.
    """
    reporter()(done, total)


def checker() -> Check:
    """The function that is bound to this thread; one that does nothing if there is none. Does not block."""
    bound: Check = getattr(_bound, "check", _wanted)
    return bound


def check() -> None:
    """For times at which no data are sent, and before something is made in the cloud: is the upload still wanted?

    Blocks while no one knows.

    :raises UploadGivenUp: it is to end.
    """
    checker()()


class CountingFile:
    """An image file as the body of a request, which reports what was read of it.

    It is read from its beginning again if a call is repeated. Can be iterated over, in chunks. Not closed by itself.

    :param file: open, at its beginning.
    :param chunk_bytes: of an iteration.
    """

    def __init__(self, file: BinaryIO, chunk_bytes: int = 1024 * 1024) -> None:
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._report = reporter()
        self.size = os.fstat(file.fileno()).st_size

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        self.seek(0)
        while chunk := self.read(self._chunk_bytes):
            yield chunk

    def read(self, count: int = -1) -> bytes:
        """Read, and report the place. Raises UploadGivenUp."""
        data = self._file.read(count)
        self._report(self._file.tell(), self.size)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place in the file; returns it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The place in the file, in bytes."""
        return self._file.tell()

    def fileno(self) -> int:
        """Of the open file."""
        return self._file.fileno()


# Has the cloud stored what was sent? (rule U-14)
#
# For clouds that store the bytes unchanged. If a cloud converts an image on import, its driver checks what the cloud
# reports about the conversion.


@dataclass(frozen=True)
class ImageContent:
    """What is known of the bytes of an image.

    :param size: in bytes; None = not known.
    :param checksums: algorithm, by the name that hashlib has for it, -> hexadecimal digits.
    """

    size: int | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, size: int | None, **checksums: str | None) -> ImageContent:
        """Without the checksums that are None or empty: ``ImageContent.of(size, md5=md5, sha256=sha256)``."""
        return cls(size, {algorithm: value for algorithm, value in checksums.items() if value})


def difference(sent: ImageContent, stored: ImageContent) -> str | None:
    """In what a stored image differs from the file that was sent, for people; None = nothing says that it does.

    Only what both sides tell is compared.
    """
    if sent.size is not None and stored.size is not None and sent.size != stored.size:
        return f"{stored.size} of {sent.size} bytes are in the cloud"
    for algorithm in sorted(sent.checksums.keys() & stored.checksums.keys()):
        ours, theirs = (content.checksums[algorithm].strip().lower() for content in (sent, stored))
        if ours != theirs:
            return f"the {algorithm} of the file is {ours}, that of the image in the cloud is {theirs}"
    return None


def check_stored(image_name: str, sent: ImageContent, stored: ImageContent) -> None:
    """Compare a stored image with the file. The driver deletes the image when this raises.

    :param image_name: for the text.
    :raises ImageCreateException: it is another one: cut off, or corrupted.
    """
    wrong = difference(sent, stored)
    if wrong is not None:
        raise ImageCreateException(f"image {image_name} did not arrive as it was sent: {wrong}")


# `ListedImage`: an image in a cloud, as a list shows it.


@dataclass(frozen=True)
class ListedImage:
    """An image that may be one of ours: its metadata says it (rule D-1).

    :param id: what ``deleteImage()`` takes.
    :param name: "" = it has none.
    :param metadata: as given with the upload.
    :param usable: False = it is no image that a node can be made of: what an upload has left. Without a record no one
        can use it any more (D-3).
    """

    id: Any
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    usable: bool = True

    @property
    def shown_id(self) -> str:
        """The id for people; that of a resource which stands for an image is its own."""
        return str(getattr(self.id, "id", self.id))


# `ImageTime`: how long something about an image may take, and when to look at it.

#: Between two looks at an image that the cloud works on.
LOOK: Final = Backoff(0.5, 10.0, factor=1.5)
#: What is not there for so many looks is not there.
UNSEEN_LOOKS: Final = 4
#: So often who looks asks whether it is still of interest, in seconds.
WANTED_SECONDS: Final = 1.0


class ImageTime:
    """Begins when it is made. Waits for our own limits do not count.

    :param what: has a limit, for errors, e.g. ``Provider a: the upload of image b``.
    :param seconds: the limit.
    :param stopped: ends all waiting.
    :param wanted: asked at least once in `WANTED_SECONDS` between looks; what it raises ends them.
    """

    def __init__(
        self,
        what: str,
        seconds: float,
        stopped: threading.Event,
        wanted: Callable[[], None] = lambda: None,
    ) -> None:
        self._what = what
        self._seconds = seconds
        self._stopped = stopped
        self._wanted = wanted
        self._limit = TimeLimit(seconds, held_here())
        #: Before the next look, in seconds, as the cloud says; None = it does not.
        self.pause: float | None = None

    def check(self) -> None:
        """:raises ImageCreateException: it is over, or the provider was stopped. Does not block."""
        if self._stopped.is_set():
            raise ImageCreateException(f"{self._what} ended, because the provider was stopped")
        if self.left() <= 0:
            raise self.over()

    def left(self) -> float:
        """Seconds; may be negative."""
        return self._limit.left

    def over(self) -> ImageCreateException:
        """What to raise when it is."""
        return ImageCreateException(f"{self._what} took more than {self._seconds:g} s")

    def wait(self, seconds: float) -> bool:
        """Block for a while. False = there is no time for that, or the provider was stopped."""
        return self.left() > seconds and not self._stopped.wait(seconds)

    def looks(self, seconds: float | None = None) -> Iterator[None]:
        """Times to look: now, and after growing pauses until it is over. Raises what ``wanted`` does.

        :param seconds: or until these are.
        """
        part = self._limit if seconds is None else TimeLimit(seconds, held_here())
        for looks in itertools.count(1):
            yield
            pause = LOOK.pause(looks) if self.pause is None else min(self.pause, LOOK.longest_seconds)
            if min(part.left, self.left()) <= pause or not wait_wanted(pause, self._stopped, self._wanted):
                return

    def until(self, look: Callable[[], T | None], unseen: int = UNSEEN_LOOKS) -> T:
        """Look until there is something: that. Blocks; asks ``wanted`` after each look.

        :param look: None = not yet. Of what is new CloudNotFound counts only when it was raised ``unseen`` times: not
            each server of a cloud may know it.
        :raises ImageCreateException: it is over, or the provider was stopped.
        """
        for _ in self.looks():
            try:
                found = look()
            except CloudNotFound:
                self.pause = None
                unseen -= 1
                if not unseen:
                    raise
                found = None
            if found is not None:
                return found
            self._wanted()
        self.check()
        raise self.over()


def wait_wanted(seconds: float, stopped: threading.Event, wanted: Callable[[], None]) -> bool:
    """Block for a while. Raises what ``wanted`` does, which is asked once in `WANTED_SECONDS`.

    :return: False = the provider was stopped.
    """
    left = seconds
    while left > 0:
        if stopped.wait(min(WANTED_SECONDS, left)):
            return False
        wanted()
        left -= WANTED_SECONDS
    return True
