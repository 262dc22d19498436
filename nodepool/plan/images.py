# SPDX-License-Identifier: Apache-2.0
"""All decisions about images.

First builds: which are due (rules B-1 to B-4, B-13, P-1). Then uploads (U-1, U-6, U-10, U-12, U-13), the way back to an
older one, when a command has what it waits for, and what the configuration wants. Last what is removed: records, images
in clouds and files (rules R).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodepool.model import states
from nodepool.model.image import BuildView, ImageBuild, ImageSource, ImagesView, ImageUpload, ImageView, UploadView
from nodepool.plan.retries import Backoff

#: Pause after the first failed build.
FIRST_PAUSE_SECONDS: Final = 60.0
#: Of an image with a source: the vendor may have another one by now.
_LOOK: Final = "its source may have changed"


@dataclass(frozen=True)
class Due:
    """Build it now.

    :param source: import this in place of a build; None = build it.
    :param look: only if the vendor has another checksum than that of the newest build.
    """

    reason: str
    source: ImageSource | None = None
    look: bool = False


@dataclass(frozen=True)
class NotDue:
    """Leave it.

    :param look_again_at: seconds since the epoch; None = only a change makes it due.
    """

    reason: str
    look_again_at: float | None = None


@dataclass(frozen=True)
class BuildHistory:
    """Failed builds of an image in a row, as one builder has seen them. Their records are removed soon.

    :param failures: since the last ready build, of any builder.
    :param last_failure: seconds since the epoch.
    :param last_begun_zxid: ZooKeeper's number of when the last of them was begun.
    :param counted: ids of failed builds that are there still, so that none counts twice.
    :param settings: what was configured then, see `WantedImage`.
    :param look_at: not before this moment the checksum of the vendor is looked at again, seconds since the epoch.
    :param look_settings: ``settings`` and time between looks then; with others it is looked at at once.
    """

    failures: int = 0
    last_failure: float = 0.0
    last_begun_zxid: int = 0
    counted: frozenset[str] = frozenset()
    settings: Hashable = None
    look_at: float = 0.0
    look_settings: Hashable = None


@dataclass(frozen=True)
class OwnBuilds:
    """Builds whose files one builder should have.

    :param builder_id: of that builder.
    :param formats: image and build id -> formats on its disk.
    """

    builder_id: str
    formats: Mapping[tuple[str, str], Collection[str]]


def observe_builds(history: BuildHistory, view: ImageView, settings: Hashable, now: float) -> BuildHistory:
    """Count builds that failed since the last look; a ready build that is newer ends the row.

    :param now: seconds since the epoch.
    """
    failed = view.builds_in(states.FAILED)
    new = [build for build in failed if build.id not in history.counted]
    found = replace(history, counted=frozenset(build.id for build in failed))
    if new:
        found = replace(
            found,
            failures=history.failures + len(new),
            # Clocks differ between builders: a time that is still to come would make the pause longer.
            last_failure=max(history.last_failure, min(now, max(build.time for build in new))),
            last_begun_zxid=max(history.last_begun_zxid, *(build.created_zxid for build in new)),
            settings=settings,
        )
    if any(build.created_zxid > found.last_begun_zxid for build in view.ready_builds()):
        found = replace(found, failures=0)
    return found


def build_due(
    wanted: WantedImage,
    view: ImageView,
    history: BuildHistory,
    now: float,
    users: Mapping[str, WantedUpload] | None = None,
    own: OwnBuilds | None = None,
) -> Due | NotDue:
    """Is it time to build an image?

    :param history: as `observe` returned it for this view.
    :param now: seconds since the epoch.
    :param users: providers that use the image; with ``own`` an image is built again that can be uploaded no more.
    :param own: of the builder that asks.
    """
    source = view.requested_source or wanted.source
    # What is only imported is paused in the configuration, for builders of 11.0.0, too.
    if view.paused or (wanted.paused and view.requested_source is None):
        return NotDue("paused in the configuration" if wanted.paused else "paused by image-pause")
    if not wanted.formats:
        return NotDue("no format is configured, and no provider uses it")
    if view.build_locked:
        return NotDue("it is being built")
    reason = _reason(wanted, view, history, now, users or {}, own)
    if isinstance(reason, NotDue):
        return reason
    again_at = _back_off_ends(wanted, view, history)
    if now < again_at:
        return NotDue(f"{reason}, but {history.failures} builds in a row have failed", again_at)
    return Due(reason, source, look=reason == _LOOK)


def _reason(
    wanted: WantedImage,
    view: ImageView,
    history: BuildHistory,
    now: float,
    users: Mapping[str, WantedUpload],
    own: OwnBuilds | None,
) -> str | NotDue:
    if view.build_requested is not None:
        source = view.requested_source
        return "a build was requested" if source is None else f"an import of {source.shown} was requested"
    newest = next(iter(view.ready_builds()), None)
    if newest is None or newest.record is None:
        return "there is no ready build"
    look_at = history.look_at if history.look_settings == (wanted.settings, wanted.rebuild_age_seconds) else 0.0
    due_at = max(newest.time + wanted.rebuild_age_seconds, look_at)
    if now >= due_at:
        if wanted.source is not None:
            return _LOOK
        return f"the newest build is {now - newest.time:.0f} s old, rebuild-age is {wanted.rebuild_age_seconds:g} s"
    lacking = sorted(wanted.formats - set(newest.record.formats))
    if lacking:
        return f"the newest build has no {', '.join(lacking)}"
    stranded = _stranded(newest, users, own)
    if stranded:
        return f"the files of the newest build do not exist any more, and {', '.join(stranded)} has no upload of it"
    return NotDue("the newest build is young enough", due_at)


def _stranded(build: BuildView, users: Mapping[str, WantedUpload], own: OwnBuilds | None) -> list[str]:
    """Providers to which nobody can upload a build: it was built here, and the files are gone."""
    if own is None or build.record is None or build.record.builder_id != own.builder_id:
        return []
    formats = own.formats.get((build.record.image_name, build.id), ())
    return sorted(
        provider
        for provider, use in users.items()
        if not use.paused and use.format not in formats and not build.ready_uploads(provider)
    )


def _back_off_ends(wanted: WantedImage, view: ImageView, history: BuildHistory) -> float:
    """When the next attempt may begin. A request that came after the last attempt begins is worth one at once."""
    if history.settings != wanted.settings:
        return 0.0
    if view.build_requested is not None and view.request_zxid > history.last_begun_zxid:
        return 0.0
    longest = max(FIRST_PAUSE_SECONDS, wanted.rebuild_age_seconds)
    return history.last_failure + Backoff(FIRST_PAUSE_SECONDS, longest).pause(history.failures)


# What is to be uploaded where, in which order, and what is not worth it any more? (U-1, U-6, U-10, U-12, U-13)

#: After uploads of a build to a provider that failed in a row.
BACKOFF: Final = Backoff(5.0, 60.0)
#: Numbers of so many failed uploads are kept, however long a provider refuses a build.
REMEMBERED: Final = 32


@dataclass(frozen=True)
class UploadJob:
    """Upload a build to a provider.

    :param build_time: when the build became ready, seconds since the epoch.
    :param failures: uploads of this build to this provider that have failed in a row.
    """

    image: str
    build_id: str
    provider: str
    format: str
    build_time: float
    failures: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """Image, build and provider: there is one upload of these at a time (U-2)."""
        return self.image, self.build_id, self.provider


@dataclass(frozen=True)
class UploadsDue:
    """What can be begun now.

    :param jobs: the newest build first.
    :param look_again_at: when a back-off ends, seconds since the epoch; None = only a change brings more.
    """

    jobs: tuple[UploadJob, ...] = ()
    look_again_at: float | None = None


@dataclass(frozen=True)
class UploadFailures:
    """Failed uploads of one build to one provider. Their records are removed soon.

    :param last: when the last one failed, seconds since the epoch.
    :param failures: how many failed.
    :param counted: numbers of the latest that were counted; the pause does not grow any more after so many.
    """

    last: float = 0.0
    failures: int = 0
    counted: frozenset[str] = frozenset()

    def and_one(self, upload_id: str, when: float) -> UploadFailures:
        """With a further one, unless it was counted."""
        more = 0 if upload_id in self.counted else 1
        latest = frozenset(sorted(self.counted | {upload_id})[-REMEMBERED:])
        return UploadFailures(max(self.last, when), self.failures + more, latest)


#: Failed uploads by image, build and provider, as one builder has seen them.
UploadHistory = dict[tuple[str, str, str], UploadFailures]


def observe_uploads(history: UploadHistory, view: ImagesView, now: float) -> UploadHistory:
    """Count uploads that failed since the last look; builds that are gone are forgotten.

    :param now: seconds since the epoch.
    """
    found = UploadHistory()
    for image in view.images.values():
        for build in image.builds.values():
            found |= {key: value for key, value in history.items() if key[:2] == (image.name, build.id)}
            for upload in build.all_uploads():
                if upload.state == states.FAILED:
                    key = (image.name, build.id, upload.provider_name)
                    failures = found.get(key) or UploadFailures()
                    if upload.key not in failures.counted:
                        # Clocks differ between builders: a time that is still to come would make the pause longer.
                        found[key] = failures.and_one(upload.key, min(now, upload.state_time or 0.0))
    return found


def uploads_due(
    wanted: WantedImages,
    view: ImagesView,
    formats: Mapping[tuple[str, str], Collection[str]],
    history: UploadHistory,
    now: float,
) -> UploadsDue:
    """Which uploads can this builder begin?

    :param formats: image and build id -> formats on the disk of this builder.
    :param history: as `observe` returned it for this view.
    :param now: seconds since the epoch.
    """
    jobs, later = [], []
    for provider, images in wanted.providers.items():
        for image, use in images.items():
            job = _candidate(view.image(image), provider, use, formats, history)
            if job is None or image not in wanted.images:
                continue
            begin_at = history.get(job.key, UploadFailures()).last + BACKOFF.pause(job.failures)
            if now < begin_at:
                later.append(begin_at)
            else:
                jobs.append(job)
    jobs.sort(key=lambda job: (-job.build_time, job.image, job.provider))
    return UploadsDue(tuple(jobs), min(later, default=None))


def _candidate(
    view: ImageView,
    provider: str,
    use: WantedUpload,
    formats: Mapping[tuple[str, str], Collection[str]],
    history: UploadHistory,
) -> UploadJob | None:
    """The newest ready build of an image, if it is to be uploaded to a provider and is not being so (U-1)."""
    newest = next(iter(view.ready_builds()), None)
    if use.paused or newest is None or newest.locked or provider in newest.uploading:
        return None
    if newest.ready_uploads(provider) or use.format not in formats.get((view.name, newest.id), ()):
        return None
    failures = history.get((view.name, newest.id, provider), UploadFailures()).failures
    return UploadJob(view.name, newest.id, provider, use.format, newest.time, failures)


def next_upload(
    jobs: Iterable[UploadJob], running: Collection[UploadJob], workers: int, providers: int
) -> UploadJob | None:
    """Which upload does a free worker begin? None = none.

    The provider with the fewest uploads under way is served first, of that the newest build. With several providers
    none gets all workers: one that is slow would hold up the others.

    :param jobs: see `UploadsDue`.
    :param running: uploads that this builder makes now.
    :param workers: of this builder, busy or not.
    :param providers: how many have images.
    """
    busy: dict[str, int] = {}
    for job in running:
        busy[job.provider] = busy.get(job.provider, 0) + 1
    most = workers if providers < 2 else max(1, workers - 1)
    begun = {job.key for job in running}
    open_jobs = [job for job in jobs if job.key not in begun and busy.get(job.provider, 0) < most]
    return min(
        open_jobs, key=lambda job: (busy.get(job.provider, 0), -job.build_time, job.image, job.provider), default=None
    )


def overtaken(build: BuildView | None, view: ImageView, provider: str, *, by_candidates: bool = True) -> str | None:
    """Why is an upload of a build not worth finishing any more (U-12)? None = it is.

    :param build: None = it is gone.
    :param by_candidates: does a newer candidate count? One that is tried is not ended by it (CA-1).
    """
    if build is None or build.state != states.READY:
        return "the build is deleted or being deleted"
    for other in view.builds.values():
        newer = other.state == states.READY and (other.time, other.id) > (build.time, build.id)
        uploads = [upload for upload in other.ready_uploads(provider) if by_candidates or upload.candidate is None]
        if newer and any(not upload.rolled_back for upload in uploads):
            return f"the newer build {other.id} is ready in {provider}"
    return None


# Back to an older upload: which one, and what becomes of the newer one?


def choose_rollback(view: ImageView, provider: str) -> tuple[ImageUpload, ImageUpload] | str:
    """The ready upload before the current one, and the current one; a text = why there is nothing to go back to.

    The older one is to be stored with a new time, so that launchers use it, and the newer one marked as rolled back.
    One that an operator went back from is not preferred again; nor is one whose build is being deleted.
    """
    current = view.current_upload(provider)
    if current is None:
        return f"image {view.name} has no ready upload in {provider}"
    doomed = {build.id for build in view.builds_in(states.DELETING)}
    others = [upload for upload in view.ready_uploads(provider) if upload is not current and upload.candidate is None]
    older = [upload for upload in others if not upload.rolled_back and upload.build_id not in doomed]
    if not older:
        return f"image {view.name} has no ready upload in {provider} before {current.build_id}/{current.id}"
    return older[0], current


def rolled_back(images: ImagesView) -> Iterator[tuple[str, str, ImageUpload]]:
    """Image, provider and upload where the newest that is no candidate any more was rolled back."""
    for name, view in images.images.items():
        for provider, upload in _rolled_back(view).items():
            yield name, provider, upload


def _rolled_back(view: ImageView) -> dict[str, ImageUpload]:
    """The same of one image, by provider."""
    newest: dict[str, ImageUpload] = {}
    for upload in (one for build in view.ready_builds() for one in build.all_uploads()):
        if upload.state == states.READY and upload.candidate is None:
            newest.setdefault(upload.provider_name, upload)
    return {provider: upload for provider, upload in newest.items() if upload.rolled_back and upload.verdict}


# When a command that waits for a build, or for uploads, has what it waits for.


@dataclass(frozen=True)
class End:
    """There is nothing to wait for any more.

    :param good: what was asked for is there.
    :param text: what happened, for people.
    """

    good: bool
    text: str


class BuildWait:
    """Waits for the first build that ends after it was asked for. For one thread.

    :param before: the image before. A build that runs then is waited for: the request is for that one, too (6.3).
    :param source: an import of it was asked for, which is none of the builds that run.
    """

    def __init__(self, before: ImageView, source: ImageSource | None = None) -> None:
        self._source = source
        self._old = {build.id for build in before.builds.values() if source or build.state != states.BUILDING}
        self._seen: set[str] = set()

    def running(self, image: ImageView) -> list[BuildView]:
        """Builds that run, the newest first."""
        return image.builds_in(states.BUILDING)

    def look(self, image: ImageView) -> End | None:
        """None = go on waiting."""
        new = {build.id: build for build in image.builds.values() if self._is_meant(build)}
        gone = self._seen - new.keys()
        self._seen |= new.keys()
        ended = sorted(
            (build for build in new.values() if build.state not in (states.BUILDING, None)),
            key=lambda build: (build.state != states.READY, -build.time),
        )
        if ended:
            return _build_end(image.name, ended[0])
        if gone:
            return End(False, f"Build {image.name}-{min(gone)} was not finished: its record does not exist any more")
        return None

    def _is_meant(self, build: BuildView) -> bool:
        """Builders may build the image while they wait for the file of an import (I-2)."""
        source = None if build.record is None else build.record.source
        return build.id not in self._old and (self._source is None or source == self._source.shown)


def _build_end(image: str, build: BuildView) -> End:
    name = f"{image}-{build.id}"
    if build.state == states.READY:
        return End(True, f"Build {name} is ready")
    if build.state == states.DELETING:
        return End(False, f"Build {name} is being deleted")
    where = build.record.builder if build.record is not None and build.record.builder else "its builder"
    return End(False, f"Build {name} has failed; its log is on {where}")


# What the configuration wants of images, as values for the decisions.


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
    :param rebuild_age_seconds: the newest build is used for so long; with ``source``, until the vendor is asked again.
    :param paused: nothing is built (P-1).
    :param keep_formats: formats that ``delete_after_upload`` keeps.
    :param settings: equal = a build makes the same; another value makes a failed build worth another attempt at once.
    :param source: what is imported in place of a build; None = it is built.
    """

    name: str
    formats: frozenset[str] = frozenset()
    rebuild_age_seconds: float = 86400.0
    paused: bool = False
    keep_formats: frozenset[str] = frozenset()
    delete_after_upload: bool = False
    settings: Hashable = None
    source: ImageSource | None = None


