# SPDX-License-Identifier: Apache-2.0
"""Configuration of images on Azure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.azure import config_checks as checks
from nodepool.driver.config import ImageSettings
from nodepool.driver.framework.images import DiskImageSettings
from nodepool.driver.framework.one_or_more import as_texts
from nodepool.model.config_keys import ANY_MAPPING, FILLED_TEXT, FLAG, REQUIRED, TEXT, key, with_default

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage


class AzureCloudImage(ImageSettings):
    """An image that is in Azure already."""

    checks: ClassVar[tuple[Any, ...]] = (checks.one_image_source, checks.whole_reference, checks.key_or_password)

    username: str = key(FILLED_TEXT, REQUIRED, "Made on the VM; Zuul logs in as this user.")
    ssh_key: str | None = key(
        TEXT.or_null(),
        None,
        "Public SSH key that the user accepts. With it, passwords are not accepted.",
        name="key",
    )
    password: str | None = key(TEXT.or_null(), None, "Of the user.")
    generate_password: bool = key(FLAG, False, "A password that nobody knows: for images that need one.")
    image_id: str | None = key(
        FILLED_TEXT, None, "Id of an image, or of a version of an image in a gallery.", default_text="not given"
    )
    publisher: str | None = key(
        FILLED_TEXT, None, "Of an image of the Marketplace.", name="image-reference.publisher", default_text="not given"
    )
    offer: str | None = key(
        FILLED_TEXT, None, "E.g. ``debian-12``.", name="image-reference.offer", default_text="not given"
    )
    sku: str | None = key(FILLED_TEXT, None, "E.g. ``12-gen2``.", name="image-reference.sku", default_text="not given")
    version: str | None = key(
        FILLED_TEXT, None, "Version, or ``latest``.", name="image-reference.version", default_text="not given"
    )
    filter_name: str | None = key(
        FILLED_TEXT,
        None,
        "Name of an image of the resource group. Of several images that match a filter the last one by name counts; "
        "they are looked up every five minutes.",
        name="image-filter.name",
        default_text="any",
    )
    filter_location: str | None = key(
        FILLED_TEXT, None, "Location of the image.", name="image-filter.location", default_text="any"
    )
    filter_tags: dict[str, str] = key(
        ANY_MAPPING, {}, "Tags that the image has.", name="image-filter.tags", convert=as_texts
    )
    shared_gallery: str | None = key(
        FILLED_TEXT,
        None,
        "Unique name of a gallery that is shared with the subscription or its tenant.",
        name="shared-gallery-image.gallery-name",
        default_text="not given",
    )
    shared_name: str | None = key(
        FILLED_TEXT, None, "Image in it.", name="shared-gallery-image.name", default_text="not given"
    )
    shared_version: str | None = key(
        FILLED_TEXT, None, "Version of the image.", name="shared-gallery-image.version", default_text="the latest"
    )
    community_gallery: str | None = key(
        FILLED_TEXT,
        None,
        "Public name of a gallery that is open to everybody.",
        name="community-gallery-image.gallery-name",
        default_text="not given",
    )
    community_name: str | None = key(
        FILLED_TEXT, None, "Image in it.", name="community-gallery-image.name", default_text="not given"
    )
    community_version: str | None = key(
        FILLED_TEXT, None, "Version of the image.", name="community-gallery-image.version", default_text="the latest"
    )

    @property
    def has_filter(self) -> bool:
        """Must it be looked up?"""
        return not (self.image_id or self.publisher or self.shared_gallery or self.community_gallery)

    def reference(self) -> dict[str, str]:
        """``imageReference`` of a VM, unless there is a filter."""
        if self.publisher:
            named = {"publisher": self.publisher, "offer": self.offer, "sku": self.sku, "version": self.version}
            return {name: str(value) for name, value in named.items()}
        if self.shared_gallery:
            path = _gallery_path("SharedGalleries", self.shared_gallery, self.shared_name, self.shared_version)
            return {"sharedGalleryImageId": path}
        if self.community_gallery:
            path = _gallery_path(
                "CommunityGalleries", self.community_gallery, self.community_name, self.community_version
            )
            return {"communityGalleryImageId": path}
        return {"id": str(self.image_id)}


def _gallery_path(kind: str, gallery: str, name: str | None, version: str | None) -> str:
    return f"/{kind}/{gallery}/Images/{name}" + (f"/Versions/{version}" if version else "")


class AzureDiskImage(ImageSettings):
    """An image that the builder uploads here. How to log in stands here, not at the top level, but for the user.

    :param image: the top-level image.
    """

    checks: ClassVar[tuple[Any, ...]] = (checks.key_or_password,)

    name: str = key(FILLED_TEXT, REQUIRED, "Of an image in the top-level ``diskimages``.")
    username: str | None = key(
        TEXT.or_null(), None, "Deprecated: it belongs to the top-level image.", default_text="the top-level image's"
    )
    pause: bool = with_default(DiskImageSettings.pause, False)
    ssh_key: str | None = key(
        TEXT.or_null(),
        None,
        "Public SSH key that the user accepts. With it, passwords are not accepted.",
        name="key",
    )
    password: str | None = key(TEXT.or_null(), None, "Of the user.")
    generate_password: bool = key(FLAG, False, "A password that nobody knows: for images that need one.")
    tags: dict[str, str] = key(
        ANY_MAPPING,
        {},
        "Of the image; they win over the ``metadata`` of the top-level image.",
        convert=as_texts,
    )

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)
