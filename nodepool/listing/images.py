# SPDX-License-Identifier: Apache-2.0
"""The tables of uploads, builds, pauses and of images that nobody knows (reference/commands 2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table
from nodepool.listing.table import Column, Table
from nodepool.model import states
from nodepool.model.event import clock, short
from nodepool.model.status import BuilderStatus, BuildStatus, UploadStatus

if TYPE_CHECKING:
    from nodepool.model.image import ImageBuild, ImagesView, ImageUpload, ImageView
    from nodepool.model.node import Node

_UPLOAD_COLUMNS: Final = (
    Column("Build ID", "id"),
    Column("Upload ID", "upload_id"),
    Column("Provider", "provider"),
    Column("Image", "image"),
    Column("Provider Image Name", "external_name"),
    Column("Provider Image ID", "external_id"),
    Column("State", "state"),
    Column("Age", "age"),
)
_UPLOAD_DETAIL_COLUMNS: Final = (
    *_UPLOAD_COLUMNS,
    Column("Format", "format"),
    Column("Use", "use"),
    Column("Progress", "progress", table.percent),
    Column("Speed", "speed", table.speed),
    Column("Size", "size", table.size),
)
_BUILD_COLUMNS: Final = (
    Column("ID", "id"),
    Column("Image", "image"),
    Column("Builder", "builder"),
    Column("Formats", "formats"),
    Column("State", "state"),
    Column("Age", "age"),
)
_BUILD_DETAIL_COLUMNS: Final = (
    *_BUILD_COLUMNS,
    Column("Step", "step"),
    Column("Duration", "duration", short),
    Column("Estimate", "estimate", short),
    Column("Size", "size", table.size),
    Column("Nodes", "nodes"),
)
_STATUS_COLUMNS: Final = (
    Column("Image", "image"),
    Column("Paused", "paused"),
    Column("Build Request", "build_request"),
    Column("Build Request Age", "build_request_age"),
)
_ALIEN_COLUMNS: Final = (Column("Provider", "provider"), Column("Name", "name"), Column("Image ID", "image_id"))

#: What an upload is used for: nodes are made from it, or an operator went back from it to an earlier one.
CURRENT: Final = "current"
ROLLED_BACK: Final = "rolled back"

_UPLOAD_PATH: Final = re.compile(r"/nodepool/images/[^/]+/builds/(?P<build>[^/]+)/providers/")

#: Moment, in seconds since the epoch or None -> what stands in the column of the age.
_AgeOf = Callable[[float | None], Any]

#: State that is shown of a build whose image is paused.
PAUSED: Final = "paused"


def upload_table(
    images: ImagesView, now: float, status: BuilderStatus | None = None, *, moments: bool = False
) -> Table:
    """The uploads that can be read.

    :param now: seconds since the epoch, for ages.
    :param status: what builders tell; None = without details.
    :param moments: instead of each age the moment, in whole seconds since the epoch (reference/commands 6).
    """
    rows = []
    for image in images.images.values():
        for build in image.builds.values():
            for upload in build.all_uploads():
                row = _upload_row(upload, _ages(now, moments=moments))
                rows.append(row if status is None else [*row, *_upload_details(image, upload, status)])
    return Table(_UPLOAD_COLUMNS if status is None else _UPLOAD_DETAIL_COLUMNS, rows)


def _upload_row(upload: ImageUpload, age_of: _AgeOf) -> list[Any]:
    return [
        upload.build_id,
        upload.id,
        upload.provider_name,
        upload.image_name,
        upload.external_name,
        upload.external_id,
        upload.state,
        age_of(upload.state_time),
    ]


def _upload_details(image: ImageView, upload: ImageUpload, status: BuilderStatus) -> list[Any]:
    # Builders tell now and then: what has just ended is told of, too.
    runs = upload.state == states.UPLOADING
    told = status.upload(upload.image_name, upload.build_id, upload.provider_name, upload.key)
    progress = told if runs else UploadStatus()
    current = image.current_upload(upload.provider_name)
    use = None
    if current is not None and (current.build_id, current.id) == (upload.build_id, upload.id):
        use = CURRENT
    elif upload.rolled_back:
        use = ROLLED_BACK
    return [upload.format, use, progress.percent, progress.bytes_per_second, progress.size]


def build_table(
    images: ImagesView,
    now: float,
    status: BuilderStatus | None = None,
    nodes: Mapping[str, list[str]] | None = None,
    *,
    moments: bool = False,
    pauses: bool = True,
) -> Table:
    """The builds that can be read.

    :param now: seconds since the epoch, for ages.
    :param status: what builders tell; None = without details.
    :param nodes: build id -> ids of the nodes that were made from it.
    :param moments: as for `upload_table`.
    :param pauses: is the state of a build of a paused image ``paused``?
    """
    rows = []
    for image in images.images.values():
        for build in image.builds.values():
            if build.record is None:
                continue
            row = _build_row(build.record, pauses and image.paused, _ages(now, moments=moments))
            used_by = (nodes or {}).get(build.id, [])
            rows.append(row if status is None else [*row, *_build_details(build.record, now, status, used_by)])
    return Table(_BUILD_COLUMNS if status is None else _BUILD_DETAIL_COLUMNS, rows)


def _build_row(build: ImageBuild, paused: bool, age_of: _AgeOf) -> list[Any]:
    return [
        build_name(build.image_name, build.key),
        build.image_name,
        build.builder,
        build.formats,
        PAUSED if paused else build.state,
        age_of(build.state_time),
    ]


def _build_details(build: ImageBuild, now: float, status: BuilderStatus, nodes: list[str]) -> list[Any]:
    told = status.build(build.image_name, build.key)
    progress = told if build.state == states.BUILDING else BuildStatus()
    return [progress.step or None, build_duration(build, now), progress.estimate, build.size, nodes]


def build_duration(build: ImageBuild, now: float) -> float | None:
    """How long a build took, or has been running, in seconds; None = its builder did not write it down."""
    if build.state == states.BUILDING:
        return None if build.state_time is None else max(0.0, now - build.state_time)
    return build.duration


def nodes_by_build(nodes: Iterable[Node]) -> dict[str, list[str]]:
    """Build id -> ids of the nodes that were made from an upload of it; a node has the path of the upload."""
    used: dict[str, list[str]] = {}
    for node in nodes:
        found = _UPLOAD_PATH.match(node.image_id or "")
        if found is not None:
            used.setdefault(found["build"], []).append(node.key)
    return used


def build_name(image: str, build_id: str) -> str:
    """What commands call a build; `split_build_name` takes it apart."""
    return f"{image}-{build_id}"


def split_build_name(name: str) -> tuple[str, str]:
    """Image and id of a build; an empty id when the name has none. Names of images may have ``-`` in them."""
    image, _, build_id = name.rpartition("-")
    return (image, build_id) if image else (name, "")


def image_status_table(images: ImagesView, now: float, *, moments: bool = False) -> Table:
    """Pause and request of each image. :param moments: as for `upload_table`."""
    age_of = _ages(now, moments=moments)
    return Table(
        _STATUS_COLUMNS,
        [
            [image.name, image.paused, build_request_state(image), age_of(image.build_requested)]
            for image in images.images.values()
        ],
    )


def build_request_state(image: ImageView) -> str | None:
    """``building``: the build that was asked for is being made; ``pending``: it is to begin; None = nobody asks."""
    if image.build_requested is None:
        return None
    return "building" if image.build_locked and image.builds_in(states.BUILDING) else "pending"


def alien_image_table(images: Iterable[tuple[str, str, str]]) -> Table:
    """:param images: provider, name and id of each image in a cloud that ZooKeeper does not know."""
    return Table(_ALIEN_COLUMNS, [list(image) for image in images])


def _ages(now: float, *, moments: bool) -> _AgeOf:
    """What stands for the age of something that happened at a moment."""
    if moments:
        return lambda moment: None if moment is None else int(moment)
    return lambda moment: None if moment is None else clock(now - moment)
