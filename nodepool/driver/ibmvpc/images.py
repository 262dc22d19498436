# SPDX-License-Identifier: Apache-2.0
"""Uploaded images of one IBM VPC provider: upload, deletion, list, and what uploads have left (IV-9 to IV-11).

First `IbmImages`, then one upload, then the bucket through which images are imported.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused, CodedError, or_none, texts_of
from nodepool.driver.framework.http.rest_calls import RestAnswer, RestCalls, RestLogin
from nodepool.driver.framework.rate import BucketSize
from nodepool.driver.framework.uploads import (
    ImageContent,
    ImageTime,
    ListedImage,
    PartsUpload,
    PartsUploader,
    Segment,
    StoredPart,
    UploadInterrupted,
    check_stored,
)
from nodepool.driver.ibmvpc import types as t
from nodepool.driver.ibmvpc.types import VpcApi, exists
from nodepool.driver.statemachine.adapter import CloudImages, CloudResource
from nodepool.driver.statemachine.instance import BUILD_KEY
from nodepool.exceptions import ImageCreateException
from nodepool.guard import Guard

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import Body, HttpAnswer, PlainHttp
    from nodepool.driver.ibmvpc.client import IbmVpc
    from nodepool.driver.ibmvpc.config import IbmProviderConfig
    from nodepool.driver.ibmvpc.facts import IbmFacts
    from nodepool.driver.ibmvpc.login import IbmLogin
    from nodepool.driver.statemachine import ImageFile

log = logging.getLogger("nodepool.driver.ibmvpc.images")

#: Between key and id of an upload that was not completed.
_BETWEEN: Final = " "


class IbmImages(CloudImages):
    """All methods block; any thread may call them."""

    def __init__(
        self, config: IbmProviderConfig, client: IbmVpc, facts: IbmFacts, http: PlainHttp, login: IbmLogin
    ) -> None:
        self.config = config
        self.client = client
        self.facts = facts
        self.group = t.group_of_images(config.name)
        #: Keys of objects: no other provider's begin so.
        self.prefix = f"{self.group}_"
        self.bucket: CosBucket | None = None
        if config.storage_endpoint and config.bucket_name:
            self.bucket = CosBucket(config.name, http, login, config.storage_endpoint, config.bucket_name)

    def close(self) -> None:
        """Calls that wait end; no new ones begin."""
        if self.bucket is not None:
            self.bucket.calls.close()

    # -- upload --

    def upload(self, file: ImageFile) -> str:
        """Upload a file; returns the id of the image. After an error nothing is left, if IBM lets us.

        :raises Exception: see `CosUpload.run`.
        """
        if self.bucket is None:
            text = f"Provider {self.config.name}: images are imported from object storage; add object-storage"
            raise ImageCreateException(text)
        return CosUpload(self, self.bucket, file).run()

    # -- deletion --

    def delete(self, image_id: str) -> None:
        """Delete an image and what its upload may have left; one that is not there is no error (IV-11)."""
        image = or_none(lambda: self.client.image(image_id))
        if image is None:
            return
        delete_image(self.client, image_id)
        # As long as there is an image its object tells that the upload never ended.
        if self.bucket is not None and image.group == self.group:
            for key in list(self.bucket.keys(f"{self.prefix}{image.name}.")):
                self.bucket.delete(key)

    def discard(self, resource: CloudResource) -> None:
        """Delete what an upload left, or an image."""
        if resource.type == t.IMAGE:
            self.delete(resource.id)
            return
        assert self.bucket is not None
        if resource.type == t.OBJECT:
            self.bucket.delete(resource.id)
        else:
            key, _, upload_id = resource.id.partition(_BETWEEN)
            self.bucket.abort(PartsUpload(key, upload_id))

    # -- lists --

    def listed(self) -> Iterator[ListedImage]:
        """Images of ours, and what uploads have left or not completed yet (D-1, R-4)."""
        for found in self.resources():
            name = found.name
            yield ListedImage(found.id if found.type == t.IMAGE else found, name, found.metadata, usable=found.usable)

    def resources(self) -> Iterator[CloudResource]:
        """The same as resources (IV-10). What does not say of which build it is belongs to no one here.

        An image whose object is there is of an upload that never ended. The object goes after it: IBM does not delete
        an image while it is imported. One that was taken up again has another name than its object, and the same build.
        """
        keys = [] if self.bucket is None else self.bucket.keys(self.prefix)
        objects = {key: self._metadata_of(key) for key in keys}
        builds = {metadata[BUILD_KEY] for metadata in objects.values() if metadata}
        imported = set()
        for image in self.client.images(visibility="private"):
            metadata = t.image_metadata(image.name, image.group)
            if not metadata or image.status == t.DELETING:
                continue
            ended = image.group != self.group or metadata[BUILD_KEY] not in builds
            if not ended:
                imported.add(metadata[BUILD_KEY])
            yield CloudResource(metadata, t.IMAGE, image.id, image.name, usable=image.status != t.FAILED and ended)
        if self.bucket is None:
            return
        for key, metadata in objects.items():
            if metadata.get(BUILD_KEY) not in imported:
                yield CloudResource(metadata, t.OBJECT, key, key, usable=False)
        for found in self.bucket.open_uploads(self.prefix):
            identity = f"{found.key}{_BETWEEN}{found.upload_id}"
            yield CloudResource(self._metadata_of(found.key), t.PART, identity, found.key, usable=False)

    def _metadata_of(self, key: str) -> dict[str, str]:
        """Of which upload an object is."""
        name, _, _ = key.removeprefix(self.prefix).rpartition(".")
        return t.image_metadata(name, self.group)


# `CosUpload`: one upload of an image: parts of an object, an import of it, and the object goes (IV-9).
#
# An upload that is interrupted leaves its parts, or the import that it began. The next upload of the build finds them
# by its id, which is in their names, and goes on with them.

#: Size of a part. A bucket takes at most 10 000 of an object, and IBM no image of more than 250 GB.
PART_BYTES: Final = 32 * 1024 * 1024
#: Longest time of an import.
IMPORT_SECONDS: Final = 4 * 3600.0


class CosUpload(PartsUploader):
    """Made in the thread that calls ``uploadImage()``. ``upload()`` returns the id of the image."""

    segment_size = PART_BYTES
    concurrency: ClassVar[int] = 4
    error_retries: ClassVar[int] = 5

    def __init__(self, images: IbmImages, bucket: CosBucket, file: ImageFile) -> None:
        client, config = images.client, images.config
        name = t.image_name(file.metadata, config.name)
        self._ending = f".{config.image_type}"
        head, key = f"Provider {config.name}: image {name}", f"{images.prefix}{name}{self._ending}"
        super().__init__(bucket, log, file.path, name, head, key, client.calls.stopped)
        self._client = client
        self._bucket = bucket
        #: Id of the build: in the names of all that its uploads make.
        self._build = str(file.metadata[BUILD_KEY])
        self._prefix, self._group = images.prefix, images.group
        self._group_id = images.facts.group_id(images.group)
        self._operating_system: str = file.image.operating_system
        #: As far as it is known.
        self._content = ImageContent.of(os.stat(file.path).st_size, sha256=file.sha256)
        self._check = uploads.checker()
        self._digest = hashlib.sha256()
        self._image: t.IbmImage | None = None
        #: An import was ordered, with or without an answer.
        self._ordered = False

    # -- the whole --

    def run(self) -> str:
        """Upload, or go on with an import of the build that was interrupted; returns the id of the image. Blocks.

        :raises ImageCreateException: IBM cannot use it, or it took too long.
        :raises UploadGivenUp: no one wants it any more.
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
        self.begin_parts(self._prefix, f"-{self._build}{self._ending}")

    def new_upload(self) -> str:
        return self._bucket.begin(self.key)

    def segmentRead(self, segment: Segment) -> None:
        self._digest.update(segment.data)

    def finishUpload(self) -> str:
        if self._image is None:
            # Is it the file that was built? Disks forget.
            read = ImageContent.of(self.size, sha256=self._digest.hexdigest())
            check_stored(self.image_name, self._content, read)
            self.complete_parts()
            stored = self.retry(self._bucket.size, self.key)
            check_stored(self.image_name, ImageContent.of(self.size), ImageContent.of(stored))
            self._check()
            self._image = self._order_import()
        image = self._imported(self._image)
        check_stored(self.image_name, self._content, ImageContent.of(None, sha256=image.sha256))
        self._discard_object()
        return image.id

    def abortUpload(self) -> None:
        if isinstance(self.error, UploadInterrupted) or self.stopped:
            log.info("%s: what was uploaded is left for the next upload of the build", self.head)
            return
        with Guard(log, "%s: parts of %s may be left over", self.head, self.key, traceback=False):
            self.abort_parts()
        with Guard(log, "%s: it may be left over", self.head, level=logging.WARNING, traceback=False) as guard:
            # IBM may have made one without telling.
            image = self._named() if self._image is None and self._ordered else self._image
            if image is not None:
                delete_image(self._client, image.id)
        if guard.error is None:
            self._discard_object()
        # Else the object tells that the upload never ended; see `IbmImages.resources`.

    # -- what an interrupted upload has left --

    def _interrupted_import(self) -> bool:
        """Is an import of the build under way, or has it ended? Then it is that of this upload from now on."""
        keys = set(self._bucket.keys(self._prefix))
        for image in self._client.images(visibility="private"):
            key = f"{self._prefix}{image.name}{self._ending}"
            ours = image.group == self._group and image.name.endswith(f"-{self._build}")
            # Without the object the upload has ended: the image has a record of its own.
            if ours and key in keys and image.status in (t.PENDING, *t.USABLE_IMAGES):
                log.info("%s: the import of an interrupted upload, %s, is taken up again", self.head, image.name)
                self.key = key
                self._image = image
                if image.name != self.image_name:
                    self._image = self._client.rename_image(image.id, self.image_name)
                return True
        return False

    # -- steps --

    def _order_import(self) -> t.IbmImage:
        body = {
            "name": self.image_name,
            "resource_group": {"id": self._group_id},
            "file": {"href": f"cos://{self.retry(self._bucket.region)}/{self._bucket.name}/{self.key}"},
            "operating_system": {"name": self._operating_system},
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

    def _named(self) -> t.IbmImage | None:
        wanted = (self.image_name, self._group)
        found = self._client.images(name=self.image_name, visibility="private")
        return next((one for one in found if (one.name, one.group) == wanted), None)

    def _imported(self, image: t.IbmImage) -> t.IbmImage:
        """Wait until an image can be used."""

        def go_on() -> None:
            # Is it still wanted?
            self._report(self.size, self.size)

        def look() -> t.IbmImage | None:
            try:
                found = self._client.image(image.id)
            except CloudAway as error:
                # It goes on meanwhile.
                log.debug("%s: %s", self.head, error)
                return None
            if found.status not in (t.PENDING, *t.USABLE_IMAGES):
                why = texts_of(found.reasons) or "IBM gives no reason"
                raise ImageCreateException(f"{self.head}: its import is {found.status}: {why}")
            return None if found.status == t.PENDING else found

        go_on()
        stopped = self._client.calls.stopped
        return ImageTime(f"{self.head}: its import", IMPORT_SECONDS, stopped, wanted=go_on).until(look)

    def _discard_object(self) -> None:
        with Guard(log, "%s: object %s may be left over", self.head, self.key, level=logging.WARNING, traceback=False):
            self._bucket.delete(self.key)


def delete_image(client: IbmVpc, image_id: str) -> None:
    """Delete an image; one that is not there, or is deleted now, is no error. Blocks.

    :raises CloudRefused: its import is under way, for example.
    """
    try:
        client.delete("image", image_id)
    except CloudNotFound:
        return
    except CloudRefused as error:
        if error.status != 409:
            raise
        with contextlib.suppress(CloudNotFound):
            if client.image(image_id).status != t.DELETING:
                raise
        log.debug("Image %s is deleted already: %s", image_id, error)


# `CosBucket`: our objects in a bucket of Cloud Object Storage, through which images are imported (IV-9).
#
# It speaks the S3 API, with the token of IAM instead of a signature:
# https://cloud.ibm.com/docs/cloud-object-storage?topic=cloud-object-storage-compatibility-api.

CALL_SECONDS: Final = 45.0
PART_SECONDS: Final = 120.0
#: The one class of calls: those to the bucket have no limit of their own.
_KIND: Final = "object storage"


class CosAnswers(VpcApi):
    """What the answers mean: errors are XML with ``Code`` and ``Message``."""

    def throttled(self, answer: HttpAnswer) -> bool:
        return answer.status == 429 or (answer.status == 503 and b"SlowDown" in answer.content)

    def error(self, head: str, answer: HttpAnswer) -> Exception:
        try:
            data = _tree(answer.content)
        except ElementTree.ParseError:
            return self.meaning(head, [], answer.status)
        found = CodedError(data.findtext("Code", ""), data.findtext("Message", ""))
        return self.meaning(head, [found] if found.code else [], answer.status)


class CosBucket:
    """One bucket. All methods block; any thread may call them. They raise what
    `nodepool.driver.framework.cloud_errors` has.

    :param endpoint: of the region, such as ``https://s3.us-south.cloud-object-storage.appdomain.cloud``.
    """

    def __init__(self, provider: str, http: PlainHttp, login: RestLogin, endpoint: str, bucket: str) -> None:
        base = endpoint.rstrip("/") if "://" in endpoint else f"https://{endpoint.rstrip('/')}"
        self.name = bucket
        self._url = f"{base}/{urllib.parse.quote(bucket, safe='')}"
        self.calls = RestCalls(provider, http, CosAnswers(), login, {}, BucketSize(1, 0))

    def region(self) -> str:
        """Where it is, as addresses of objects name it: the location without the class of storage."""
        found = self._xml(self._call("GET", "", "reading the bucket", {"location": ""}))
        return (found.text or "").strip().rpartition("-")[0]

    # -- an upload in parts --

    def begin(self, key: str) -> str:
        """Begin an upload; returns its id."""
        found = self._xml(self._call("POST", key, "beginning an upload", {"uploads": ""}))
        return found.findtext("UploadId", "")

    def put_part(self, upload: PartsUpload, number: int, data: bytes) -> StoredPart:
        """Write a part. The bucket compares its checksum.

        :param number: from 1.
        """
        digest = hashlib.md5(data, usedforsecurity=False)
        headers = {
            "Content-MD5": base64.b64encode(digest.digest()).decode(),
            "Content-Type": "application/octet-stream",
        }
        query = {"partNumber": str(number), "uploadId": upload.upload_id}
        self._call("PUT", upload.key, "uploading a part", query, data, headers, PART_SECONDS)
        return StoredPart(number, digest.hexdigest(), len(data))

    def parts(self, upload: PartsUpload) -> dict[int, StoredPart]:
        """What is there of an upload, by number."""
        query, found = {"uploadId": upload.upload_id}, {}
        marks = {"part-number-marker": "NextPartNumberMarker"}
        for part in self._pages(upload.key, "listing the parts of an upload", query, "Part", marks):
            number, size = int(part.findtext("PartNumber", "0")), int(part.findtext("Size", "0"))
            found[number] = StoredPart(number, part.findtext("ETag", "").strip('"'), size)
        return found

    def complete(self, upload: PartsUpload, parts: Mapping[int, StoredPart]) -> None:
        """Make an object of the parts."""
        rows = "".join(
            f'<Part><PartNumber>{number}</PartNumber><ETag>"{escape(part.tag)}"</ETag></Part>'
            for number, part in sorted(parts.items())
        )
        body = f"<CompleteMultipartUpload>{rows}</CompleteMultipartUpload>".encode()
        query = {"uploadId": upload.upload_id}
        headers = {"Content-Type": "application/xml"}
        found = self._xml(self._call("POST", upload.key, "completing an upload", query, body, headers, PART_SECONDS))
        if found.tag == "Error":
            # The bucket answers before it knows.
            text = f"Provider {self.calls.provider}: completing an upload failed: {found.findtext('Code', '')}"
            raise CloudAway(text)

    def abort(self, upload: PartsUpload) -> None:
        """Delete the parts; an upload that is not there is no error."""
        with contextlib.suppress(CloudNotFound):
            self._call("DELETE", upload.key, "ending an upload", {"uploadId": upload.upload_id})

    def open_uploads(self, prefix: str) -> list[PartsUpload]:
        """Uploads that were not completed, of keys that begin so."""
        marks = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}
        found = self._pages("", "listing uploads", {"uploads": "", "prefix": prefix}, "Upload", marks)
        return [PartsUpload(one.findtext("Key", ""), one.findtext("UploadId", "")) for one in found]

    # -- objects --

    def size(self, key: str) -> int:
        """Of an object, in bytes; raises CloudNotFound."""
        return int(self._call("HEAD", key, "reading an object").headers.get("Content-Length", "0"))

    def keys(self, prefix: str) -> Iterator[str]:
        """Of all objects whose keys begin so."""
        query, marks = {"list-type": "2", "prefix": prefix}, {"continuation-token": "NextContinuationToken"}
        for one in self._pages("", "listing objects", query, "Contents", marks):
            yield one.findtext("Key", "")

    def delete(self, key: str) -> None:
        """Delete an object; one that is not there is no error."""
        with contextlib.suppress(CloudNotFound):
            self._call("DELETE", key, "deleting an object")

    # -- inside --

    def _call(
        self,
        method: str,
        key: str,
        what: str,
        query: Mapping[str, str] | None = None,
        content: Body = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = CALL_SECONDS,
    ) -> RestAnswer:
        url = f"{self._url}/{urllib.parse.quote(key)}" if key else self._url
        return self.calls.call(_KIND, method, url, what, content=content, query=query, headers=headers, seconds=seconds)

    def _xml(self, answer: RestAnswer) -> ElementTree.Element:
        data: Any = answer.data
        try:
            return _tree(data if isinstance(data, bytes) else b"")
        except ElementTree.ParseError:
            text = f"Provider {self.calls.provider}: the bucket's answer is not XML; is endpoint correct?"
            raise CloudAway(text) from None

    def _pages(
        self, key: str, what: str, query: Mapping[str, str], entries: str, marks: Mapping[str, str]
    ) -> Iterator[ElementTree.Element]:
        """The entries of a list, over all its pages; each page is a call.

        :param entries: their tag.
        :param marks: tags that say where the next page begins, by the parameters that name it.
        """

        def ask(more: Mapping[str, str] | None) -> Any:
            return self._xml(self._call("GET", key, what, {**query, **(more or {})}))

        def read(data: ElementTree.Element) -> tuple[list[ElementTree.Element], dict[str, str]]:
            last = data.findtext("IsTruncated", "") != "true"
            return list(data.iter(entries)), {} if last else {
                name: data.findtext(tag, "") for name, tag in marks.items()
            }

        return self.calls.pages(what, ask, read)


def _tree(content: bytes) -> ElementTree.Element:
    """XML without its namespace. Raises ElementTree.ParseError."""
    root = ElementTree.fromstring(content)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root
