# SPDX-License-Identifier: Apache-2.0
"""Is a build of an image due, and when after builds that failed? (rules B-1 to B-4, B-13, P-1)"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from nodepool.model import states
from nodepool.model.image_view import BuildView, ImageView
from nodepool.plan.backoff import Backoff
from nodepool.plan.wanted_images import WantedImage, WantedUpload

#: Pause after the first failed build.
FIRST_PAUSE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Due:
    """Build it now."""

    reason: str


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
    """

    failures: int = 0
    last_failure: float = 0.0
    last_begun_zxid: int = 0
    counted: frozenset[str] = frozenset()
    settings: Hashable = None


@dataclass(frozen=True)
class OwnBuilds:
    """Builds whose files one builder should have.

    :param builder_id: of that builder.
    :param formats: image and build id -> formats on its disk.
    """

    builder_id: str
    formats: Mapping[tuple[str, str], Collection[str]]


def observe(history: BuildHistory, view: ImageView, settings: Hashable, now: float) -> BuildHistory:
    """Count builds that failed since the last look; a ready build that is newer ends the row.

    :param now: seconds since the epoch.
    """
    failed = view.builds_in(states.FAILED)
    new = [build for build in failed if build.id not in history.counted]
    failures, last, begun, known = (
        *(history.failures, history.last_failure, history.last_begun_zxid),
        history.settings,
    )
    if new:
        failures += len(new)
        # Clocks differ between builders: a time that is still to come would make the pause longer.
        last = max(last, min(now, max(build.time for build in new)))
        begun = max(begun, *(build.created_zxid for build in new))
        known = settings
    if any(build.created_zxid > begun for build in view.ready_builds()):
        failures = 0
    return BuildHistory(failures, last, begun, frozenset(build.id for build in failed), known)


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
    if wanted.paused or view.paused:
        return NotDue("paused in the configuration" if wanted.paused else "paused by image-pause")
    if not wanted.formats:
        return NotDue("no format is configured, and no provider uses it")
    if view.build_locked:
        return NotDue("it is being built")
    reason = _reason(wanted, view, now, users or {}, own)
    if isinstance(reason, NotDue):
        return reason
    again_at = _back_off_ends(wanted, view, history)
    if now < again_at:
        return NotDue(f"{reason}, but {history.failures} builds in a row have failed", again_at)
    return Due(reason)


def _reason(
    wanted: WantedImage, view: ImageView, now: float, users: Mapping[str, WantedUpload], own: OwnBuilds | None
) -> str | NotDue:
    if view.build_requested is not None:
        return "a build was requested"
    newest = next(iter(view.ready_builds()), None)
    if newest is None or newest.record is None:
        return "there is no ready build"
    due_at = newest.time + wanted.rebuild_age_seconds
    if now >= due_at:
        return f"the newest build is {now - newest.time:.0f} s old, rebuild-age is {wanted.rebuild_age_seconds:g} s"
    lacking = sorted(wanted.formats - set(newest.record.formats))
    if lacking:
        return f"the newest build has no {', '.join(lacking)}"
    stranded = _stranded(newest, users, own)
    if stranded:
        return f"the files of the newest build are gone, and {', '.join(stranded)} has no upload of it"
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
