# SPDX-License-Identifier: Apache-2.0
"""The tables of images, uploads, builds, pauses and of images that ZooKeeper does not know (reference/commands 2)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table
from nodepool.listing.table import PEOPLE, WHOLE, Column, Place, Table, table_of
from nodepool.model import states
from nodepool.model.event import clock, short
from nodepool.model.status import BuilderStatus, BuildStatus, UploadStatus

if TYPE_CHECKING:
    from nodepool.model.image import ImageBuild, ImagesView, ImageUpload, ImageView
    from nodepool.model.node import Node

#: What an upload is used for: nodes are made from it, some are to try it, or it was replaced by an earlier one.
CURRENT: Final = "current"
CANDIDATE: Final = "candidate"
ROLLED_BACK: Final = "rolled back"

_UPLOAD_PATH: Final = re.compile(r"/nodepool/images/[^/]+/builds/(?P<build>[^/]+)/providers/")

#: Keys of columns of uploads in the order in which people read them.
_PEOPLE: Final = ("image", "provider", "state", "age_seconds", "use", "id", "upload_id", "progress", "speed", "size")

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
    columns = [
        Column("Build ID", "id", of="build_id", least=WHOLE),
        Column("Upload ID", "upload_id", of="id", least=WHOLE),
        Column("Provider", "provider", of="provider_name", least=8),
        Column("Image", "image", of="image_name", least=8),
        Column("Provider Image Name", "external_name", priority=8),
        Column("Provider Image ID", "external_id", priority=7, least=WHOLE),
        Column("State", "state", style=table.state),
        *_ages("Age", "age", lambda upload: upload.state_time, now, moments=moments),
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
            if upload.candidate is not None and upload.state == states.READY:
                return CANDIDATE
            return ROLLED_BACK if upload.rolled_back else None

        columns += [
            Column("Format", "format", priority=6),
            Column("Use", "use", of=use, priority=1),
            Column("Progress", "progress", table.percent, of=lambda upload: progress(upload).percent, priority=2),
            Column("Speed", "speed", table.speed, of=lambda upload: progress(upload).bytes_per_second, priority=4),
            Column("Size", "size", table.size, of=lambda upload: progress(upload).size, priority=5),
        ]
    builds = (build for image in images.images.values() for build in image.builds.values())
    uploads = (upload for build in builds for upload in build.all_uploads())
    return table_of(columns, uploads, people=_PEOPLE)


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

    def state(build: ImageBuild) -> str | None:
        return PAUSED if pauses and images.image(build.image_name).paused else build.state

    columns = [
        Column("ID", "id", of=lambda build: build_name(build.image_name, build.key), least=WHOLE),
        Column("Image", "image", of="image_name", priority=8),
        Column("Builder", "builder", priority=4),
        Column("Formats", "formats", priority=5),
        Column("State", "state", of=state, style=table.state),
        *_ages("Age", "age", lambda build: build.state_time, now, moments=moments),
    ]
    if status is not None:
        reported = status.build

        def progress(build: ImageBuild) -> BuildStatus:
            return reported(build.image_name, build.key) if build.state == states.BUILDING else BuildStatus()

        columns += [
            Column("Step", "step", of=lambda build: progress(build).step or None, priority=1),
            Column("Duration", "duration", short, of=lambda build: build_duration(build, now), priority=2),
            Column("Estimate", "estimate", short, of=lambda build: progress(build).estimate, priority=6),
            Column("Size", "size", table.size, priority=4),
            Column("Source", "source", priority=8),
            Column("Nodes", "nodes", of=lambda build: (nodes or {}).get(build.key, []), priority=7, least=WHOLE),
        ]
    builds = (build.record for image in images.images.values() for build in image.builds.values())
    return table_of(columns, (build for build in builds if build is not None), people=("id", "state", "age_seconds"))


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
    columns = (
        Column("Image", "image", of="name"),
        Column("Paused", "paused"),
        Column("Build Request", "build_request", of=build_request_state),
        *_ages("Build Request Age", "build_request_age", lambda image: image.build_requested, now, moments=moments),
    )
    return table_of(columns, images.images.values())


def image_table(images: ImagesView, now: float) -> Table:
    """A row for each image: what nodes of it would be made from, and what is done for it just now.

    :param now: seconds since the epoch.
    """

    def state(image: ImageView) -> str | None:
        if image.paused:
            return PAUSED
        return states.BUILDING if image.builds_in(states.BUILDING) else states.READY if image.ready_builds() else None

    def newest(image: ImageView) -> float | None:
        ready = image.ready_builds()
        return ready[0].time or None if ready else None

    def uploads(image: ImageView, *wanted: str) -> dict[str, int]:
        """Provider -> its uploads in these states."""
        there = (upload for build in image.builds.values() for upload in build.all_uploads())
        return dict(Counter(upload.provider_name or "" for upload in there if upload.state in wanted))

    def counts(found: dict[str, int]) -> str:
        return ", ".join(f"{provider} {count}" for provider, count in sorted(found.items()))

    columns = (
        Column("Image", "image", of="name", least=WHOLE),
        Column("State", "state", style=table.state, of=state),
        Column("Newest build", "newest", table.since(now), of=newest),
        Column("Ready builds", "ready", of=lambda image: len(image.ready_builds()), priority=3),
        Column("Ready uploads", "uploads", counts, of=lambda image: uploads(image, states.READY)),
        Column("Building", "building", of=lambda image: len(image.builds_in(states.BUILDING)), priority=4),
        Column("Uploading", "uploading", of=lambda image: sum(uploads(image, states.UPLOADING).values()), priority=4),
        Column("Failed uploads", "failed", of=lambda image: sum(uploads(image, states.FAILED).values()), priority=2),
        Column("Build request", "request", of=build_request_state, priority=1),
    )
    return table_of(columns, sorted(images.images.values(), key=lambda image: image.name))


def build_request_state(image: ImageView) -> str | None:
    """``building``: the build that was asked for is being made; ``pending``: it is to begin; None = none is wanted."""
    if image.build_requested is None:
        return None
    return "building" if image.build_locked and image.builds_in(states.BUILDING) else "pending"


def alien_image_table(images: Iterable[tuple[str, str, str]]) -> Table:
    """:param images: provider, name and id of each image in a cloud that ZooKeeper does not know."""
    columns = (Column("Provider", "provider"), Column("Name", "name"), Column("Image ID", "image_id", least=WHOLE))
    return Table(columns, [list(image) for image in images])


def _ages(
    header: str, key: str, moment: Callable[[Any], float | None], now: float, *, moments: bool
) -> Iterator[Column]:
    """The age of what happened at a moment: as programs of released Nodepool get it, and as people read it."""

    def shown(make: Callable[[float], Any]) -> Callable[[Any], Any]:
        return lambda record: None if (at := moment(record)) is None else make(at)

    if moments:
        yield Column(header, key, of=shown(int))
        return
    yield Column(header, key, of=shown(lambda at: clock(now - at)), places=Place.TABLE)
    seconds = shown(lambda at: max(0.0, round(now - at, 3)))
    yield Column(header, f"{key}_seconds", short, of=seconds, places=PEOPLE, priority=3)
