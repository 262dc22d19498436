# SPDX-License-Identifier: Apache-2.0
"""Which builds and uploads must be removed? (rules R-1 to R-8, R-11 to R-14, R-17)

A verdict rests on a view, which may be a little old. Whoever carries it out takes the lock that its class names, and
writes with the version of the record in the verdict: what has changed since is left to the next look.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from nodepool.model import states
from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageUpload, ImageView, UploadView
from nodepool.plan.images import WantedImages, WantedUpload

#: Ready builds of an image that are kept (R-1), and ready uploads of an image to a provider (R-2).
KEPT: Final = 2
#: A record that cannot be read goes when it is so old: who restores image data makes znodes before it fills them.
UNREADABLE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class DeleteUpload:
    """Under the lock of the number: mark the record `deleting`, delete the image in the cloud, remove the record.

    :param record: as it was seen; None = what is stored is no record of an upload.
    :param find: no id of the image is known: delete the images that carry the ids of build and upload (R-4, D-3).
    :param stays_seconds: the record is kept for so long after that, and then images are looked for once more.
    """

    image: str
    build_id: str
    provider: str
    upload_id: str
    record: ImageUpload | None
    find: bool
    reason: str
    stays_seconds: float = 0.0


@dataclass(frozen=True)
class MarkBuild:
    """Under the lock of the build: make it `deleting`. Its files go then (R-6, R-9).

    :param record: as it was seen; None = what is stored is no record of a build, so that it is written anew.
    :param warning: to be logged first; None = nothing (R-14).
    """

    image: str
    build_id: str
    record: ImageBuild | None
    reason: str
    warning: str | None = None


@dataclass(frozen=True)
class RemoveBuild:
    """Under the lock of the build: remove the record of a build that is `deleting` and has no uploads left."""

    image: str
    build_id: str


#: So long the record of an abandoned upload stays after it was marked, and its images are looked for again (R-4). A
#: builder that stood still, or that the network had cut off, may have made one meanwhile, or a cloud that was slow.
ABANDONED_SECONDS: Final = 60.0
#: So long what an interrupted upload has done is left to the next upload of the build (R-4).
RESUME_SECONDS: Final = 24 * 3600.0
#: So long the record of a build that is `deleting` is left to the builder that made it: its files go first (R-6).
OWN_BUILDER_SECONDS: Final = 60.0

Verdict = DeleteUpload | MarkBuild | RemoveBuild


def judge_images(
    wanted: WantedImages, view: ImagesView, now: float, ever_wanted: Collection[str] = ()
) -> list[Verdict]:
    """What has to go now, of all images. What somebody works on is left alone.

    :param now: seconds since the epoch.
    :param ever_wanted: names of images that were in the configuration of this builder since it started.
    """
    return [verdict for image in view.images.values() for verdict in judge_image(wanted, image, now, ever_wanted)]


def judge_image(
    wanted: WantedImages, view: ImageView, now: float, ever_wanted: Collection[str] = ()
) -> Iterator[Verdict]:
    """The same of one image."""
    is_wanted = view.name in wanted.images
    kept_builds = {build.id for build in view.ready_builds()[: KEPT if is_wanted else 0]}
    kept_uploads = _kept_uploads(wanted, view)
    for build in view.builds.values():
        for provider, uploads in build.uploads.items():
            if provider not in wanted.providers:
                # somebody else may know it.
                continue
            is_listed = is_wanted and view.name in wanted.providers[provider]
            for upload in uploads:
                kept = is_listed and (build.id in kept_builds or (build.id, provider, upload.id) in kept_uploads)
                reason = None
                if upload.record is not None:
                    use = wanted.providers[provider].get(view.name) if is_listed else None
                    if use is not None and _is_resumed(use, view, build, upload.record, now):
                        continue
                    reason = _why_upload_goes(build, provider, upload.record, kept, is_listed)
                elif provider not in build.uploading and _is_bad(upload, now):
                    reason = "its record is unreadable"
                if reason is not None and not upload.locked:
                    yield _delete(view.name, build.id, provider, upload, reason, now)
        warned = None if is_wanted or view.name in ever_wanted else _warning(view.name, build)
        if build.id not in kept_builds and not build.locked:
            yield from _judge_build(view, build, now, warned)


def left_to_its_builder(build: BuildView | None, builder_id: str, now: float) -> float:
    """Seconds for which the record of a build that could be removed is left to another builder, who has its files.

    Without the record that one would keep its files for an hour (R-15). It may be removed for good, though.

    :param build: None = it is gone.
    :param builder_id: of the builder that asks.
    :param now: seconds since the epoch.
    """
    record = None if build is None else build.record
    if build is None or record is None or record.builder_id in (None, builder_id):
        return 0.0
    return max(0.0, min(OWN_BUILDER_SECONDS, build.time + OWN_BUILDER_SECONDS - now))


def _kept_uploads(wanted: WantedImages, view: ImageView) -> set[tuple[str, str, str]]:
    """Build, provider and number of the newest ready uploads to each provider (R-2).

    Those of a build that is being deleted do not count: they go, whatever the others are.
    """
    doomed = {build.id for build in view.builds_in(states.DELETING)}
    kept = set()
    for provider in wanted.users(view.name):
        ready = [upload for upload in view.ready_uploads(provider) if upload.build_id not in doomed]
        kept |= {(upload.build_id, provider, upload.key) for upload in ready[:KEPT]}
    return kept


def _is_resumed(use: WantedUpload, view: ImageView, build: BuildView, record: ImageUpload, now: float) -> bool:
    """Will another upload go on with what this one, which was interrupted, has done? As long as one is due (U-1)."""
    newest = next(iter(view.ready_builds()), None)
    return (
        record.state == states.UPLOADING
        and use.resumes
        and not use.paused
        and newest is not None
        and newest.id == build.id
        and not build.ready_uploads(record.provider_name)
        and now - (record.state_time or 0.0) < RESUME_SECONDS
    )


def _is_bad(znode: BuildView | UploadView, now: float) -> bool:
    """Is what is stored no record, for good (R-17)?"""
    return znode.record is None and 0 < znode.changed < now - UNREADABLE_SECONDS


def _why_upload_goes(build: BuildView, provider: str, record: ImageUpload, kept: bool, is_listed: bool) -> str | None:
    """None = it stays, or somebody works on it."""
    if record.state == states.UPLOADING:
        return None if provider in build.uploading else "its builder has abandoned it"
    if record.state in (states.FAILED, states.DELETING):
        return f"it is {record.state}"
    if build.state == states.DELETING:
        return "its build is being deleted"
    if kept:
        return None
    return "newer ones are there" if is_listed else "the provider does not use the image any more"


def _delete(image: str, build_id: str, provider: str, upload: UploadView, reason: str, now: float) -> DeleteUpload:
    record = upload.record
    find = record is None or record.external_id is None
    stays_seconds = _stays_seconds(record, now) if find and record is not None else 0.0
    return DeleteUpload(image, build_id, provider, upload.id, record, find, reason, stays_seconds)


def _stays_seconds(record: ImageUpload, now: float) -> float:
    """How long the record of an upload without an image's id stays, because somebody may be making the image still.

    Who fails knows that it has ended, and takes the name away. Only an abandoned one that was marked has it still.
    """
    if record.state == states.UPLOADING:
        return ABANDONED_SECONDS
    if record.state != states.DELETING or record.external_name is None:
        return 0.0
    # Clocks differ between builders: a time that is still to come would make it stay longer.
    return max(0.0, min(ABANDONED_SECONDS, (record.state_time or 0.0) + ABANDONED_SECONDS - now))


def _judge_build(view: ImageView, build: BuildView, now: float, warning: str | None) -> Iterator[Verdict]:
    if build.state == states.DELETING:
        # While somebody holds a lock below it cannot be removed: each attempt would be a change that causes the next.
        if not build.upload_count and not build.uploading:
            yield RemoveBuild(view.name, build.id)
        return
    if build.state in (states.BUILDING, None) and view.build_locked:
        # Of several that are `building` nobody knows which is the one that is being built.
        return
    if build.record is None and not _is_bad(build, now):
        return
    if all(upload.record is not None and upload.record.state == states.DELETING for upload in _uploads(build)):
        yield MarkBuild(view.name, build.id, build.record, _why_build_goes(build), warning)


def _uploads(build: BuildView) -> Iterator[UploadView]:
    for uploads in build.uploads.values():
        yield from uploads


def _why_build_goes(build: BuildView) -> str:
    return {
        states.BUILDING: "its builder has abandoned it",
        states.FAILED: "it failed",
        states.READY: "it is not wanted any more",
        None: "its record is unreadable",
    }[build.state]


def _warning(image: str, build: BuildView) -> str | None:
    """R-14: builders must have the same images in their configuration."""
    if build.record is None:
        return None
    return (
        f"image {image} was never in the configuration of this builder, but build {build.id} is there, made by "
        f"{build.record.builder or 'an unknown builder'}: it is removed. All builders must have the same diskimages"
    )


# Which local files of builds must be removed? (rules)

#: Files without a record are younger than this while somebody still makes them, or restores the records.
ORPHAN_AGE_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class LocalBuild:
    """Files of one build on the disk of a builder.

    :param formats: of its images.
    :param newest: when the youngest of them was changed, or its record was last there, seconds since the epoch.
    :param orphan_since: when this builder first saw that it has no record, seconds since the epoch.
    :param running: does this builder build it now?
    :param reading: formats that this builder uploads now.
    """

    image: str
    build_id: str
    formats: frozenset[str]
    newest: float
    orphan_since: float = math.inf
    running: bool = False
    reading: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RemoveFiles:
    """Remove files of a build.

    :param formats: only images of these with their checksums; None = everything.
    """

    image: str
    build_id: str
    formats: frozenset[str] | None
    reason: str


def judge_files(
    local: Iterable[LocalBuild],
    wanted: WantedImages,
    view: ImagesView,
    now: float,
    *,
    knows_own_records: bool,
    clean_orphans: bool = False,
) -> Iterator[RemoveFiles]:
    """What has to go.

    :param now: seconds since the epoch.
    :param knows_own_records: is a record there that this builder has made itself, so that the others are, too?
    :param clean_orphans: the operator said that files without a record may go (``--clean-orphans``).
    """
    for files in local:
        if files.running:
            continue
        image = view.image(files.image)
        build = image.builds.get(files.build_id)
        if build is None:
            age = now - files.newest
            certain = knows_own_records or _is_superseded(files, image, now)
            if clean_orphans or (certain and age > ORPHAN_AGE_SECONDS):
                yield RemoveFiles(files.image, files.build_id, None, f"no record of it for {age:.0f} s")
        elif build.state == states.DELETING:
            yield RemoveFiles(files.image, files.build_id, None, "it is being deleted")
        else:
            formats = _unneeded_formats(files, build, wanted)
            if formats:
                yield RemoveFiles(files.image, files.build_id, formats, "every provider that uses it has it")


def _is_superseded(files: LocalBuild, image: ImageView, now: float) -> bool:
    """Has this builder had no record of it for so long, although there are other builds of the image?

    Where others make all builds a builder sees no record of its own. The time since its start counts: it may have been
    started with a ZooKeeper in which its records are not.
    """
    return bool(image.ready_builds()) and now - files.orphan_since > ORPHAN_AGE_SECONDS


def _unneeded_formats(files: LocalBuild, build: BuildView, wanted: WantedImages) -> frozenset[str]:
    """R-10: formats that nobody will upload from here any more."""
    image = wanted.images.get(files.image)
    if image is None or not image.delete_after_upload or build.state != states.READY:
        return frozenset()
    users = wanted.users(files.image)
    needed = {
        use.format
        for provider, use in users.items()
        if use.paused or provider in build.uploading or not build.ready_uploads(provider)
    }
    return files.formats - needed - image.keep_formats - files.reading
