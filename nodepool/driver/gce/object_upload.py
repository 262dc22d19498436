# SPDX-License-Identifier: Apache-2.0
"""`ObjectUpload`: an image file on its way to Cloud Storage.

It is a resumable one, https://cloud.google.com/storage/docs/resumable-uploads: if it is interrupted, by the end of the
builder for example, the next one goes on where it was. Google lists no upload that is not complete: its address is kept
beside the file.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.framework.image_time import wait_wanted
from nodepool.driver.framework.upload_progress import UploadInterrupted
from nodepool.driver.gce import tarball
from nodepool.exceptions import ImageCreateException
from nodepool.plan.backoff import Backoff

if TYPE_CHECKING:
    from nodepool.driver.framework.interrupted_upload import InterruptedUpload
    from nodepool.driver.gce.image_calls import GceImageCalls

log = logging.getLogger("nodepool.driver.gce.images")

#: Sent at once: a multiple of 256 KiB, as Cloud Storage demands.
PIECE_BYTES: Final = 8 * 1024 * 1024
#: Attempts in a row after which an upload ends that had no more stored, and pauses between them; the first one is
#: repeated at once.
SEND_ATTEMPTS: Final = 8
SEND_AGAIN: Final = Backoff(1.0, 30.0)
#: Keys of what is kept of an upload.
_ADDRESS, _BUCKET, _NAME = "address", "bucket", "object"


class ObjectUpload:
    """For one use, made in the thread that calls ``uploadImage()``.

    What was sent and is not stored, because the connection broke, is sent again.

    :param name: of the object.
    :param labels: also metadata of the object, so that somebody can tell whose it is.
    :param state: where the address of the upload is kept. Google forgets it after a week.
    :param wait: blocks between two calls, as `wait_wanted`.

    Results: ``name`` of the object, which an upload that was interrupted may have called otherwise; ``complete``, it is
    there.
    """

    def __init__(
        self,
        calls: GceImageCalls,
        name: str,
        path: str,
        labels: Mapping[str, str],
        state: InterruptedUpload,
        wait: Callable[[float, threading.Event, Callable[[], None]], bool] = wait_wanted,
    ) -> None:
        self.name = name
        self._calls = calls
        self._path = path
        self._labels = labels
        self._state = state
        self._wait = wait
        self._wanted = upload_progress.checker()
        self._digest = hashlib.md5(usedforsecurity=False)
        #: What is not stored yet, and its place in the object.
        self._waiting = bytearray()
        self._offset = 0
        #: So many bytes were stored by an upload that was interrupted, and not made again yet.
        self._skipped = 0
        self._done: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        return self._done is not None

    def run(self) -> None:
        """Send it; blocks.

        :raises ImageCreateException: it did not arrive as it was sent.
        :raises UploadGivenUp: nobody wants it any more, or the provider was stopped.
        """
        report = upload_progress.reporter()
        with open(self._path, "rb") as file:
            total = os.fstat(file.fileno()).st_size
            where = self._interrupted() or self._begin()
            pieces = tarball.tar_gz(file, tarball.DISK_UNIT_BYTES, lambda done: report(min(done, total - 1), total))
            for piece in pieces:
                self._digest.update(piece)
                self._waiting += self._new_of(piece)
                while len(self._waiting) > PIECE_BYTES:
                    self._send(where, PIECE_BYTES, last=False)
            if self._skipped and not self.complete:
                raise ImageCreateException(f"object {self.name} is longer than what is to be sent; it begins anew")
            while not self.complete:
                self._send(where, len(self._waiting), last=True)
            report(total, total)
        self._check()

    def _begin(self) -> str:
        """The address of a new upload."""
        where = self._calls.begin_object(self.name, self._labels)
        self._state.write({_ADDRESS: where, _BUCKET: self._calls.bucket, _NAME: self.name})
        return where

    def _interrupted(self) -> str | None:
        """The address of an upload of the file that was interrupted; None = there is none to go on with."""
        known = self._state.read() or {}
        where, name = known.get(_ADDRESS), known.get(_NAME)
        if known.get(_BUCKET) != self._calls.bucket or not isinstance(name, str) or not self._calls.is_address(where):
            return None
        try:
            stored, done = self._calls.stored_before(str(where))
            if done is not None:
                # Somebody may have deleted it meanwhile.
                done = self._calls.object(name)
        except CloudRefused as error:
            log.info("Upload of %s begins anew: %s", self.name, error)
            return None
        log.info("Upload of %s goes on with object %s: %s", self.name, name, "whole" if done else f"{stored} bytes")
        self.name, self._done = name, done
        self._offset = self._skipped = stored
        return str(where)

    def _new_of(self, piece: bytes) -> bytes:
        """What of the next piece is not stored yet."""
        if self.complete:
            return b""
        old = min(self._skipped, len(piece))
        self._skipped -= old
        return piece[old:]

    def _send(self, where: str, count: int, last: bool) -> None:
        """Send the first bytes that wait, until some of them are stored."""
        failures, unsure = 0, False
        while True:
            try:
                if unsure and self._took(*self._calls.stored(where)):
                    return
                unsure = False
                data = bytes(self._waiting[:count])
                if self._took(*self._calls.send_piece(where, self._offset, data, last)):
                    return
                error = CloudAway(f"Cloud Storage does not store the piece at {self._offset} of {self.name}")
            except CloudAway as away:
                # Who knows how much of it has arrived?
                unsure, error = True, away
            failures += 1
            if failures == SEND_ATTEMPTS:
                raise error
            log.warning("Upload of %s, piece at %d: %s", self.name, self._offset, error)
            self._wanted()
            if not self._wait(SEND_AGAIN.pause(failures - 1), self._calls.stopped, self._wanted):
                raise UploadInterrupted("the provider was stopped")

    def _took(self, stored: int, done: Mapping[str, Any] | None) -> bool:
        """Cloud Storage has so much of the object, or the whole. Is that more than before?"""
        self._done = done
        taken = min(max(0, stored - self._offset), len(self._waiting))
        del self._waiting[:taken]
        self._offset += taken
        return done is not None or taken > 0

    def _check(self) -> None:
        """Cloud Storage says what it has."""
        assert self._done is not None
        stored, sent = self._done.get("md5Hash"), b64encode(self._digest.digest()).decode()
        if stored is None:
            # Cloud Storage leaves it out where it is not to be known, for example because a key encrypts the object.
            stored, sent = str(self._done.get("size")), str(self._offset)
        if stored != sent:
            text = f"object {self.name} did not arrive as it was sent: MD5 or size is {stored}, not {sent}"
            raise ImageCreateException(text)
