# SPDX-License-Identifier: Apache-2.0
"""Short ways to write views of images down."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageUpload, ImageView, UploadView

IMAGE = "debian"


def upload(
    number: int,
    state: str = "ready",
    time: float = 0.0,
    provider: str = "cloud",
    *,
    locked: bool = False,
    **fields: Any,
) -> UploadView:
    """An upload; `build` says of which build."""
    record = ImageUpload(IMAGE, "", provider, f"{number:010}")
    record.state, record.state_time, record.version = state, time, 0
    record.external_id = f"{provider}-{number}" if state in ("ready", "deleting") else None
    for name, value in fields.items():
        setattr(record, name, value)
    return UploadView(record.key, record, time, locked)


def bad_upload(number: int, changed: float = 1.0, *, locked: bool = False) -> tuple[str, UploadView]:
    """One whose data are no record, in `cloud`."""
    return "cloud", UploadView(f"{number:010}", None, changed, locked)


def build(
    build_id: str,
    state: str | None = "ready",
    time: float = 0.0,
    *uploads: UploadView | tuple[str, UploadView],
    formats: Collection[str] = ("qcow2",),
    uploading: Collection[str] = (),
    **view_fields: Any,
) -> BuildView:
    """A build.

    :param state: None = its data are no record.
    """
    record: ImageBuild | None = None
    if state is not None:
        record = ImageBuild(IMAGE, build_id)
        record.state, record.state_time, record.version = state, time, 0
        record.formats, record.builder, record.builder_id = list(formats), "builder.example.com", "id-1"
    views: dict[str, tuple[UploadView, ...]] = {}
    for item in uploads:
        if isinstance(item, UploadView):
            assert item.record is not None
            item.record.build_id = build_id
            provider, view = item.record.provider_name, item
        else:
            provider, view = item
        views[provider] = (*views.get(provider, ()), view)
    view_fields.setdefault("changed", time)
    return BuildView(build_id, record, uploads=views, uploading=frozenset(uploading), **view_fields)


def image(*builds: BuildView, **fields: Any) -> ImageView:
    """The image `IMAGE`."""
    return ImageView(IMAGE, builds={found.id: found for found in builds}, **fields)


def images(*builds: BuildView, **fields: Any) -> ImagesView:
    """A view with `IMAGE` only."""
    return ImagesView({IMAGE: image(*builds, **fields)})
