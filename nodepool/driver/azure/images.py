# SPDX-License-Identifier: Apache-2.0
"""`AzureImages`: uploaded images of one provider: upload, deletion and list (AZ-12, AZ-13)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.driver.azure import vhd
from nodepool.driver.azure.client import DISKS, IMAGES
from nodepool.driver.azure.image_calls import AzureImageCalls
from nodepool.driver.azure.types import FAILED
from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.framework.upload import ImageUploader, Segment
from nodepool.driver.statemachine.metadata import BUILD_KEY, PROVIDER_KEY, UPLOAD_KEY
from nodepool.exceptions import ImageCreateException
from nodepool.guard import Guard

if TYPE_CHECKING:
    from nodepool.driver.azure.config import AzureProviderConfig
    from nodepool.driver.azure.image_config import AzureDiskImage

log = logging.getLogger("nodepool.driver.azure.images")

#: What Azure takes at once, and what an empty page is compared with.
SEGMENT_BYTES: Final = 4 * 1024 * 1024
_EMPTY: Final = bytes(SEGMENT_BYTES)
#: What says of which upload a thing is.
_OWN: Final = (PROVIDER_KEY, BUILD_KEY, UPLOAD_KEY)


class AzureImages:
    """All methods block; any thread may call them."""

    def __init__(self, config: AzureProviderConfig, calls: AzureImageCalls) -> None:
        self._config = config
        self.calls = calls

    def upload(self, image: AzureDiskImage, name: str, path: str, metadata: Mapping[str, Any]) -> str:
        """Upload a file; returns the name of the image. After an error nothing is left, if Azure lets us.

        :raises ImageCreateException: Azure cannot use it, or it took too long.
        :raises UploadGivenUp: nobody wants it any more.
        :raises LaunchError: Azure refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        problem = vhd.problem_of(path)
        if problem is not None:
            raise ImageCreateException(f"Provider {self._config.name}: image {name}: {problem}")
        merged = {str(key): str(value) for key, value in metadata.items()}
        own = {key: value for key, value in merged.items() if key.startswith("nodepool_")}
        return str(DiskUpload(self.calls, path, name, {**merged, **image.tags, **own}).upload())

    def delete(self, name: str) -> None:
        """Delete an image and what its upload may have left; one that is gone is no error (AZ-13)."""
        self.calls.delete(IMAGES, name)
        self.discard_disk(name)

    def discard_disk(self, name: str) -> None:
        """Delete a disk of an upload, if it is there."""
        try:
            self.calls.delete(DISKS, name)
        except CloudRefused as error:
            # It may still be written to.
            log.debug("Provider %s: disk %s: %s", self._config.name, name, error)
            self.calls.end_access(name)
            self.calls.delete(DISKS, name)

    def listed(self) -> Iterator[ListedImage]:
        """Images, and disks of uploads that did not end."""
        names = set()
        for image in self.calls.arm.images():
            names.add(image.name.lower())
            yield ListedImage(image.name, image.name, image.metadata, usable=image.status != FAILED)
        for disk in self.calls.arm.disks():
            if disk.metadata.get(UPLOAD_KEY) and disk.name.lower() not in names:
                yield ListedImage(disk.name, disk.name, disk.metadata, usable=False)


class DiskUpload(ImageUploader):
    """One upload: a disk is made and written, an image is made of it, and the disk is deleted on each way out."""

    segment_size = SEGMENT_BYTES
    error_retries: ClassVar[int] = 5

    def __init__(self, calls: AzureImageCalls, path: str, name: str, tags: dict[str, str]) -> None:
        super().__init__(calls, log, path, name, tags)
        self._calls = calls
        self._address = ""
        self._wanted = upload_progress.checker()
        #: The image was made by this upload.
        self._made_image = False

    def startUpload(self) -> None:
        if self._exists():
            raise ImageCreateException(f"there is an image {self.image_name} of another upload; give it another name")
        self._wanted()
        self._calls.create_disk(self.image_name, self.size, self.metadata, self._wanted)
        self._address = self._calls.begin_access(self.image_name, self._wanted)

    def _exists(self) -> bool:
        try:
            found = self._calls.arm.image(self.image_name)
        except CloudNotFound:
            return False
        return any(found.metadata.get(key) != self.metadata.get(key) for key in _OWN)

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
            self._calls.delete(DISKS, self.image_name)
        return self.image_name

    def abortUpload(self) -> None:
        if self._made_image:
            self._calls.delete(IMAGES, self.image_name)
        if self._address:
            self._calls.end_access(self.image_name)
        self._calls.delete(DISKS, self.image_name)
