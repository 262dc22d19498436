# SPDX-License-Identifier: Apache-2.0
"""`GceImages`: uploaded images of one provider: upload, deletion and list."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.framework.interrupted_upload import InterruptedUpload
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.framework.upload_progress import UploadInterrupted
from nodepool.driver.gce import tarball
from nodepool.driver.gce.image_calls import GceImageCalls
from nodepool.driver.gce.labels import label_value
from nodepool.driver.gce.names import image_name
from nodepool.driver.gce.object_upload import ObjectUpload
from nodepool.driver.gce.types import DELETING, READY
from nodepool.driver.statemachine.metadata import BUILD_KEY, PROVIDER_KEY, UPLOAD_KEY
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import Guard, OnError

if TYPE_CHECKING:
    from nodepool.driver.gce.config import GceProviderConfig
    from nodepool.driver.gce.image_config import GceDiskImage
    from nodepool.driver.gce.types import GceImage

log = logging.getLogger("nodepool.driver.gce.images")

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
        """Upload a file, or go on with an upload of it that was interrupted; returns the name of the image.

        After an error nothing is left, if Google lets us; what was interrupted is left to go on with.

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
        state = InterruptedUpload(path, self._config.name)
        upload = ObjectUpload(self.calls, self._object_name(made), path, labels, state)
        with OnError(lambda error: self._ended(error, upload, state, made, own)):
            try:
                upload.run()
                wanted()
                self._create(image, made, upload.name, path, labels)
            except (LaunchError, ImageCreateException) as error:
                if self.calls.stopped.is_set():
                    raise UploadInterrupted("the provider was stopped") from error
                raise
        with Guard(log, "Object %s of an upload is left over", upload.name):
            self.calls.delete_object(upload.name)
        state.remove()
        return made

    def _create(self, image: GceDiskImage, name: str, object_name: str, path: str, labels: Mapping[str, str]) -> None:
        """Make an image of an object, and look at it."""
        body = {
            "labels": labels,
            "architecture": image.architecture,
            "guestOsFeatures": [{"type": feature} for feature in image.guest_features],
        }
        self.calls.create_image(name, object_name, body, _request_id(labels, name), upload_progress.checker())
        found = self.calls.image(name)
        size = tarball.disk_size(os.stat(path).st_size, tarball.DISK_UNIT_BYTES)
        if found.status != READY or found.size_gib != max(1, size // _GIB):
            text = f"image {name} is {found.status} with {found.size_gib} GiB after its upload"
            raise ImageCreateException(text)

    def _image(self, name: str) -> GceImage | None:
        """An image of the project, of whomever; None = there is none."""
        try:
            return self.calls.image(name)
        except CloudNotFound:
            return None

    def _ended(
        self,
        error: BaseException,
        upload: ObjectUpload,
        state: InterruptedUpload,
        name: str,
        own: Mapping[str, str | None],
    ) -> None:
        """An upload ended with an error."""
        if isinstance(error, UploadInterrupted):
            log.info("Upload of %s: what was uploaded is left for the next upload of the build", name)
            return
        self._discard(name, upload.name, own)
        if upload.complete or not isinstance(error, CloudAway):
            state.remove()
        # Else Cloud Storage keeps what arrived, as a part of no object, and costs nothing.

    def _discard(self, name: str, object_name: str, own: Mapping[str, str | None]) -> None:
        # The error that ended the upload counts, and is on its way.
        with Guard(log, "What was uploaded of image %s could not be removed", name):
            self._delete_image(name, own)
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
        for image in self.calls.client.images():
            names.add(image.name)
            if image.status == DELETING:
                continue
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
