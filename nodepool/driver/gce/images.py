# SPDX-License-Identifier: Apache-2.0
"""`GceImages`: uploaded images of one provider: upload, deletion and list."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.framework.image_time import wait_wanted
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.gce import tarball
from nodepool.driver.gce.image_calls import GceImageCalls
from nodepool.driver.gce.labels import label_value
from nodepool.driver.gce.names import image_name
from nodepool.driver.gce.types import READY
from nodepool.driver.statemachine.metadata import BUILD_KEY, PROVIDER_KEY, UPLOAD_KEY
from nodepool.exceptions import ImageCreateException
from nodepool.guard import Guard, OnError
from nodepool.plan.backoff import Backoff

if TYPE_CHECKING:
    from nodepool.driver.gce.config import GceProviderConfig
    from nodepool.driver.gce.image_config import GceDiskImage
    from nodepool.driver.gce.types import GceImage

log = logging.getLogger("nodepool.driver.gce.images")

#: Sent at once: a multiple of 256 KiB, as Cloud Storage demands.
PIECE_BYTES: Final = 8 * 1024 * 1024
#: Attempts in a row after which an upload ends that had no more stored, and pauses between them; the first one is
#: repeated at once.
SEND_ATTEMPTS: Final = 8
SEND_AGAIN: Final = Backoff(1.0, 30.0)
#: What says of which upload a thing is.
_OWN: Final = (PROVIDER_KEY, BUILD_KEY, UPLOAD_KEY)
_NOT_IN_KEYS: Final = re.compile(r"[^a-z0-9_-]")
_GIB: Final = 1024**3


class GceImages:
    """All methods block; any thread may call them."""

    def __init__(self, config: GceProviderConfig, calls: GceImageCalls) -> None:
        self._config = config
        self.calls = calls
        #: Of the names of objects.
        self._prefix = f"nodepool/{config.name}/"

    def upload(self, image: GceDiskImage, name: str, path: str, metadata: Mapping[str, Any]) -> str:
        """Upload a file; returns the name of the image. After an error nothing is left, if Google lets us.

        :raises ImageCreateException: Google cannot use it, or it took too long.
        :raises UploadGivenUp: nobody wants it any more.
        :raises LaunchError: Google refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        # Two providers of a project may upload a build in the same second.
        made = image_name(f"{name}-{self._config.name}")
        labels = image_labels(metadata)
        told = self.calls.client.labels.metadata(labels)
        own = {key: told.get(key) for key in _OWN}
        there = self._image(made)
        if there is not None and not _is_of(there, own):
            raise ImageCreateException(f"there is an image {made} of another upload; give it another name")
        wanted = upload_progress.checker()
        wanted()
        upload = ObjectUpload(self.calls, self._object_name(made), path, labels)
        with OnError(lambda _: self._discard(made, own)):
            upload.run()
            wanted()
            body = {
                "labels": labels,
                "architecture": image.architecture,
                "guestOsFeatures": [{"type": feature} for feature in image.guest_features],
            }
            self.calls.create_image(made, upload.name, body, _request_id(labels, made), wanted)
            found = self.calls.image(made)
            size = tarball.disk_size(os.stat(path).st_size, tarball.DISK_UNIT_BYTES)
            if found.status != READY or found.size_gib != max(1, size // _GIB):
                text = f"image {made} is {found.status} with {found.size_gib} GiB after its upload"
                raise ImageCreateException(text)
        with Guard(log, "Object %s of an upload is left over", upload.name):
            self.calls.delete_object(upload.name)
        return made

    def _image(self, name: str) -> GceImage | None:
        """An image of the project, of whomever; None = there is none."""
        try:
            return self.calls.image(name)
        except CloudNotFound:
            return None

    def _discard(self, name: str, own: Mapping[str, str | None]) -> None:
        # The error that ended the upload counts, and is on its way.
        with Guard(log, "What was uploaded of image %s could not be removed", name):
            self._delete_image(name, own)
        object_name = self._object_name(name)
        with Guard(log, "Object %s of an upload is left over", object_name):
            self.calls.delete_object(object_name)

    def delete(self, name: str) -> None:
        """Delete an image of this provider, and what its upload may have left; what is gone is no error."""
        self._delete_image(name, {PROVIDER_KEY: self._config.name})
        if self.calls.bucket:
            self.calls.delete_object(self._object_name(name))

    def _delete_image(self, name: str, own: Mapping[str, str | None]) -> None:
        """Delete an image if it is ours.

        All who use a project share the names of its images: somebody else may have made one of the name meanwhile.
        """
        found = self._image(name)
        if found is not None and _is_of(found, own):
            self.calls.delete_image(name)

    def listed(self) -> Iterator[ListedImage]:
        """Images, and objects of uploads that did not end."""
        names = set()
        for image in self.calls.images():
            names.add(image.name)
            yield ListedImage(image.name, image.name, image.metadata, usable=image.status != "FAILED")
        for found in self.calls.objects(self._prefix) if self.calls.bucket else ():
            name = str(found.get("name") or "").removeprefix(self._prefix).removesuffix(".tar.gz")
            metadata = self.calls.client.labels.metadata(found.get("metadata"))
            if metadata.get(UPLOAD_KEY) and name not in names:
                yield ListedImage(name, name, metadata, usable=False)

    def _object_name(self, name: str) -> str:
        return f"{self._prefix}{name}.tar.gz"


def _is_of(image: GceImage, own: Mapping[str, str | None]) -> bool:
    return all(image.metadata.get(key) == value for key, value in own.items())


def image_labels(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Metadata as labels: keys begin with a small letter."""
    found = {}
    for key, value in metadata.items():
        fitting = _NOT_IN_KEYS.sub("_", str(key).lower())[:63]
        found[fitting if fitting[:1].isalpha() else f"x{fitting}"[:63]] = label_value(str(value))
    return found


def _request_id(labels: Mapping[str, str], name: str) -> str:
    whole = "\0".join([name, *(labels.get(key, "") for key in _OWN)])
    return str(uuid.UUID(hashlib.sha256(whole.encode()).hexdigest()[:32], version=4))


class ObjectUpload:
    """An image file on its way to Cloud Storage. For one use, made in the thread that calls ``uploadImage()``.

    What was sent and is not stored, because the connection broke, is sent again.

    :param name: of the object.
    :param labels: also metadata of the object, so that somebody can tell whose it is.
    :param wait: blocks between two calls, as `wait_wanted`.
    """

    def __init__(
        self,
        calls: GceImageCalls,
        name: str,
        path: str,
        labels: Mapping[str, str],
        wait: Callable[[float, threading.Event, Callable[[], None]], bool] = wait_wanted,
    ) -> None:
        self.name = name
        self._calls = calls
        self._path = path
        self._labels = labels
        self._wait = wait
        self._wanted = upload_progress.checker()
        self._digest = hashlib.md5(usedforsecurity=False)
        #: What is not stored yet, and its place in the object.
        self._waiting = bytearray()
        self._offset = 0
        self._done: Mapping[str, Any] | None = None

    def run(self) -> None:
        """Send it; blocks.

        :raises ImageCreateException: it did not arrive as it was sent, or the provider was stopped.
        :raises UploadGivenUp: nobody wants it any more.
        """
        report = upload_progress.reporter()
        with open(self._path, "rb") as file:
            total = os.fstat(file.fileno()).st_size
            where = self._calls.begin_object(self.name, self._labels)
            pieces = tarball.tar_gz(file, tarball.DISK_UNIT_BYTES, lambda done: report(min(done, total - 1), total))
            for piece in pieces:
                self._digest.update(piece)
                self._waiting += piece
                while len(self._waiting) > PIECE_BYTES:
                    self._send(where, PIECE_BYTES, last=False)
            while self._done is None:
                self._send(where, len(self._waiting), last=True)
            report(total, total)
        self._check()

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
                raise ImageCreateException(f"the upload of {self.name} ended, because the provider was stopped")

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
        if stored != sent:
            text = f"object {self.name} did not arrive as it was sent: its MD5 is {stored}, not {sent}"
            raise ImageCreateException(text)
