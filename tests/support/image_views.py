# SPDX-License-Identifier: Apache-2.0
"""Short ways to write views of images down."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


def build_of(data: Mapping[str, Any]) -> BuildView:
    """A build of a table: ``{b1: ready 5, cloud/1: failed 7, uploading: [cloud]}``.

    It is ready since 5, and its upload 1 to ``cloud`` failed at 7. A state ``none`` is no record; ``held`` behind a
    time is a lock. Other keys are those of `build`.
    """
    told: dict[str, Any] = {}
    uploads: list[UploadView | tuple[str, UploadView]] = []
    name, state, time = "", "", 0.0
    for key, value in data.items():
        provider, slash, number = key.partition("/")
        if key.startswith("b") and key[1:].isdigit():
            name, (state, time) = key, _state(value)
        elif not slash:
            told[key] = value
        else:
            locked = str(value).endswith("held")
            of, at = _state(str(value).removesuffix(" held"))
            bad = (provider, UploadView(f"{int(number):010}", None, at, locked))
            uploads.append(bad if of == "none" else upload(int(number), of, at, provider, locked=locked))
    return build(name, None if state == "none" else state, time, *uploads, **told)


def _state(text: str) -> tuple[str, float]:
    state, _, time = text.partition(" ")
    return state, float(time or 0.0)
