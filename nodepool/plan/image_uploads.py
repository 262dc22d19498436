# SPDX-License-Identifier: Apache-2.0
"""What is to be uploaded where, in which order, and what is not worth it any more? (U-1, U-6, U-10, U-12, U-13)"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodepool.model import states
from nodepool.model.image import ImageUpload
from nodepool.model.image_view import BuildView, ImagesView, ImageView
from nodepool.plan.backoff import Backoff
from nodepool.plan.wanted_images import WantedImages, WantedUpload

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


@dataclass(frozen=True)
class UploadHistory:
    """Failed uploads by image, build and provider, as one builder has seen them."""

    failures: Mapping[tuple[str, str, str], UploadFailures] = field(default_factory=dict)

    def of(self, image: str, build_id: str, provider: str) -> UploadFailures:
        return self.failures.get((image, build_id, provider)) or UploadFailures()


def observe(history: UploadHistory, view: ImagesView, now: float) -> UploadHistory:
    """Count uploads that failed since the last look; builds that are gone are forgotten.

    :param now: seconds since the epoch.
    """
    found: dict[tuple[str, str, str], UploadFailures] = {}
    for image in view.images.values():
        for build in image.builds.values():
            known = {key: value for key, value in history.failures.items() if key[:2] == (image.name, build.id)}
            found |= known
            for upload in build.all_uploads():
                if upload.state == states.FAILED:
                    key = (image.name, build.id, upload.provider_name)
                    found[key] = _counted(found.get(key) or UploadFailures(), upload, now)
    return UploadHistory(found)


def _counted(failures: UploadFailures, upload: ImageUpload, now: float) -> UploadFailures:
    if upload.key in failures.counted:
        return failures
    # Clocks differ between builders: a time that is still to come would make the pause longer.
    last = min(now, upload.state_time or 0.0)
    return failures.and_one(upload.key, last)


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
            begin_at = history.of(*job.key).last + BACKOFF.pause(job.failures)
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
    failures = history.of(view.name, newest.id, provider).failures
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


def overtaken(build: BuildView | None, view: ImageView, provider: str) -> str | None:
    """Why is an upload of a build not worth finishing any more (U-12)? None = it is.

    :param build: None = it is gone.
    """
    if build is None or build.state != states.READY:
        return "the build is gone or being deleted"
    for other in view.builds.values():
        newer = other.state == states.READY and (other.time, other.id) > (build.time, build.id)
        if newer and any(not upload.rolled_back for upload in other.ready_uploads(provider)):
            return f"the newer build {other.id} is ready in {provider}"
    return None
