# SPDX-License-Identifier: Apache-2.0
"""Configuration of images on GCE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.config import ImageSettings
from nodepool.driver.framework.images import DiskImageSettings
from nodepool.driver.gce import config_checks as checks
from nodepool.model.config_keys import FILLED_TEXT, REQUIRED, TEXT, ListOf, Text, key, with_default

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage

ARCHITECTURES = ("X86_64", "ARM64")
#: What images of today's distributions can do; without UEFI there is no shielded instance of them.
GUEST_FEATURES = ["GVNIC", "UEFI_COMPATIBLE", "VIRTIO_SCSI_MULTIQUEUE"]


class GceCloudImage(ImageSettings):
    """An image that is in Compute Engine already."""

    checks: ClassVar[tuple[Any, ...]] = (checks.one_image_source,)

    image_id: str | None = key(
        FILLED_TEXT,
        None,
        "Link of an image, e.g. ``projects/debian-cloud/global/images/debian-12-bookworm-v20260101``. Either this or "
        "``image-project`` and ``image-family``.",
        default_text="not given",
    )
    image_project: str | None = key(FILLED_TEXT, None, "E.g. ``debian-cloud``.", default_text="not given")
    image_family: str | None = key(
        FILLED_TEXT,
        None,
        "E.g. ``debian-12``: the newest image of it that is not deprecated. A new one is used within 5 minutes.",
        default_text="not given",
    )
    ssh_key: str | None = key(
        TEXT.or_null(),
        None,
        "Public SSH key that ``username`` accepts; metadata item ``ssh-keys`` of the instance.",
        name="key",
    )


class GceDiskImage(ImageSettings):
    """An image that the builder uploads here. How to log in stands here, not at the top level, but for the user.

    :param image: the top-level image.
    """

    name: str = key(FILLED_TEXT, REQUIRED, "Of an image in the top-level ``diskimages``.")
    username: str | None = key(
        TEXT.or_null(), None, "Deprecated: it belongs to the top-level image.", default_text="the top-level image's"
    )
    pause: bool = with_default(DiskImageSettings.pause, False)
    ssh_key: str | None = key(
        TEXT.or_null(),
        None,
        "Public SSH key that ``username`` accepts; metadata item ``ssh-keys`` of the instance.",
        name="key",
    )
    architecture: str = key(Text(choices=ARCHITECTURES), "X86_64", "Of the image.")
    guest_features: list[str] = key(
        ListOf(FILLED_TEXT),
        GUEST_FEATURES,
        "What the system in the image can do, in the words of Compute Engine (``guestOsFeatures``).",
        name="guest-os-features",
        default_text="``GVNIC``, ``UEFI_COMPATIBLE``, ``VIRTIO_SCSI_MULTIQUEUE``",
    )

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)