@dataclass(frozen=True, slots=True)
class WantedImages:
    """:param providers: every configured provider whose images are managed -> image -> how it is used."""

    images: Mapping[str, WantedImage] = field(default_factory=dict)
    providers: Mapping[str, Mapping[str, WantedUpload]] = field(default_factory=dict)

    def users(self, image: str) -> dict[str, WantedUpload]:
        """Providers that use an image, and how."""
        return {name: images[image] for name, images in self.providers.items() if image in images}


# Which builds and uploads must be removed? (rules)
#
# A verdict is made from a view, which may be a little old. A worker that carries it out takes the lock that its class
# names, and writes with the version of the record in the verdict: what has changed since is left to the next look.

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

    Those of a build that is being deleted do not count: they go, whatever the others are. Candidates, and what was
    rolled back, come after the others: they must not push the last good ones out. What was rolled back last is kept:
    people look at it.
    """
    doomed = {build.id for build in view.builds_in(states.DELETING)}
    kept, bad = set(), _rolled_back(view)
    for provider in wanted.users(view.name):
        ready = [upload for upload in view.ready_uploads(provider) if upload.build_id not in doomed]
        ready.sort(key=lambda upload: upload.rolled_back or upload.candidate is not None)
        current = [view.candidate(provider), view.current_upload(provider), bad.get(provider)]
        kept |= {(one.build_id, provider, one.key) for one in [*ready[:KEPT], *current] if one in ready}
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
    uploads = (upload.record for same in build.uploads.values() for upload in same)
    if all(record is not None and record.state == states.DELETING for record in uploads):
        yield MarkBuild(view.name, build.id, build.record, _why_build_goes(build), warning)


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
