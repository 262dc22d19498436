# SPDX-License-Identifier: Apache-2.0
"""Uploads to clouds that take images only through their object storage (clouds.yaml: ``image_api_use_tasks: true``).

openstacksdk does it: the file becomes an object (in segments, if it is large), a task of Glance makes an image of it,
the properties are set, and the object is deleted. The builder hears how far the object is, and can give the upload up
until the task begins: Glance has no means to end a task, and the image that it makes must be deleted then.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.openstack.image_check import wrong
from nodepool.driver.openstack.image_content import UPLOAD_KEYS, Content, api_properties
from nodepool.driver.openstack.task_data import SentData
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import Guard

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

    from nodepool.driver.openstack.api import Api

log = logging.getLogger("nodepool.driver.openstack.images")

#: Of the objects in Swift; the SDK's own default.
_CONTAINER: Final = "images"


class TaskUploads:
    """Uploads of one provider. All methods block.

    :param api: for what is left to clean up.
    """

    def __init__(self, provider: str, api: Api) -> None:
        self.provider = provider
        self._api = api

    def upload(
        self,
        region: CloudRegion,
        name: str,
        filename: str,
        image_format: str,
        properties: Mapping[str, Any],
        checksums: Mapping[str, str | None],
        timeout: float,
    ) -> str:
        """Upload a file; returns the id of the image. What a failed upload leaves is deleted.

        :param name: unique.
        :param properties: of the image.
        :param checksums: ``md5`` and ``sha256`` of the file; computed where None.
        :param timeout: seconds for the task of Glance.
        :raises ImageCreateException: it took too long, or the cloud cannot use the image.
        :raises UploadGivenUp: nobody wants it any more.
        """
        sent = SentData(os.path.getsize(filename))
        try:
            image_id = _imported(region, name, filename, checksums, timeout, sent)
            # The SDK leaves those out that are no texts of its own.
            self._api.set_image_properties(image_id, api_properties(properties))
            with open(filename, "rb") as file:
                problem = wrong(self._api.image(image_id), image_format, Content(file), checksums)
        except Exception as error:
            # Whatever the SDK, a cloud or the builder ended it with: nothing may be left.
            _discard_objects(region, name)
            self._discard(name, properties)
            if sent.given_up is not None:
                raise sent.given_up from None
            # Of a task that failed; the error itself does not say why.
            said = getattr(getattr(error, "extra_data", None), "message", None)
            reason = one_line(f"{type(error).__name__}: {error} {said or ''}")
            raise ImageCreateException(
                f"Provider {self.provider}: image {name} was not imported by a task: {reason}; does the cloud have "
                "object storage, and may its user run tasks? Else set image_api_use_tasks to false in clouds.yaml"
            ) from error
        if problem:
            self._discard(name, properties)
            raise ImageCreateException(
                f"Provider {self.provider}: image {name} did not arrive as it was sent: {problem}"
            )
        return image_id

    def _discard(self, name: str, properties: Mapping[str, Any]) -> None:
        """A task may have made the image, but it has none of our properties: nobody would find it."""
        try:
            for image in self._api.images(name=name):
                # One of another upload may have the same name.
                if all(image.properties.get(key, properties.get(key)) == properties.get(key) for key in UPLOAD_KEYS):
                    self._api.delete_image(image.id)
        except CloudNotFound:
            log.debug("Image %s is gone already", name)
        except LaunchError as error:
            log.warning("Provider %s: image %s may be left over: %s", self.provider, name, error)


def _imported(
    region: CloudRegion,
    name: str,
    filename: str,
    checksums: Mapping[str, str | None],
    timeout: float,
    sent: SentData,
) -> str:
    """Send the file, and wait for the task; returns the id of the image. After an error nothing is sent any more."""
    from openstack.connection import Connection

    with Connection(config=region) as connection:
        if connection.has_service("object-store"):
            storage = connection.object_store
            # The library has no hook for it. All bytes of objects go through this method.
            storage.put = sent.watch(storage.put)  # type: ignore[method-assign]
        image = connection.image.create_image(
            name,
            filename=filename,
            md5=checksums.get("md5"),
            sha256=checksums.get("sha256"),
            container=_CONTAINER,
            allow_duplicates=True,
            wait=True,
            timeout=timeout,
        )
    return str(image.id)


def _discard_objects(region: CloudRegion, name: str) -> None:
    """Delete the object and the segments that an upload has left. What stays is deleted by the cloud a day later."""
    from openstack.connection import Connection

    # It runs after an error, which says more than one of the clean-up.
    with (
        Guard(log, "Objects of image %s may be left over", name, level=logging.WARNING, traceback=False),
        Connection(config=region) as connection,
    ):
        if connection.has_service("object-store"):
            connection.object_store.delete_object(name, container=_CONTAINER)
            # The slash: other images may have names that begin with this one.
            connection.delete_autocreated_image_objects(_CONTAINER, f"{name}/")
