# SPDX-License-Identifier: Apache-2.0
"""When a command that waits for a build, or for uploads, has what it waits for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from nodepool.model import states
from nodepool.model.image import ImageUpload
from nodepool.model.image_view import BuildView, ImageView


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
    """

    def __init__(self, before: ImageView) -> None:
        self._old = {build.id for build in before.builds.values() if build.state != states.BUILDING}
        self._seen: set[str] = set()

    def running(self, image: ImageView) -> list[BuildView]:
        """Builds that run, the newest first."""
        return image.builds_in(states.BUILDING)

    def look(self, image: ImageView) -> End | None:
        """None = go on waiting."""
        new = {build.id: build for build in image.builds.values() if build.id not in self._old}
        gone = self._seen - new.keys()
        self._seen |= new.keys()
        ended = sorted(
            (build for build in new.values() if build.state not in (states.BUILDING, None)),
            key=lambda build: (build.state != states.READY, -build.time),
        )
        if ended:
            return _build_end(image.name, ended[0])
        if gone:
            return End(False, f"Build {image.name}-{min(gone)} was not finished: its record is gone")
        return None


def _build_end(image: str, build: BuildView) -> End:
    name = f"{image}-{build.id}"
    if build.state == states.READY:
        return End(True, f"Build {name} is ready")
    if build.state == states.DELETING:
        return End(False, f"Build {name} is being deleted")
    where = build.record.builder if build.record is not None and build.record.builder else "its builder"
    return End(False, f"Build {name} has failed; its log is on {where}")


@dataclass(frozen=True)
class ProviderUpload:
    """How far a provider is with the newest build.

    :param upload: the one that counts; None = it has not begun.
    :param failures: uploads of this build that have failed.
    """

    provider: str
    upload: ImageUpload | None
    failures: int = 0

    @property
    def ready(self) -> bool:
        return self.upload is not None and self.upload.state == states.READY


def provider_uploads(image: ImageView, providers: Collection[str]) -> list[ProviderUpload]:
    """How far these providers are with the newest ready build, in their order; all without upload = there is none."""
    build = next(iter(image.ready_builds()), None)
    found = []
    for provider in providers:
        views = () if build is None else build.uploads.get(provider, ())
        records = [view.record for view in views if view.record is not None]
        ready = [record for record in records if record.state == states.READY]
        running = [record for record in records if record.state == states.UPLOADING]
        failures = sum(record.state == states.FAILED for record in records)
        found.append(ProviderUpload(provider, next(iter(ready + running), None), failures))
    return found


def uploads_end(image: ImageView, providers: Collection[str]) -> End | None:
    """Does every provider have the newest ready build? None = go on waiting."""
    builds = image.ready_builds()
    if not builds:
        return None
    if all(one.ready for one in provider_uploads(image, providers)):
        return End(True, f"Build {image.name}-{builds[0].id} is ready in {', '.join(providers)}")
    return None
