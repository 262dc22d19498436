# SPDX-License-Identifier: Apache-2.0
"""Views of images of any name, made from what is stored, for tests of tables and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageUpload, ImageView, UploadView


def upload(image: str, build: str, provider: str, id: str = "0000000001", **fields: Any) -> ImageUpload:
    """A ready upload, or one with other fields."""
    data = {"state": "ready", "state_time": 100.0, "external_id": "ext", "external_name": f"{image}-1", **fields}
    return ImageUpload.from_dict(data, image, build, provider, id)


def build_view(image: str, id: str, uploads: Sequence[ImageUpload] = (), **fields: Any) -> BuildView:
    """A ready build, or one with other fields, and its uploads."""
    data = {"state": "ready", "state_time": 50.0, "builder": "host", "formats": "qcow2,raw", **fields}
    views: dict[str, tuple[UploadView, ...]] = {}
    for one in uploads:
        views[one.provider_name] = (*views.get(one.provider_name, ()), UploadView(one.key, one))
    return BuildView(id, ImageBuild.from_dict(data, image, id), uploads=views)


def images_view(*images: ImageView) -> ImagesView:
    return ImagesView({image.name: image for image in images})


def image_view(name: str, *builds: BuildView, **fields: Any) -> ImageView:
    return ImageView(name, builds={build.id: build for build in builds}, **fields)
