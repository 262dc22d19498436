# SPDX-License-Identifier: Apache-2.0
"""Is an image in the cloud what was sent? (rules U-9, U-14)"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from nodepool.driver.framework.upload_check import ImageContent, difference
from nodepool.driver.openstack.views import Image

if TYPE_CHECKING:
    from nodepool.driver.openstack.image_content import Content

#: What is made of a file when the cloud tells nothing that is known of it; the quickest first.
_ALGORITHMS: Final = ("sha256", "md5", "sha512", "sha1", "sha384")


def stored_content(image: Image) -> ImageContent:
    """What Glance says of the bytes of an image."""
    told = image.properties
    size, algorithm = told.get("size"), told.get("os_hash_algo")
    checksums = {"md5": _text(told.get("checksum"))}
    if isinstance(algorithm, str):
        checksums[algorithm.lower().replace("-", "")] = _text(told.get("os_hash_value"))
    return ImageContent.of(size if isinstance(size, int) and not isinstance(size, bool) else None, **checksums)


def wrong(image: Image, image_format: str, content: Content, checksums: Mapping[str, str | None]) -> str | None:
    """What is wrong with an image in the cloud, for people; None = it is as it was sent, as far as the cloud tells.

    The file is read only if the cloud tells no checksum that is known. Blocks then.

    :param image_format: of the file.
    :param content: the file.
    :param checksums: what is known of the file: algorithm -> hexadecimal digits.
    :raises OSError: the file cannot be read.
    """
    stored = stored_content(image)
    if _converted(image, image_format):
        return _wrong_conversion(image, image_format, stored, content)
    sent = ImageContent.of(content.size, **checksums)
    if stored.size == sent.size and not sent.checksums.keys() & stored.checksums.keys():
        algorithm = next(
            (one for one in _ALGORITHMS if one in stored.checksums and one in hashlib.algorithms_available), ""
        )
        if algorithm:
            sent = ImageContent(sent.size, {algorithm: content.checksum(algorithm)})
    return difference(sent, stored)


def _converted(image: Image, image_format: str) -> bool:
    """Has the cloud made an image of another format of ours?"""
    found = _text(image.properties.get("disk_format"))
    return found is not None and found != image_format


def _wrong_conversion(image: Image, image_format: str, stored: ImageContent, content: Content) -> str | None:
    """A conversion has other bytes. A raw image of a qcow2 one has the size of the disk in it."""
    made = image.properties.get("disk_format")
    if not stored.size:
        return f"the cloud says that it has made an image of format {made} of it, but one without content"
    disk = content.virtual_size() if (image_format, made) == ("qcow2", "raw") else None
    if disk is not None and stored.size < disk:
        return f"the disk in it has {disk} bytes, but the raw image that the cloud has made of it {stored.size}"
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
