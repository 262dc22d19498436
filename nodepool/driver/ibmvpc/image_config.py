# SPDX-License-Identifier: Apache-2.0
"""Configuration of images on IBM VPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.config import ImageSettings
from nodepool.driver.framework.images import DiskImageSettings
from nodepool.driver.ibmvpc import config_checks as checks
from nodepool.model.config_keys import (
    FILLED_TEXT,
    REQUIRED,
    TEXT,
    TEXTS,
    MappingOf,
    Text,
    TextOrNumber,
    key,
    with_default,
)

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage


class IbmCloudImage(ImageSettings):
    """An image that is in the region already."""

    checks: ClassVar[tuple[Any, ...]] = (checks.one_image_source, checks.known_operating_system)

    username: str = key(FILLED_TEXT, REQUIRED, "Zuul logs in as this user.")
    image_id: str | None = key(FILLED_TEXT, None, "Id of an image.", default_text="not given")
    image_href: str | None = key(FILLED_TEXT, None, "Address of an image in the API of IBM.", default_text="not given")
    image_name: str | None = key(
        FILLED_TEXT,
        None,
        "Name of an image of the account or of IBM. It is looked up every five minutes, and after a rejected launch.",
        default_text="not given",
    )
    operating_system: dict[str, Any] = key(
        MappingOf(TextOrNumber()),
        {},
        "What the operating system of the image is like: ``architecture``, ``dedicated-host-only``, ``display-name``, "
        "``family``, ``href``, ``name``, ``vendor``, ``version``. Of several images that match a filter the first one "
        "that IBM lists counts; they are looked up as those of ``image-name``.",
        name="image-filter.operating-system",
        default_text="any",
    )
    owner_type: str | None = key(
        Text(choices=("user", "provider")),
        None,
        "``user``: images of the account; ``provider``: those of IBM.",
        name="image-filter.owner-type",
        default_text="both",
    )
    status: str | None = key(
        FILLED_TEXT, None, "Such as ``available``.", name="image-filter.status", default_text="any that can be used"
    )
    ssh_keys: list[str] = key(TEXTS, [], "Names of SSH keys in the region; the image's user accepts them.", name="keys")

    @property
    def must_be_found(self) -> bool:
        """Is it named by something that another image may have later?"""
        return not (self.image_id or self.image_href)


class IbmDiskImage(ImageSettings):
    """An image that the builder uploads here. How to log in stands here, not at the top level, but for the user.

    :param image: the top-level image.
    """

    name: str = key(FILLED_TEXT, REQUIRED, "Of an image in the top-level ``diskimages``.")
    username: str | None = key(
        TEXT.or_null(), None, "Deprecated: it belongs to the top-level image.", default_text="the top-level image's"
    )
    pause: bool = with_default(DiskImageSettings.pause, False)
    operating_system: str = key(
        FILLED_TEXT,
        REQUIRED,
        "Name of the operating system as IBM calls it, such as ``debian-12-amd64``; "
        "``ibmcloud is operating-systems`` lists them.",
    )
    #: SSH keys of the region; an uploaded image has its own.
    ssh_keys: tuple[str, ...] = ()

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)
