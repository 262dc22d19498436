# SPDX-License-Identifier: Apache-2.0
"""Images of one provider: upload, deletion and list (reference/configuration 7, 9; rules U, R-7)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused, NotFoundByProxy
from nodepool.driver.framework.image_time import ImageTime
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.openstack.image_content import PROTECTED, UPLOAD_KEYS, Content, api_properties
from nodepool.driver.openstack.image_upload import IMPORT_METHOD, GlanceUpload
from nodepool.exceptions import ImageCreateException

if TYPE_CHECKING:
    from nodepool.driver.openstack.api import Api
    from nodepool.driver.openstack.views import Image

log = logging.getLogger("nodepool.driver.openstack.images")

#: How long to wait for an image to be gone, and for one that is in use to be in use no more. Who calls tries again.
DELETE_SECONDS: Final = 600.0
IN_USE_SECONDS: Final = 30.0
#: Entries of a page of a list of images; Glance gives 25 of itself, and as a rule at most so many.
PAGE: Final = "1000"


class OpenStackImages:
    """Images of one provider. All methods block.

    :param stopped: ends all waiting.
    """

    def __init__(
        self, provider: str, api: Api, stopped: threading.Event, clock: Callable[[], float] = monotonic
    ) -> None:
        self.provider = provider
        self._api = api
        self._stopped = stopped
        self._clock = clock

    def _time(self, what: str, seconds: float, wanted: Callable[[], None] = lambda: None) -> ImageTime:
        return ImageTime(f"Provider {self.provider}: {what}", seconds, self._stopped, self._clock, wanted)

    # -- upload --

    def upload(
        self,
        name: str,
        filename: str,
        image_format: str,
        properties: Mapping[str, Any],
        checksums: Mapping[str, str | None],
        timeout: float,
        by_import: bool = False,
    ) -> str:
        """Upload a file; returns the id of the image. After an error the image is deleted.

        :param properties: of the image; texts, but for ``min_disk``, ``min_ram`` and other attributes of Glance's own.
        :param checksums: of the file, as far as they are known: algorithm -> hexadecimal digits.
        :param timeout: seconds for everything.
        :param by_import: by way of the staging area (clouds.yaml: ``image_upload_use_import: true``).
        :raises ImageCreateException: it took too long, or the cloud cannot use the image.
        :raises LaunchError: the cloud refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        time = self._time(f"the upload of image {name}", timeout, upload_progress.checker())
        body = {
            "container_format": "bare",
            "visibility": "private",
            **api_properties(properties),
            "name": name,
            "disk_format": image_format,
        }
        with open(filename, "rb") as file:
            if by_import:
                self._check_import()
            return GlanceUpload(
                self.provider, self._api, body, Content(file, time.check), checksums, time, by_import
            ).run()

    def _check_import(self) -> None:
        methods = self._api.import_methods()
        if IMPORT_METHOD not in methods:
            raise ImageCreateException(
                f"Provider {self.provider}: the cloud does not import images with {IMPORT_METHOD} (it has: "
                f"{', '.join(methods) or 'no method'}); set image_upload_use_import to false in clouds.yaml"
            )

    # -- deletion --

    def delete(self, image_id: str) -> None:
        """Delete an image and wait until it does not exist any more; one that is gone already is no error.

        :raises ImageCreateException: it is in use, it is protected and must not be unprotected, or it does not go.
        :raises LaunchError: the cloud refused it, or is away.
        """
        try:
            self._order_deletion(image_id)
            for _ in self._time(f"the deletion of image {image_id}", DELETE_SECONDS).looks():
                if self._api.image(image_id).status in ("deleted", "pending_delete"):
                    return
        except CloudNotFound:
            return
        except NotFoundByProxy:
            # A list is no page of a proxy: only that shows that the image does not exist any more.
            if all(image.id != image_id for image in self._all()):
                return
            raise
        raise ImageCreateException(f"Provider {self.provider}: image {image_id} is still there")

    def _order_deletion(self, image_id: str) -> None:
        """Raises CloudNotFound: it is gone already."""
        refused = ""
        for _ in self._time(f"the deletion of image {image_id}", IN_USE_SECONDS).looks():
            try:
                self._api.delete_image(image_id)
                return
            except CloudRefused as error:
                if error.status == 403 and self._unprotect(image_id, error):
                    continue
                if error.status != 409:
                    raise
                refused = error.said
        raise ImageCreateException(
            f"Provider {self.provider}: image {image_id} cannot be deleted while it is in use: {refused}"
        )

    def _unprotect(self, image_id: str, error: CloudRefused) -> bool:
        """Take away the protection of an image that is not to be kept. False = it has none."""
        if self._api.image(image_id).properties.get(PROTECTED) is not True:
            return False
        log.warning("Provider %s: image %s is protected. It is unprotected, to be deleted", self.provider, image_id)
        try:
            self._api.set_image_properties(image_id, {PROTECTED: False}, replace=True)
        except CloudNotFound:
            raise
        except CloudRefused as refused:
            raise ImageCreateException(
                f"Provider {self.provider}: image {image_id} is protected, and cannot be unprotected: {refused.said}; "
                "have it unprotected"
            ) from error
        return True

    # -- list --

    def list(self, unmarked: bool = False) -> Iterator[ListedImage]:
        """Images with metadata of ours, unfinished and hidden ones, too.

        :param unmarked: and private ones without: a task makes an image, and only afterwards it is marked.
        """
        seen: set[str] = set()
        for image in self._all():
            told = image.properties
            marked = any(key in told for key in UPLOAD_KEYS) or (unmarked and told.get("visibility") == "private")
            if marked and image.id not in seen:
                seen.add(image.id)
                yield _listed(image)

    def _all(self) -> Iterator[Image]:
        """Visible images; one may come twice."""
        # Lists of Glance leave out hidden images, unless they are asked for.
        for filters in ({}, {"os_hidden": "true"}):
            yield from self._api.images(limit=PAGE, **filters)


def _listed(image: Image) -> ListedImage:
    texts = {key: value for key, value in image.properties.items() if isinstance(value, str)}
    return ListedImage(image.id, image.name, texts)
