# SPDX-License-Identifier: Apache-2.0
"""Uploaded images of one GCE provider: upload, deletion and list.

First `GceImages`, with the calls that an upload makes: to Cloud Storage, and for images of Compute Engine. Then the
file on its way to Cloud Storage, then the archive that Compute Engine takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import tarfile
import threading
import urllib.parse
import uuid
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused, or_none, sent_again
from nodepool.driver.framework.http.rest_calls import RestAnswer, same_server
from nodepool.driver.framework.uploads import ImageTime, ListedImage, UploadInterrupted, wait_wanted
from nodepool.driver.gce import types as t
from nodepool.driver.gce.client import CALL_SECONDS, IMAGE, ComputeEngine, quoted
from nodepool.driver.gce.config import STORAGE_ENDPOINT, GceDiskImage, GceProviderConfig
from nodepool.driver.gce.types import DELETING, READY, GceImage, image_name, label_value, operation_failure
from nodepool.driver.statemachine.adapter import CloudImages, ImageFile
from nodepool.driver.statemachine.instance import BUILD_KEY, PROVIDER_KEY, UPLOAD_KEY
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import Guard, OnError
from nodepool.plan.retries import Backoff

log = logging.getLogger("nodepool.driver.gce.images")

#: What says of which upload a thing is.
_OWN: Final = (PROVIDER_KEY, BUILD_KEY, UPLOAD_KEY)
_NOT_IN_KEYS: Final = re.compile(r"[^a-z0-9_-]")
_GIB: Final = 1024**3
#: Class of the calls of Cloud Storage, which takes thousands a second.
STORAGE: Final = "storage"
#: Longest time for one operation.
OPERATION_SECONDS: Final = 1800.0
PIECE_SECONDS: Final = 120.0
_KEPT: Final = re.compile(r"bytes=0-(\d+)", re.IGNORECASE)
#: Status of a piece of an upload that has more pieces.
_MORE: Final = 308


class GceImages(CloudImages):
    """All methods block; any thread may call them. They raise what `nodepool.driver.framework.cloud_errors` has."""

    def __init__(self, config: GceProviderConfig, client: ComputeEngine) -> None:
        self._config = config
        self.client = client
        self.bucket = config.bucket_name or ""
        #: Address of Cloud Storage.
        self._endpoint = config.storage_endpoint
        #: Of the names of objects.
        self._prefix = f"nodepool/{config.name}/"

    def upload(self, file: ImageFile) -> str:
        """Upload a file; returns the name of the image. After an error nothing is left, if Google lets us.

        :raises ImageCreateException: Google cannot use it, or it took too long.
        :raises UploadGivenUp: no one wants it any more.
        :raises LaunchError: Google refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        # Two providers of a project may upload a build in the same second.
        made = image_name(f"{file.name}-{self._config.name}")
        labels = image_labels(file.metadata)
        told = self.client.labels.metadata(labels)
        own = {key: told.get(key) for key in _OWN}
        there = or_none(lambda: self.client.image_named(made))
        if there is not None and not _is_of(there, own):
            raise ImageCreateException(f"there is an image {made} of another upload; give it another name")
        wanted = uploads.checker()
        wanted()
        object_name = self._object_name(made)
        with OnError(lambda _: self._discard(made, object_name, own)):
            try:
                ObjectUpload(self, object_name, file.path, labels).run()
                wanted()
                self._create(file.image, made, object_name, file.path, labels)
            except (LaunchError, ImageCreateException) as error:
                if self.stopped.is_set():
                    raise UploadInterrupted("the provider was stopped") from error
                raise
        self._discard_object(object_name)
        return made

    def _create(self, image: GceDiskImage, name: str, object_name: str, path: str, labels: Mapping[str, str]) -> None:
        """Make an image of an object, and look at it."""
        body = {
            "labels": labels,
            "architecture": image.architecture,
            "guestOsFeatures": [{"type": feature} for feature in image.guest_features],
        }
        self.create_image(name, object_name, body, _request_id(labels, name), uploads.checker())
        found = self.client.image_named(name)
        size = disk_size(os.stat(path).st_size, DISK_UNIT_BYTES)
        if found.status != READY or found.size_gib != max(1, size // _GIB):
            text = f"image {name} is {found.status} with {found.size_gib} GiB after its upload"
            raise ImageCreateException(text)

    def _discard(self, name: str, object_name: str, own: Mapping[str, str | None]) -> None:
        """An upload ended with an error, which counts, and is on its way."""
        if self.stopped.is_set():
            log.info("Upload of %s: the provider was stopped; the builder deletes what is left", name)
            return
        with Guard(log, "What was uploaded of image %s could not be removed", name):
            self._delete_image(name, own)
        self._discard_object(object_name)

    def _discard_object(self, name: str) -> None:
        with Guard(log, "Object %s of an upload is left over", name):
            self.delete_object(name)

    def delete(self, image_id: str) -> None:
        """Delete an image of this provider, and what its upload may have left; what is deleted is no error."""
        self._delete_image(image_id, {PROVIDER_KEY: self._config.name})
        if self.bucket:
            self.delete_object(self._object_name(image_id))

    def _delete_image(self, name: str, own: Mapping[str, str | None]) -> None:
        """Delete an image if it is ours.

        All who use a project share the names of its images: another may have made one of the name meanwhile.
        """
        found = or_none(lambda: self.client.image_named(name))
        if found is not None and _is_of(found, own):
            self.delete_image(name)

    def listed(self) -> Iterator[ListedImage]:
        """Images, and objects of uploads that did not end."""
        names = set()
        for image in self.client.images():
            names.add(image.name)
            if image.status == DELETING:
                continue
            yield ListedImage(image.name, image.name, image.metadata, usable=image.status != "FAILED")
        for found in self.objects(self._prefix) if self.bucket else ():
            name = str(found.get("name") or "").removeprefix(self._prefix).removesuffix(".tar.gz")
            metadata = self.client.labels.metadata(found.get("metadata"))
            if metadata.get(UPLOAD_KEY) and name not in names:
                yield ListedImage(name, name, metadata, usable=False)

    def _object_name(self, name: str) -> str:
        return f"{self._prefix}{name}.tar.gz"

    @property
    def stopped(self) -> threading.Event:
        """Set when the provider was stopped."""
        return self.client.calls.stopped

    # -- calls: objects --

    def begin_object(self, name: str, metadata: Mapping[str, str]) -> str:
        """Begin an upload; returns the address of its pieces, which no one may see: it needs no login."""
        url = f"{self._endpoint}/upload/storage/v1/b/{quoted(self.bucket)}/o"
        body = {"name": name, "contentType": "application/gzip", "metadata": dict(metadata)}
        what = "beginning an upload"
        query = {"uploadType": "resumable", "name": name}
        answer = sent_again(lambda: self._call("POST", url, what, body=body, query=query))
        where = answer.headers.get("Location") or ""
        # No other host is to see our token.
        if not same_server(where, self._endpoint):
            raise CloudAway(f"Provider {self.client.calls.provider}: {what} failed: no address at {self._endpoint}")
        return where

    def send(self, where: str, span: str, data: bytes) -> tuple[int, Mapping[str, Any] | None]:
        """Send a piece of an object, or (``*/*``) only ask.

        :param where: what `begin_object` returned.
        :param span: first and last byte of the piece, and the size of the object, as ``Content-Range`` has them.
        :return: how many bytes of the object are stored; and the object, when it is complete.
        :raises CloudRefused: for example, Google does not know the upload any more.
        """
        answer = self._call(
            "PUT",
            where,
            "sending an image",
            content=data,
            headers={"Content-Range": f"bytes {span}"},
            seconds=PIECE_SECONDS,
        )
        if answer.status != _MORE:
            return 0, answer.data if isinstance(answer.data, dict) else {}
        kept = _KEPT.fullmatch(answer.headers.get("Range") or "")
        return (int(kept[1]) + 1 if kept else 0), None

    def delete_object(self, name: str) -> None:
        """One that is not there is no error."""
        url = f"{self._endpoint}/storage/v1/b/{quoted(self.bucket)}/o/{quoted(name)}"
        or_none(lambda: sent_again(lambda: self._call("DELETE", url, "deleting an object")))

    def objects(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        """Objects whose names begin so."""
        url = f"{self._endpoint}/storage/v1/b/{quoted(self.bucket)}/o"
        query = {"prefix": prefix, "fields": "items(name,metadata),nextPageToken"}
        what = "listing objects"

        def ask(token: str | None) -> Any:
            # Nothing at all is a page without items.
            return self._call("GET", url, what, query={**query, **({"pageToken": token} if token else {})}).data or {}

        return self.client.calls.pages(
            what, ask, lambda page: (list(page.get("items") or ()), page.get("nextPageToken"))
        )

    # -- calls: images --

    def create_image(
        self, name: str, object_name: str, body: Mapping[str, Any], request_id: str, wanted: Callable[[], None]
    ) -> None:
        """Make an image of an object, and wait until its operation is over.

        :param body: more of the image.
        :param wanted: asked while it waits; what it raises ends it.
        """
        source = f"{self._storage()}/{self.bucket}/{urllib.parse.quote(object_name)}"
        whole = {"name": name, "rawDisk": {"source": source}, **body}
        what = f"image {name}"
        answer = self._image_call("POST", "", f"creating {what}", body=whole, query={"requestId": request_id})
        self._finish(answer, what, wanted)

    def delete_image(self, name: str) -> None:
        """Delete an image, and wait until that is done. One that does not exist is no error."""
        with contextlib.suppress(CloudNotFound):
            answer = self._image_call("DELETE", f"/{quoted(name)}", f"deleting image {name}")
            self._finish(answer, f"deletion of image {name}")

    # -- inside --

    def _storage(self) -> str:
        """Cloud Storage, as Compute Engine knows it.

        All endpoints of googleapis.com, such as those of Private Service Connect, lead to one storage, which Compute
        Engine knows by its public name only. Any other endpoint is that of another cloud, with a storage of its own.
        """
        host = urllib.parse.urlsplit(self._endpoint).hostname or ""
        return STORAGE_ENDPOINT if host.endswith(".googleapis.com") else self._endpoint

    def _call(self, method: str, url: str, what: str, **more: Any) -> RestAnswer:
        return self.client.calls.call(STORAGE, method, url, what, **{"seconds": CALL_SECONDS, **more})

    def _image_call(self, method: str, path: str, what: str, **more: Any) -> RestAnswer:
        url = self.client.url(f"{self.client.project}/global/images{path}")
        return sent_again(lambda: self.client.calls.call(IMAGE, method, url, what, seconds=CALL_SECONDS, **more))

    def _finish(self, answer: RestAnswer, what: str, wanted: Callable[[], None] = lambda: None) -> None:
        """Follow an operation of the project to its end.

        :raises ImageCreateException: it took too long.
        """
        calls = self.client.calls
        where = f"Provider {calls.provider}: {what}"
        data = answer.data if isinstance(answer.data, dict) else {}
        if "name" not in data:
            raise CloudRefused(f"{where} failed: there is no operation")
        operation = t.Operation(data)

        def look() -> t.Operation | None:
            name, why = operation.name, f"waiting for {what}"
            found = operation if operation.done else self.client.operation_of_project(name, why)
            return found if found.done else None

        try:
            ended = ImageTime(where, OPERATION_SECONDS, self.stopped, wanted=wanted).until(look)
        except CloudNotFound as error:
            # The image may be there all the same: that its operation is not yet there proves nothing.
            raise CloudAway(str(error)) from error
        failure = operation_failure(f"{where} failed", ended.data)
        if failure is not None:
            raise failure


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


# `ObjectUpload`: an image file on its way to Cloud Storage, as a resumable upload:
# https://cloud.google.com/storage/docs/resumable-uploads.

#: Sent at once: a multiple of 256 KiB, as Cloud Storage demands.
PIECE_BYTES: Final = 8 * 1024 * 1024
#: Attempts in a row after which an upload ends that had no more stored, and pauses between them; the first one is
#: repeated at once.
SEND_ATTEMPTS: Final = 8
SEND_AGAIN: Final = Backoff(1.0, 30.0)


class ObjectUpload:
    """For one use, made in the thread that calls ``uploadImage()``.

    What was sent and is not stored, because the connection broke, is sent again.

    :param name: of the object.
    :param labels: also metadata of the object, so that someone can tell whose it is.
    """

    def __init__(self, calls: GceImages, name: str, path: str, labels: Mapping[str, str]) -> None:
        self.name = name
        self._calls = calls
        self._path = path
        self._labels = labels
        self._wanted = uploads.checker()
        self._digest = hashlib.md5(usedforsecurity=False)
        #: What is not stored yet, and its place in the object.
        self._waiting = bytearray()
        self._offset = 0
        #: The object, when it is complete.
        self._done: Mapping[str, Any] | None = None

    def run(self) -> None:
        """Send it; blocks.

        :raises ImageCreateException: it did not arrive as it was sent.
        :raises UploadGivenUp: no one wants it any more, or the provider was stopped.
        """
        report = uploads.reporter()
        with open(self._path, "rb") as file:
            total = os.fstat(file.fileno()).st_size
            where = self._calls.begin_object(self.name, self._labels)
            for piece in tar_gz(file, DISK_UNIT_BYTES, lambda done: report(min(done, total - 1), total)):
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
                if unsure and self._took(*self._calls.send(where, "*/*", b"")):
                    return
                unsure = False
                data = bytes(self._waiting[:count])
                end = self._offset + len(data)
                span = f"{self._offset}-{end - 1}" if data else "*"
                if self._took(*self._calls.send(where, f"{span}/{end if last else '*'}", data)):
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
            if not wait_wanted(SEND_AGAIN.pause(failures - 1), self._calls.stopped, self._wanted):
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


# A raw disk as Compute Engine takes it: ``disk.raw`` in a tar archive, in gzip; made while it is read.
#
# https://cloud.google.com/compute/docs/import/import-existing-image: the size of the disk is a multiple of 1 GiB, and
# the archive has the old format of GNU tar.

FILE_NAME: Final = "disk.raw"
#: The size of a disk is a multiple of this.
DISK_UNIT_BYTES: Final = 1024**3
#: Read at once.
BLOCK_BYTES: Final = 1024 * 1024
#: Quick: what is sent is mostly not compressible further.
_LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS
_ZEROS: Final = bytes(BLOCK_BYTES)
_TAR_BLOCK: Final = tarfile.BLOCKSIZE


def disk_size(file_bytes: int, unit: int = DISK_UNIT_BYTES) -> int:
    """Size of the disk for a file, in bytes."""
    return max(1, -(-file_bytes // unit)) * unit


def tar_gz(
    file: BinaryIO, unit: int = DISK_UNIT_BYTES, read: Callable[[int], None] = lambda _: None
) -> Iterator[bytes]:
    """The archive of a raw disk, piece by piece; blocks.

    :param file: open, at its beginning.
    :param unit: the disk is filled up with zeros to a multiple of it, in bytes.
    :param read: gets how many bytes of the file were read.
    :raises OSError: it cannot be read, or changed its size meanwhile.
    """
    file_bytes = os.fstat(file.fileno()).st_size
    packed = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for data in _tar(file, file_bytes, unit, read):
        yield packed.compress(data)
    yield packed.flush()


def _tar(file: BinaryIO, file_bytes: int, unit: int, read: Callable[[int], None]) -> Iterator[bytes]:
    """The archive as it is before it is compressed."""
    done = 0
    head = tarfile.TarInfo(FILE_NAME)
    head.size = disk_size(file_bytes, unit)
    head.mode = 0o644
    yield head.tobuf(tarfile.GNU_FORMAT)
    while block := file.read(BLOCK_BYTES):
        done += len(block)
        read(done)
        yield block
    if done != file_bytes:
        raise OSError(f"{file.name} changed its size while it was read")
    # The end of the archive: two empty blocks, filled up to a record.
    padding = head.size - done
    padding += -(_TAR_BLOCK + head.size + 2 * _TAR_BLOCK) % tarfile.RECORDSIZE + 2 * _TAR_BLOCK
    while padding > 0:
        yield _ZEROS[:padding]
        padding -= BLOCK_BYTES
