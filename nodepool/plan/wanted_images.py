# SPDX-License-Identifier: Apache-2.0
"""What the configuration wants of images, as values for decisions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WantedUpload:
    """A provider uses an image.

    :param format: in which the provider wants it.
    :param paused: nothing is uploaded there (P-2).
    :param resumes: an upload goes on with what an interrupted one of the same build has done (R-4).
    """

    format: str
    paused: bool = False
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class WantedImage:
    """An image of ``diskimages`` that is not abstract.

    :param formats: configured ones and those of every provider that uses the image (B-2).
    :param paused: nothing is built (P-1).
    :param keep_formats: formats that ``delete_after_upload`` keeps.
    :param settings: equal = a build makes the same; another value makes a failed build worth another attempt at once.
    """

    name: str
    formats: frozenset[str] = frozenset()
    rebuild_age_seconds: float = 86400.0
    paused: bool = False
    keep_formats: frozenset[str] = frozenset()
    delete_after_upload: bool = False
    settings: Hashable = None


@dataclass(frozen=True, slots=True)
class WantedImages:
    """:param providers: every configured provider whose images are managed -> image -> how it is used."""

    images: Mapping[str, WantedImage] = field(default_factory=dict)
    providers: Mapping[str, Mapping[str, WantedUpload]] = field(default_factory=dict)

    def users(self, image: str) -> dict[str, WantedUpload]:
        """Providers that use an image, and how."""
        return {name: images[image] for name, images in self.providers.items() if image in images}
