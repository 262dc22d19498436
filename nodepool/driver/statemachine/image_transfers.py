# SPDX-License-Identifier: Apache-2.0
"""Images of a provider on the framework: uploads, deletions and lists, by its adapter (rules U, D-1, D-3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodepool.driver import gateway
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.statemachine import metadata
from nodepool.driver.statemachine.instance import Resource
from nodepool.exceptions import NotFound

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Adapter


class ImageTransfers:
    """Base of a provider. All methods block as long as the cloud does; any thread may call them, several at once."""

    name: str
    adapter: Adapter

    def uploadImage(
        self,
        provider_image: Any,
        image_name: str,
        filename: str,
        image_type: str | None = None,
        meta: dict[str, str] | None = None,
        md5: str | None = None,
        sha256: str | None = None,
    ) -> str:
        """See `nodepool.driver.interface.Provider.uploadImage`. The name of the provider is added to the metadata."""
        return gateway.upload_image_to_cloud(
            self.name,
            self.adapter,
            provider_image,
            image_name,
            filename,
            image_format=image_type,
            metadata={**(meta or {}), metadata.PROVIDER_KEY: self.name},
            md5=md5,
            sha256=sha256,
        )

    def deleteImage(self, name: str, id: Any) -> None:
        """Delete an image; one that is gone already is no error.

        :param id: what the upload gave, or what `listImages` shows.
        """
        try:
            if isinstance(id, Resource):
                gateway.delete_resource(self.name, self.adapter, id)
            else:
                gateway.delete_image_in_cloud(self.name, self.adapter, id)
        except NotFound:
            return

    def listImages(self) -> list[ListedImage]:
        """Images with metadata of ours. Adapters written for 11.0.0 show them among their resources.

        :raises NotImplementedError: the adapter lists neither.
        """
        try:
            return gateway.list_images_in_cloud(self.name, self.adapter)
        except NotImplementedError:
            found = gateway.list_resources(self.name, self.adapter)
        ours = [one for one in found if metadata.upload_of(one.metadata, self.name) is not None]
        return [ListedImage(resource, metadata=resource.metadata) for resource in ours]
