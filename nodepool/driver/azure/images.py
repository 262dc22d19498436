# SPDX-License-Identifier: Apache-2.0
"""Uploaded images of one Azure provider: upload, deletion and list (AZ-12, AZ-13).

First one upload, then images and the calls that an upload makes, then how a long operation is followed.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.driver.azure.client import CANCELED, DISKS, FAILED, IMAGES, SUCCEEDED, Arm, errors_in, meaning
from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused, or_none, retry_after, sent_again
from nodepool.driver.framework.uploads import ImageTime, ImageUploader, ListedImage, Segment
from nodepool.driver.statemachine.adapter import CloudImages
from nodepool.driver.statemachine.instance import BUILD_KEY, PROVIDER_KEY, UPLOAD_KEY
from nodepool.exceptions import ImageCreateException
from nodepool.guard import Guard

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import PlainHttp
    from nodepool.driver.framework.http.rest_calls import RestAnswer
    from nodepool.driver.statemachine import ImageFile

log = logging.getLogger("nodepool.driver.azure.images")

#: What Azure takes at once, and what an empty page is compared with.
SEGMENT_BYTES: Final = 4 * 1024 * 1024
_EMPTY: Final = bytes(SEGMENT_BYTES)
#: What says of which upload a thing is.
_OWN: Final = (PROVIDER_KEY, BUILD_KEY, UPLOAD_KEY)


class DiskUpload(ImageUploader):
    """One upload: a disk is made and written, an image is made of it, and the disk is deleted on each way out."""

    segment_size = SEGMENT_BYTES
    error_retries: ClassVar[int] = 5

    def __init__(self, calls: AzureImageCalls, path: str, name: str, tags: dict[str, str]) -> None:
        super().__init__(calls, log, path, name, tags)
        self._calls = calls
        self._address = ""
        self._wanted = uploads.checker()
        #: The image was made by this upload.
        self._made_image = False

    def startUpload(self) -> None:
        if self._exists():
            raise ImageCreateException(f"there is an image {self.image_name} of another upload; give it another name")
        self._wanted()
        self._calls.create_disk(self.image_name, self.size, self.metadata, self._wanted)
        self._address = self._calls.begin_access(self.image_name, self._wanted)

    def _exists(self) -> bool:
        found = or_none(lambda: self._calls.arm.image(self.image_name))
        return found is not None and any(found.metadata.get(key) != self.metadata.get(key) for key in _OWN)

    def uploadSegment(self, segment: Segment) -> None:
        # What was never written is zero.
        if segment.data != _EMPTY[: len(segment.data)]:
            self._calls.write_pages(self._address, segment.offset, segment.data)

    def shouldRetryException(self, exception: BaseException) -> bool:
        return isinstance(exception, CloudAway)

    def finishUpload(self) -> str:
        self._wanted()
        self._calls.end_access(self.image_name)
        self._address = ""
        self._made_image = True
        self._calls.create_image(self.image_name, self.image_name, self.metadata, self._wanted)
        with Guard(log, "Disk %s of an upload is left over", self.image_name):
            self._calls.delete_resource(DISKS, self.image_name)
        return self.image_name

    def abortUpload(self) -> None:
        if self._made_image:
            self._calls.delete_resource(IMAGES, self.image_name)
        if self._address:
            self._calls.end_access(self.image_name)
        self._calls.delete_resource(DISKS, self.image_name)


# `AzureImageCalls`: images, and the calls and operations that an upload makes (AZ-12, AZ-13).

#: How long the address of an upload is valid: longer than an upload takes.
ACCESS_SECONDS: Final = 24 * 3600
PAGES_SECONDS: Final = 120.0
_BLOB_VERSION: Final = "2023-11-03"


class AzureImageCalls(CloudImages):
    """All methods block; any thread may call them. They raise what `nodepool.driver.framework.cloud_errors` has.

    :param http: for pages, which do not go to the Resource Manager.
    """

    def __init__(self, arm: Arm, http: PlainHttp, location: str) -> None:
        self.arm = arm
        self._http = http
        self._location = location

    # -- images --

    def upload(self, file: ImageFile) -> str:
        """Upload a file; returns the name of the image. After an error nothing is left, if Azure lets us.

        :raises ImageCreateException: Azure cannot use it, or it took too long.
        :raises UploadGivenUp: it is not wanted any more.
        :raises OSError: the file cannot be read.
        """
        merged = {str(key): str(value) for key, value in file.metadata.items()}
        own = {key: value for key, value in merged.items() if key.startswith("nodepool_")}
        return str(DiskUpload(self, file.path, file.name, {**merged, **file.image.tags, **own}).upload())

    def delete(self, image_id: str) -> None:
        """Delete an image and what its upload may have left; one that is absent is no error (AZ-13)."""
        self.delete_resource(IMAGES, image_id)
        self.discard_disk(image_id)

    def discard_disk(self, name: str) -> None:
        """Delete a disk of an upload, if it is there."""
        try:
            self.delete_resource(DISKS, name)
        except CloudRefused as error:
            # It may still be written to.
            log.debug("Provider %s: disk %s: %s", self.arm.calls.provider, name, error)
            self.end_access(name)
            self.delete_resource(DISKS, name)

    def listed(self) -> Iterator[ListedImage]:
        """Images, and disks of uploads that did not end."""
        names = set()
        for image in self.arm.all_of(IMAGES):
            names.add(image.name.lower())
            yield ListedImage(image.name, image.name, image.metadata, usable=image.status != FAILED)
        for disk in self.arm.all_of(DISKS):
            if disk.metadata.get(UPLOAD_KEY) and disk.name.lower() not in names:
                yield ListedImage(disk.name, disk.name, disk.metadata, usable=False)

    # -- the disk that is uploaded --

    def create_disk(self, name: str, size: int, tags: Mapping[str, str], wanted: Callable[[], None]) -> None:
        """Make a disk that can be uploaded.

        :param size: of the file, in bytes.
        :param wanted: asked while it waits; what it raises ends it.
        """
        properties = {
            "creationData": {"createOption": "Upload", "uploadSizeBytes": size},
            "osType": "Linux",
            "hyperVGeneration": "V2",
        }
        self._put(DISKS, name, f"disk {name}", tags, properties, wanted)

    def begin_access(self, name: str, wanted: Callable[[], None]) -> str:
        """Where the disk is written to: an address that needs no login, so no one may see it."""
        body = {"access": "Write", "durationInSeconds": ACCESS_SECONDS}
        answer = self._order("POST", DISKS, name, f"beginGetAccess of {name}", "/beginGetAccess", body)
        what = f"access to disk {name}"
        data = self._finish(answer, what, wanted)
        if data is None and (location := answer.headers.get("Location")):
            # The end of the operation need not have it: the official clients read it there.
            data = self._finish(answer._replace(status=202, headers={"Location": location}), what, wanted)
        found = data.get("accessSAS") if isinstance(data, dict) else None
        if not isinstance(found, str) or not found.startswith(("https://", "http://")):
            raise CloudAway(f"Provider {self.arm.calls.provider}: Azure gave no address to write disk {name} to")
        return found

    def write_pages(self, address: str, offset: int, data: bytes) -> None:
        """Write pages of a disk. Azure compares their checksum.

        :param offset: of the first one, in bytes; as the length a multiple of 512.
        """
        from nodepool.driver.framework.http.plain_http import NoAnswer

        head = f"Provider {self.arm.calls.provider}: writing an image failed"
        headers = {
            "x-ms-version": _BLOB_VERSION,
            "x-ms-page-write": "update",
            "x-ms-range": f"bytes={offset}-{offset + len(data) - 1}",
            "Content-MD5": base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode(),
            "Content-Type": "application/octet-stream",
        }
        separator = "&" if "?" in address else "?"
        try:
            answer = self._http.send("PUT", f"{address}{separator}comp=page", headers, data, seconds=PAGES_SECONDS)
        except NoAnswer as error:
            # Without the address: it is as good as a password.
            text = str(error).replace(address, "the disk")
            raise CloudAway(f"{head}: {text.partition('?')[0]}") from None
        if answer.status == 201:
            return
        if answer.status in (408, 429) or answer.status >= 500:
            raise CloudAway(f"{head}: status {answer.status}")
        raise CloudRefused(f"{head}: status {answer.status}", status=answer.status)

    def end_access(self, name: str) -> None:
        """End the access; without that the disk can be neither used nor deleted. One that is not there is no error."""
        what = f"end of the access to disk {name}"
        or_none(
            lambda: self._finish(self._order("POST", DISKS, name, f"endGetAccess of {name}", "/endGetAccess"), what)
        )

    def delete_resource(self, kind: str, name: str) -> None:
        """Delete a resource, and wait until it has ended. One that is not there is no error."""
        answer = or_none(lambda: self._order("DELETE", kind, name, f"deleting {name}"))
        if answer is not None:
            self._finish(answer, f"deletion of {name}")

    # -- the image --

    def create_image(self, name: str, disk: str, tags: Mapping[str, str], wanted: Callable[[], None]) -> None:
        """Make an image of a disk, and wait until it can be used.

        :raises ImageCreateException: it cannot, or it took too long.
        """
        properties = {
            "hyperVGeneration": "V2",
            "storageProfile": {
                "osDisk": {
                    "osType": "Linux",
                    "osState": "Generalized",
                    "managedDisk": {"id": self.arm.path(DISKS, disk)},
                },
                "zoneResilient": True,
            },
        }
        self._put(IMAGES, name, f"image {name}", tags, properties, wanted)
        where = f"Provider {self.arm.calls.provider}: image {name}"

        def look() -> bool | None:
            # After the end of the operation Azure may not know the image for a moment, or it may not be ready.
            status = self.arm.image(name).status
            if status in (FAILED, CANCELED):
                raise ImageCreateException(f"{where} is {status} after its upload")
            return status == SUCCEEDED or None

        ImageTime(where, OPERATION_SECONDS, self.arm.calls.stopped, wanted=wanted).until(look, APPEARS_LOOKS)

    # -- inside --

    def _put(
        self,
        kind: str,
        name: str,
        what: str,
        tags: Mapping[str, str],
        properties: Mapping[str, Any],
        wanted: Callable[[], None],
    ) -> None:
        body = {"location": self._location, "tags": dict(tags), "properties": properties}
        self._finish(self._order("PUT", kind, name, f"creating {name}", body=body), what, wanted)

    def _order(
        self, method: str, kind: str, name: str, what: str, action: str = "", body: Mapping[str, Any] | None = None
    ) -> RestAnswer:
        """`Arm.request`, sent again without an answer: the same again makes nothing new."""
        return sent_again(lambda: self.arm.request(method, kind, name, what, action, body))

    def _finish(self, answer: RestAnswer, what: str, wanted: Callable[[], None] = lambda: None) -> Any:
        return follow(self.arm, answer, what, wanted)


# `follow`: a long operation is looked at until it ends (AZ-12).
#
# Azure says where: ``Azure-AsyncOperation`` leads to its state, ``Location`` to what comes of it, with the status 202
# until then. https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations

#: Longest time for one operation.
OPERATION_SECONDS: Final = 1800.0
#: Azure may not know a new operation or resource yet: so many looks, in half a minute.
APPEARS_LOOKS: Final = 10
_ACCEPTED: Final = 202
#: How an operation can end; any other state is one of an operation that runs, as for azure-core.
_SUCCEEDED: Final = "succeeded"
_FAILED: Final = ("failed", "canceled", "cancelled")


def follow(arm: Arm, answer: RestAnswer, what: str, wanted: Callable[[], None] = lambda: None) -> Any:
    """Wait for the end of an operation; returns its output, or the answer if there is no operation. Blocks.

    :param answer: to the call that began it.
    :param what: for errors.
    :param wanted: asked while it waits; what it raises ends it.
    :raises ImageCreateException: it took too long.
    :raises CloudRefused: it failed; or another error of `nodepool.driver.framework.cloud_errors`.
    """
    where = f"Provider {arm.calls.provider}: {what}"
    address = answer.headers.get("Azure-AsyncOperation") or ""
    by_location = not address and answer.status == _ACCEPTED
    if by_location:
        address = answer.headers.get("Location") or ""
    if not address:
        return answer.data
    pause = retry_after(answer.headers)
    time = ImageTime(where, OPERATION_SECONDS, arm.calls.stopped, wanted)

    def look() -> tuple[Any] | None:
        nonlocal address
        found = arm.operation(address, what)
        given = retry_after(found.headers)
        time.pause = pause if given is None else given
        if not by_location:
            return _output(found.data, where)
        address = found.headers.get("Location") or address
        # An operation that failed answers with an error.
        return None if found.status == _ACCEPTED else (found.data,)

    return time.until(look, APPEARS_LOOKS)[0]


def _output(data: Any, where: str) -> tuple[Any] | None:
    """What came of an operation; None = it has not ended."""
    data = data if isinstance(data, dict) else {}
    status = str(data.get("status", "")).lower()
    if status in _FAILED:
        errors = errors_in(data)
        raise meaning(f"{where} failed", errors) if errors else CloudRefused(f"{where} ended as {status!r}")
    return ((data.get("properties") or {}).get("output"),) if status == _SUCCEEDED else None
