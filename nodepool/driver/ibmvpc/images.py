# SPDX-License-Identifier: Apache-2.0
"""`IbmImages`: uploaded images of one provider: upload, deletion, list, and what uploads have left (IV-9 to IV-11)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.framework.parts_upload import PartsUpload
from nodepool.driver.framework.upload_check import ImageContent
from nodepool.driver.ibmvpc.image_upload import IMPORT_SECONDS, CosUpload, IbmImageJob, delete_image
from nodepool.driver.ibmvpc.names import group_of_images, image_metadata, image_name
from nodepool.driver.ibmvpc.object_store import CosBucket
from nodepool.driver.ibmvpc.resources import IMAGE, OBJECT, PART, IbmResource
from nodepool.driver.ibmvpc.types import DELETING, FAILED
from nodepool.driver.statemachine.metadata import BUILD_KEY
from nodepool.exceptions import ImageCreateException

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import PlainHttp
    from nodepool.driver.ibmvpc.client import IbmVpc
    from nodepool.driver.ibmvpc.config import IbmProviderConfig
    from nodepool.driver.ibmvpc.facts import IbmFacts
    from nodepool.driver.ibmvpc.image_config import IbmDiskImage
    from nodepool.driver.ibmvpc.login import IbmLogin

log = logging.getLogger("nodepool.driver.ibmvpc.images")

#: Between key and id of an upload that was not completed.
_BETWEEN: Final = " "


class IbmImages:
    """All methods block; any thread may call them."""

    def __init__(
        self, config: IbmProviderConfig, client: IbmVpc, facts: IbmFacts, http: PlainHttp, login: IbmLogin
    ) -> None:
        self._config = config
        self._client = client
        self._facts = facts
        self._group = group_of_images(config.name)
        #: Keys of objects: no other provider's begin so.
        self._prefix = f"{self._group}_"
        self.import_seconds = IMPORT_SECONDS
        self.bucket: CosBucket | None = None
        if config.storage_endpoint and config.bucket_name:
            self.bucket = CosBucket(config.name, http, login, config.storage_endpoint, config.bucket_name)

    def close(self) -> None:
        """Calls that wait end; no new ones begin."""
        if self.bucket is not None:
            self.bucket.calls.close()

    # -- upload --

    def upload(self, image: IbmDiskImage, path: str, metadata: Mapping[str, Any], sha256: str | None) -> str:
        """Upload a file; returns the id of the image. After an error nothing is left, if IBM lets us.

        :param metadata: of the upload, as the builder gives it.
        :param sha256: of the file, hexadecimal; None = it is not known.
        :raises Exception: see `CosUpload.run`.
        """
        if self.bucket is None:
            text = f"Provider {self._config.name}: images are imported from object storage; add object-storage"
            raise ImageCreateException(text)
        size = os.stat(path).st_size
        name = image_name(metadata, self._config.name)
        job = IbmImageJob(
            name=name,
            build=str(metadata[BUILD_KEY]),
            key=f"{self._prefix}{name}.{self._config.image_type}",
            prefix=self._prefix,
            group=self._group,
            group_id=self._facts.group_id(self._group),
            operating_system=image.operating_system,
            content=ImageContent.of(size, sha256=sha256),
        )
        return CosUpload(self._client, self.bucket, path, job, self.import_seconds).run()

    # -- deletion --

    def delete(self, image_id: str) -> None:
        """Delete an image and what its upload may have left; one that is gone is no error (IV-11)."""
        try:
            image = self._client.image(image_id)
        except CloudNotFound:
            return
        delete_image(self._client, image_id)
        # As long as there is an image its object tells that the upload never ended.
        if self.bucket is not None and image.group == self._group:
            for key in list(self.bucket.keys(f"{self._prefix}{image.name}.")):
                self.bucket.delete(key)

    def discard(self, resource: IbmResource) -> None:
        """Delete what an upload left, or an image."""
        if resource.type == IMAGE:
            self.delete(resource.id)
            return
        assert self.bucket is not None
        if resource.type == OBJECT:
            self.bucket.delete(resource.id)
        else:
            key, _, upload_id = resource.id.partition(_BETWEEN)
            self.bucket.abort(PartsUpload(key, upload_id))

    # -- lists --

    def listed(self) -> Iterator[ListedImage]:
        """Images of ours, and what uploads have left or not completed yet (D-1, R-4)."""
        for found in self.resources():
            name = found.name
            yield ListedImage(found.id if found.type == IMAGE else found, name, found.metadata, usable=found.usable)

    def resources(self) -> Iterator[IbmResource]:
        """The same as resources (IV-10). What does not say of which build it is belongs to nobody here.

        An image whose object is there is of an upload that never ended. The object goes after it: IBM does not delete
        an image while it is imported. One that was taken up again has another name than its object, and the same build.
        """
        keys = [] if self.bucket is None else self.bucket.keys(self._prefix)
        objects = {key: self._metadata_of(key) for key in keys}
        builds = {metadata[BUILD_KEY] for metadata in objects.values() if metadata}
        imported = set()
        for image in self._client.images(visibility="private"):
            metadata = image_metadata(image.name, image.group)
            if not metadata or image.status == DELETING:
                continue
            ended = image.group != self._group or metadata[BUILD_KEY] not in builds
            if not ended:
                imported.add(metadata[BUILD_KEY])
            yield IbmResource(metadata, IMAGE, image.id, image.name, usable=image.status != FAILED and ended)
        if self.bucket is None:
            return
        for key, metadata in objects.items():
            if metadata.get(BUILD_KEY) not in imported:
                yield IbmResource(metadata, OBJECT, key, key, usable=False)
        for found in self.bucket.open_uploads(self._prefix):
            identity = f"{found.key}{_BETWEEN}{found.upload_id}"
            yield IbmResource(self._metadata_of(found.key), PART, identity, found.key, usable=False)

    def _metadata_of(self, key: str) -> dict[str, str]:
        """Of which upload an object is."""
        name, _, _ = key.removeprefix(self._prefix).rpartition(".")
        return image_metadata(name, self._group)
