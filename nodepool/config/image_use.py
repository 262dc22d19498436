# SPDX-License-Identifier: Apache-2.0
"""What a configuration wants of images, as values for the decisions in `nodepool.plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodepool.config.objects import Config, DiskImage
from nodepool.plan.wanted_images import WantedImage, WantedImages, WantedUpload


def wanted_images(config: Config) -> WantedImages:
    """The images of ``diskimages``, without those that are only parents, and who uses them.

    A provider that cannot be used, or has no images, is not among the providers: its uploads are not touched (R-12).
    """
    providers: dict[str, dict[str, WantedUpload]] = {}
    for name, provider in config.providers.items():
        image_format = getattr(provider, "image_type", None)
        if provider.manage_images and isinstance(image_format, str):
            used: Mapping[str, Any] = getattr(provider, "diskimages", None) or {}
            resumes = getattr(provider, "resumes_uploads", False) is True
            providers[name] = {
                image: WantedUpload(image_format, bool(getattr(settings, "pause", False)), resumes)
                for image, settings in used.items()
            }
    images = {name: _wanted(image) for name, image in config.diskimages.items() if not image.abstract}
    return WantedImages(images, providers)


def _wanted(image: DiskImage) -> WantedImage:
    formats = frozenset(image.image_types)
    environment = tuple(sorted((name, str(value)) for name, value in image.env_vars.items()))
    return WantedImage(
        image.name,
        formats=formats,
        rebuild_age_seconds=image.rebuild_age,
        paused=image.pause,
        keep_formats=frozenset(image.keep_formats),
        delete_after_upload=image.delete_after_upload,
        settings=(formats, tuple(image.elements), environment, image.release, image.dib_cmd, image.build_timeout),
    )
