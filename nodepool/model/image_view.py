# SPDX-License-Identifier: Apache-2.0
"""All images as they were at one moment: builds, uploads, who works on them, what was asked for.

Views are values: nobody changes them, nor the records in them. Who wants to write copies a record first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from nodepool.model import states
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.model.maintenance import Maintenance, Mode


@dataclass(frozen=True, slots=True)
class UploadView:
    """One upload of a build to a provider.

    :param record: None = what is stored is no record of an upload.
    :param changed: when its data were written last, seconds since the epoch by ZooKeeper's clock; 0 = not known.
    :param locked: does somebody hold the lock of this number? It is being deleted.
    """

    id: str
    record: ImageUpload | None
    changed: float = 0.0
    locked: bool = False


@dataclass(frozen=True, slots=True)
class BuildView:
    """One build of an image.

    :param record: None = what is stored is no record of a build.
    :param changed: when its data were written last, seconds since the epoch by ZooKeeper's clock; 0 = not known.
    :param created_zxid: ZooKeeper's number of the change that made it; 0 = not known.
    :param locked: does somebody hold the lock of this build? It is being marked or removed.
    :param uploads: provider -> uploads in the order of their numbers. A provider may be there without any.
    :param uploading: providers to which somebody uploads it now (the upload lock is held).
    """

    id: str
    record: ImageBuild | None
    changed: float = 0.0
    created_zxid: int = 0
    locked: bool = False
    uploads: Mapping[str, tuple[UploadView, ...]] = field(default_factory=dict)
    uploading: frozenset[str] = frozenset()

    @property
    def state(self) -> str | None:
        """State of the record; None = unreadable."""
        return None if self.record is None else self.record.state

    @property
    def time(self) -> float:
        """When it got its state, in seconds since the epoch; 0 = not known."""
        return 0.0 if self.record is None else self.record.state_time or 0.0

    @property
    def upload_count(self) -> int:
        """Uploads in every state, readable or not."""
        return sum(len(uploads) for uploads in self.uploads.values())

    def all_uploads(self) -> Iterator[ImageUpload]:
        """All readable uploads."""
        for uploads in self.uploads.values():
            yield from (upload.record for upload in uploads if upload.record is not None)

    def ready_uploads(self, provider: str) -> list[ImageUpload]:
        """Ready uploads to a provider."""
        found = (upload.record for upload in self.uploads.get(provider, ()))
        return [record for record in found if record is not None and record.state == states.READY]


@dataclass(frozen=True, slots=True)
class ImageView:
    """One image.

    :param paused: is nothing to be built (the flag in ZooKeeper)?
    :param build_requested: when somebody asked for a build, in seconds since the epoch; None = nobody does.
    :param request_zxid: ZooKeeper's number of when somebody did so last. Unlike times it tells what came first.
    :param build_locked: does somebody build it now?
    :param builds: by id.
    """

    name: str
    paused: bool = False
    build_requested: float | None = None
    request_zxid: int = 0
    build_locked: bool = False
    builds: Mapping[str, BuildView] = field(default_factory=dict)
    #: Provider -> `current_upload`: it is asked for at each launch.
    _current: dict[str, ImageUpload] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        current = self._current
        for build in self.builds.values():
            for upload in build.all_uploads():
                best = current.get(upload.provider_name)
                if upload.state == states.READY and (best is None or _time(upload) > _time(best)):
                    current[upload.provider_name] = upload

    def builds_in(self, state: str) -> list[BuildView]:
        """Builds in a state, the newest first."""
        found = [build for build in self.builds.values() if build.state == state]
        return sorted(found, key=lambda build: (build.time, build.id), reverse=True)

    def ready_builds(self) -> list[BuildView]:
        """Ready builds, the newest first."""
        return self.builds_in(states.READY)

    def ready_uploads(self, provider: str) -> list[ImageUpload]:
        """Ready uploads to a provider, over all builds, the newest first."""
        found = [upload for build in self.builds.values() for upload in build.ready_uploads(provider)]
        return sorted(found, key=lambda upload: (_time(upload), upload.build_id), reverse=True)

    def current_upload(self, provider: str) -> ImageUpload | None:
        """What a provider's nodes are made from: the ready upload with the greatest state time (6.2)."""
        return self._current.get(provider)


@dataclass(frozen=True, slots=True)
class ImagesView:
    """All images, by name."""

    images: Mapping[str, ImageView] = field(default_factory=dict)

    def image(self, name: str) -> ImageView:
        """An image; one without anything when there is none."""
        return self.images.get(name) or ImageView(name)

    def with_image(self, name: str, view: ImageView | None) -> ImagesView:
        """The same with another view of one image.

        :param view: None = the image is gone.
        """
        images = {other: image for other, image in self.images.items() if other != name}
        if view is not None:
            images[name] = view
        return ImagesView(MappingProxyType(images))

    def pauses(self) -> list[Maintenance]:
        """Images that are not built, as maintenance records; since when is not known."""
        return [Maintenance("image", name, Mode.PAUSE) for name, image in self.images.items() if image.paused]


NO_IMAGES: Final = ImagesView()


def _time(upload: ImageUpload) -> float:
    """When it got its state, in seconds since the epoch; 0 = not known."""
    return upload.state_time or 0.0
