# SPDX-License-Identifier: Apache-2.0
"""Has the cloud stored what was sent? (rule U-14)

For clouds that store the bytes unchanged. If a cloud converts an image on import, its driver checks what the cloud
reports about the conversion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodepool.exceptions import ImageCreateException


@dataclass(frozen=True)
class ImageContent:
    """What is known of the bytes of an image.

    :param size: in bytes; None = not known.
    :param checksums: algorithm, by the name that hashlib has for it, -> hexadecimal digits.
    """

    size: int | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, size: int | None, **checksums: str | None) -> ImageContent:
        """Without the checksums that are None or empty: ``ImageContent.of(size, md5=md5, sha256=sha256)``."""
        return cls(size, {algorithm: value for algorithm, value in checksums.items() if value})


def difference(sent: ImageContent, stored: ImageContent) -> str | None:
    """In what a stored image differs from the file that was sent, for people; None = nothing says that it does.

    Only what both sides tell is compared.
    """
    if sent.size is not None and stored.size is not None and sent.size != stored.size:
        return f"{stored.size} of {sent.size} bytes are in the cloud"
    for algorithm in sorted(sent.checksums.keys() & stored.checksums.keys()):
        ours, theirs = (content.checksums[algorithm].strip().lower() for content in (sent, stored))
        if ours != theirs:
            return f"the {algorithm} of the file is {ours}, that of the image in the cloud is {theirs}"
    return None


def check_stored(image_name: str, sent: ImageContent, stored: ImageContent) -> None:
    """Compare a stored image with the file. The driver deletes the image when this raises.

    :param image_name: for the text.
    :raises ImageCreateException: it is another one: cut off, or corrupted.
    """
    wrong = difference(sent, stored)
    if wrong is not None:
        raise ImageCreateException(f"image {image_name} did not arrive as it was sent: {wrong}")
