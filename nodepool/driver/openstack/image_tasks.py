# SPDX-License-Identifier: Apache-2.0
"""Uploads to clouds that take images only through their object storage (clouds.yaml: ``image_api_use_tasks: true``).

openstacksdk does it: the file becomes an object (in segments, if it is large), a task of Glance makes an image of it,
the properties are set, and the object is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nodepool.driver.openstack.errors import CloudNotFound, one_line
from nodepool.driver.openstack.image_check import wrong
from nodepool.driver.openstack.image_content import UPLOAD_KEYS, Content, api_properties
from nodepool.exceptions import ImageCreateException, LaunchError

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

    from nodepool.driver.openstack.api import Api

log = logging.getLogger("nodepool.driver.openstack.images")


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
        """
        from openstack.connection import Connection

        connection = Connection(config=region)
        try:
            image = connection.image.create_image(
                name,
                filename=filename,
                md5=checksums.get("md5"),
                sha256=checksums.get("sha256"),
                allow_duplicates=True,
                wait=True,
                timeout=timeout,
            )
            # The SDK leaves those out that are no texts of its own.
            self._api.set_image_properties(str(image.id), api_properties(properties))
            with open(filename, "rb") as file:
                problem = wrong(self._api.image(str(image.id)), image_format, Content(file), checksums)
        except Exception as error:
            self._discard(name, properties)
            # Of a task that failed; the error itself does not say why.
            said = getattr(getattr(error, "extra_data", None), "message", None)
            reason = one_line(f"{type(error).__name__}: {error} {said or ''}")
            raise ImageCreateException(
                f"Provider {self.provider}: image {name} was not imported by a task: {reason}; does the cloud have "
                "object storage, and may its user run tasks? Else set image_api_use_tasks to false in clouds.yaml"
            ) from error
        finally:
            connection.close()
        if problem:
            self._discard(name, properties)
            raise ImageCreateException(
                f"Provider {self.provider}: image {name} did not arrive as it was sent: {problem}"
            )
        return str(image.id)

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
