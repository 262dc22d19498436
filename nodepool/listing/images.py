# SPDX-License-Identifier: Apache-2.0
"""The tables of uploads, builds, pauses and of images that ZooKeeper does not know (reference/commands 2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table
from nodepool.listing.table import Column, Table, table_of
from nodepool.model import states
from nodepool.model.event import clock, short
from nodepool.model.status import BuilderStatus, BuildStatus, UploadStatus

if TYPE_CHECKING:
    from nodepool.model.image import ImageBuild, ImagesView, ImageUpload, ImageView
    from nodepool.model.node import Node

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
    :param status: what builders report; None = without details.
    :param moments: instead of each age the moment, in whole seconds since the epoch (reference/commands 6).
    """
    age = _ages(now, moments=moments)
    columns = [
        Column("Build ID", "id", of="build_id"),
        Column("Upload ID", "upload_id", of="id"),
        Column("Provider", "provider", of="provider_name"),
        Column("Image", "image", of="image_name"),
        Column("Provider Image Name", "external_name"),
        Column("Provider Image ID", "external_id"),
        Column("State", "state"),
        Column("Age", "age", of=lambda upload: age(upload.state_time)),
    ]
    if status is not None:
        reported = status.upload

        def progress(upload: ImageUpload) -> UploadStatus:
            # Builders report now and then: they still report what has just ended.
            if upload.state != states.UPLOADING:
                return UploadStatus()
            return reported(upload.image_name, upload.build_id, upload.provider_name, upload.key)

        def use(upload: ImageUpload) -> str | None:
            current = images.image(upload.image_name).current_upload(upload.provider_name)
            if current is not None and (current.build_id, current.id) == (upload.build_id, upload.id):
                return CURRENT
            return ROLLED_BACK if upload.rolled_back else None

        columns += [
            Column("Format", "format"),
            Column("Use", "use", of=use),
            Column("Progress", "progress", table.percent, of=lambda upload: progress(upload).percent),
            Column("Speed", "speed", table.speed, of=lambda upload: progress(upload).bytes_per_second),
            Column("Size", "size", table.size, of=lambda upload: progress(upload).size),
        ]
    builds = (build for image in images.images.values() for build in image.builds.values())
    return table_of(columns, (upload for build in builds for upload in build.all_uploads()))


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
    :param status: what builders report; None = without details.
    :param nodes: build id -> ids of the nodes that were made from it.
    :param moments: as for `upload_table`.
    :param pauses: is the state of a build of a paused image ``paused``?
    """
    age = _ages(now, moments=moments)

    def state(build: ImageBuild) -> str | None:
        return PAUSED if pauses and images.image(build.image_name).paused else build.state

    columns = [
        Column("ID", "id", of=lambda build: build_name(build.image_name, build.key)),
        Column("Image", "image", of="image_name"),
        Column("Builder", "builder"),
        Column("Formats", "formats"),
        Column("State", "state", of=state),
        Column("Age", "age", of=lambda build: age(build.state_time)),
    ]
    if status is not None:
        reported = status.build

        def progress(build: ImageBuild) -> BuildStatus:
            return reported(build.image_name, build.key) if build.state == states.BUILDING else BuildStatus()

        columns += [
            Column("Step", "step", of=lambda build: progress(build).step or None),
            Column("Duration", "duration", short, of=lambda build: build_duration(build, now)),
            Column("Estimate", "estimate", short, of=lambda build: progress(build).estimate),
            Column("Size", "size", table.size),
            Column("Nodes", "nodes", of=lambda build: (nodes or {}).get(build.key, [])),
        ]
    builds = (build.record for image in images.images.values() for build in image.builds.values())
    return table_of(columns, (build for build in builds if build is not None))


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
    age = _ages(now, moments=moments)
    columns = (
        Column("Image", "image", of="name"),
        Column("Paused", "paused"),
        Column("Build Request", "build_request", of=build_request_state),
        Column("Build Request Age", "build_request_age", of=lambda image: age(image.build_requested)),
    )
    return table_of(columns, images.images.values())


def build_request_state(image: ImageView) -> str | None:
    """``building``: the build that was asked for is being made; ``pending``: it is to begin; None = none is wanted."""
    if image.build_requested is None:
        return None
    return "building" if image.build_locked and image.builds_in(states.BUILDING) else "pending"


def alien_image_table(images: Iterable[tuple[str, str, str]]) -> Table:
    """:param images: provider, name and id of each image in a cloud that ZooKeeper does not know."""
    columns = (Column("Provider", "provider"), Column("Name", "name"), Column("Image ID", "image_id"))
    return Table(columns, [list(image) for image in images])


def _ages(now: float, *, moments: bool) -> _AgeOf:
    """What stands for the age of something that happened at a moment."""
    if moments:
        return lambda moment: None if moment is None else int(moment)
    return lambda moment: None if moment is None else clock(now - moment)
