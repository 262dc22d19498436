# SPDX-License-Identifier: Apache-2.0
"""Parallel upload of a large image file in segments (reference/driver 12)."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable
from typing import Any, BinaryIO, ClassVar, TypeVar

from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.held_time import HeldTime, TimeLimit, held_here, held_work, working_for
from nodepool.exceptions import ImageCreateException
from nodepool.guard import ERRORS, Guard, OnError, as_exception
from nodepool.plan.backoff import Backoff

R = TypeVar("R")


class Segment:
    """A piece of the image file.

    :param index: number of the segment, from 0.
    :param offset: position in the file, in bytes.
    :param data: ``segment_size`` bytes; the last segment may be shorter.
    """

    __slots__ = ("data", "index", "offset")

    def __init__(self, index: int, offset: int, data: bytes) -> None:
        self.index = index
        self.offset = offset
        self.data = data


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
        self,
        adapter: Any,
        log: logging.Logger,
        path: str | os.PathLike[str],
        image_name: str,
        metadata: dict[str, Any],
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
        self._report = upload_progress.reporter()
        #: Errors that ended a `retry`: an outer one does not start again.
        self._given_up: list[BaseException] = []

    # -- hooks --

    def startUpload(self) -> None:
        """Begin; may block. Default: nothing."""
        return

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
        return

    def segmentRead(self, segment: Segment) -> None:
        """A segment was read; called in the order of the file, one at a time. Default: nothing."""
        return

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
        self._report = upload_progress.reporter()
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
                if attempt == self.error_retries or not self.shouldRetryException(error) or self._out_of_time(pause):
                    self._given_up.append(error)
                    raise
                self.log.warning("Upload of %s, attempt %s: %s", self.path, attempt, error)
            if self._stop.wait(pause):
                break
        raise ImageCreateException(f"Upload of {self.path} was stopped")

    # -- inner part --

    def _out_of_time(self, pause: float) -> bool:
        return self._limit is not None and self._limit.left <= pause

    def _upload_segments(self) -> None:
        stop, work = self._stop, held_work()
        with open(self.path, "rb") as file:
            workers: list[threading.Thread] = []
            try:
                for number in range(self._worker_count()):
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

    def _worker_count(self) -> int:
        segments = -(-self.size // self.segment_size)
        return min(self.concurrency, segments)

    @staticmethod
    def _join(workers: list[threading.Thread], limit: TimeLimit | None) -> None:
        for worker in workers:
            while worker.is_alive() and (limit is None or limit.left > 0):
                worker.join(None if limit is None else limit.left)

    def _work(self, file: BinaryIO, stop: threading.Event, work: tuple[HeldTime, ...]) -> None:
        """One thread: take the next segment and upload it, until there is none."""
        with working_for(work):
            self._take_segments(file, stop)

    def _take_segments(self, file: BinaryIO, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                segment = self._read_segment(file)
                if segment is None:
                    return
                self.retry(self.uploadSegment, segment)
                self._uploaded(len(segment.data))
        except ERRORS as error:
            # `upload` raises it.
            with self._lock:
                if self._error is None:
                    self._error = as_exception(error)
            stop.set()

    def _uploaded(self, count: int) -> None:
        with self._lock:
            self._done += count
            done = self._done
        self._report(done, self.size)

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
