# SPDX-License-Identifier: Apache-2.0
"""Images, builds and uploads that an operator names; for a mistake, what there is instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from nodepool.cmd.app import CommandError
from nodepool.listing.images import build_name, split_build_name

if TYPE_CHECKING:
    from nodepool.model.image import BuildView, ImagesView, ImageView, UploadView

#: More names than these are not told.
_MANY: Final = 20


def known_image(images: ImagesView, name: str) -> ImageView:
    """An image in ZooKeeper. Raises CommandError."""
    if name not in images.images:
        raise CommandError(f"ZooKeeper knows no image {name}; {listed('images', images.images)}")
    return images.images[name]


def known_build(images: ImagesView, name: str) -> tuple[ImageView, BuildView]:
    """The build that a name like ``<image>-<build id>`` means. Raises CommandError."""
    image_name, build_id = split_build_name(name)
    image = images.images.get(image_name)
    build = None if image is None else image.builds.get(build_id)
    if image is not None and build is not None:
        return image, build
    raise CommandError(f"Build {name} not found", answer=True, hint=_build_hint(images, name))


def _build_hint(images: ImagesView, name: str) -> str:
    image_name, build_id = split_build_name(name)
    build_id = build_id or name
    owner = next((image.name for image in images.images.values() if build_id in image.builds), None)
    if owner is not None:
        return f"the build with this id is {build_name(owner, build_id)}"
    image = images.images.get(image_name) or images.images.get(name)
    if image is None:
        return listed("images", images.images)
    return listed(f"builds of {image.name}", (build_name(image.name, known) for known in image.builds))


def known_upload(images: ImagesView, image_name: str, build_id: str, provider: str, upload_id: str) -> UploadView:
    """An upload in ZooKeeper. Raises CommandError."""
    image = images.images.get(image_name)
    build = None if image is None else image.builds.get(build_id)
    found = () if build is None else build.uploads.get(provider, ())
    for upload in found:
        if upload.id == upload_id:
            return upload
    hint = _upload_hint(images, image_name, build_id, provider)
    raise CommandError("Image upload not found", answer=True, hint=hint)


def _upload_hint(images: ImagesView, image_name: str, build_id: str, provider: str) -> str:
    image = images.images.get(image_name)
    if image is None:
        return listed("images", images.images)
    build = image.builds.get(build_id)
    if build is None:
        owner = next((other.name for other in images.images.values() if build_id in other.builds), None)
        return f"build {build_id} is one of {owner}" if owner else listed(f"build ids of {image_name}", image.builds)
    uploads = build.uploads.get(provider, ())
    if not uploads:
        providers = [name for name, found in build.uploads.items() if found]
        return listed(f"providers with uploads of build {build_id}", providers)
    return listed(f"uploads of build {build_id} to {provider}", (upload.id for upload in uploads))


def listed(what: str, names: Iterable[str]) -> str:
    """What there is, in a line."""
    found = list(names)
    if not found:
        return f"{what}: none"
    more = f" and {len(found) - _MANY} more" if len(found) > _MANY else ""
    return f"{what}: {', '.join(found[:_MANY])}{more}"
