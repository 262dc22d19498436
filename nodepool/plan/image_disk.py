# SPDX-License-Identifier: Apache-2.0
"""Which local files of builds must be removed? (rules R-9, R-10, R-15, R-16)"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from nodepool.model import states
from nodepool.model.image_view import BuildView, ImagesView, ImageView
from nodepool.plan.wanted_images import WantedImages

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
