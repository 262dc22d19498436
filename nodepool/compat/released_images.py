# SPDX-License-Identifier: Apache-2.0
"""Methods of the facade of 11.0.0 for images: builds, uploads, their locks and requests."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodepool.clock import wall_time
from nodepool.exceptions import ZKException
from nodepool.model.image import ImageBuild, ImageBuildRequest, ImageUpload
from nodepool.model.states import READY
from nodepool.zk import codec, image_backup, locks, paths
from nodepool.zk.locks import ZkLock
from nodepool.zk.transactions import ensure_path, translated
from nodepool.zk.zookeeper import ZooKeeper


@dataclass(frozen=True)
class KnownImage:
    """An image that is known in ZooKeeper, built or not.

    :param paused: nothing is to be built.
    """

    image_name: str
    paused: bool


def _builds(image: str) -> str:
    return f"{paths.IMAGES}/{image}/builds"


def _uploads(image: str, build_id: str, provider: str) -> str:
    return f"{_builds(image)}/{build_id}/providers/{provider}/images"


def _newest(records: list[Any], count: int, state: str | None) -> list[Any]:
    wanted = [record for record in records if state in (None, record.state)]
    return sorted(wanted, key=lambda record: record.state_time or 0, reverse=True)[:count]


class ReleasedImages(ZooKeeper):
    """All of it blocks for round trips, and raises ZKException without a connection."""

    # -- reading --

    def getImageNames(self) -> list[str]:
        """Names of images that were built."""
        return self.images.image_names()

    def getBuildIds(self, image: str) -> list[str]:
        """Ids of the builds of an image."""
        return self.images.build_ids(image)

    def getBuilds(self, image: str, states: Collection[str] | None = None) -> list[ImageBuild]:
        """The builds of an image, of these states or of all."""
        return [build for build in self.images.builds(image) if states is None or build.state in states]

    def getBuild(self, image: str, build_id: str) -> ImageBuild | None:
        """One build; None = there is none."""
        return next((build for build in self.images.builds(image) if build.id == build_id), None)

    def getBuildProviders(self, image: str, build_id: str) -> list[str]:
        """Providers for which a build has or had uploads."""
        return self.images.upload_providers(image, build_id)

    def getMostRecentBuilds(self, count: int, image: str, state: str | None = None) -> list[ImageBuild]:
        """The newest builds, the last one first."""
        return _newest(self.images.builds(image), count, state)

    def getImageUploadNumbers(self, image: str, build_id: str, provider: str) -> list[str]:
        """Ids of the uploads of a build to a provider."""
        return self.images.upload_ids_of(image, build_id, provider)

    def getUploads(
        self, image: str, build_id: str, provider: str, states: Collection[str] | None = None
    ) -> list[ImageUpload]:
        """The uploads of a build to a provider, of these states or of all."""
        found = self.images.uploads(image, build_id, provider)
        return [upload for upload in found if states is None or upload.state in states]

    def getImageUpload(self, image: str, build_id: str, provider: str, upload_number: str) -> ImageUpload | None:
        """One upload; None = there is none."""
        found = self.images.uploads(image, build_id, provider)
        return next((upload for upload in found if upload.id == upload_number), None)

    def getMostRecentBuildImageUploads(
        self, count: int, image: str, build_id: str, provider: str, state: str | None = None
    ) -> list[ImageUpload]:
        """The newest uploads of a build, the last one first."""
        return _newest(self.images.uploads(image, build_id, provider), count, state)

    def getMostRecentImageUpload(
        self, image: str, provider: str, state: str = READY, cached: bool = False
    ) -> ImageUpload | None:
        """The newest upload of a state, over all builds.

        :param cached: makes no difference: uploads are not cached.
        """
        if state == READY:
            return super().getMostRecentImageUpload(image, provider)
        found = [one for build in self.getBuildIds(image) for one in self.images.uploads(image, build, provider)]
        return next(iter(_newest(found, 1, state)), None)

    def getProviderUploads(self, provider_name: str) -> dict[str, dict[str, list[ImageUpload]]]:
        """Image -> build id -> uploads to a provider."""
        return {
            image: {
                build: self.images.uploads(image, build, provider_name)
                for build in self.getBuildIds(image)
                if provider_name in self.getBuildProviders(image, build)
            }
            for image in self.getImageNames()
        }

    def getProviderBuilds(self, provider_name: str) -> dict[str, list[str]]:
        """Image -> ids of builds that have or had uploads to a provider."""
        found = {image: list(builds) for image, builds in self.getProviderUploads(provider_name).items()}
        return {image: builds for image, builds in found.items() if builds}

    def getCachedImages(self) -> list[KnownImage]:
        """All images; they are read, because nothing of images is cached."""
        return [KnownImage(image, self.getImagePaused(image)) for image in self.getImageNames()]

    def getCachedBuilds(self) -> list[ImageBuild]:
        """All builds; they are read, too."""
        return [build for image in self.getImageNames() for build in self.images.builds(image)]

    def getCachedImageUploads(self) -> list[ImageUpload]:
        """All uploads; they are read, too."""
        return [
            upload
            for build in self.getCachedBuilds()
            for provider in self.getBuildProviders(build.image_name, build.key)
            for upload in self.images.uploads(build.image_name, build.key, provider)
        ]

    # -- writing --

    def storeBuild(self, image: str, build_data: ImageBuild, build_id: str | None = None) -> str:
        """Write a build; without an id a new one, whose id is returned."""
        build_id = build_id or uuid.uuid4().hex
        build_data.id = build_id
        self._write(f"{_builds(image)}/{build_id}", codec.encode(build_data.to_dict(wall_time())))
        return build_id

    def storeImageUpload(
        self, image: str, build_id: str, provider: str, image_data: ImageUpload, upload_number: str | None = None
    ) -> str:
        """Write an upload; without a number a new one, whose number is returned. Raises ZKException: no such build."""
        root = _uploads(image, build_id, provider)
        data = codec.encode(image_data.to_dict(wall_time()))
        if self.getBuild(image, build_id) is None:
            raise ZKException(f"there is no build {build_id} of image {image}")
        if upload_number is None:
            ensure_path(self.client, f"{root}/{paths.LOCK}")
            upload_number = self._create(f"{root}/", data).rpartition("/")[2]
        else:
            self._write(f"{root}/{upload_number}", data)
        image_data.id = upload_number
        return upload_number

    def deleteUpload(self, image: str, build_id: str, provider: str, upload_number: str) -> None:
        """Remove the record of an upload; one that is gone is fine."""
        self._remove(f"{_uploads(image, build_id, provider)}/{upload_number}")

    def deleteBuild(self, image: str, build_id: str) -> bool:
        """Remove a build, unless it has uploads. False = it has."""
        for provider in self.getBuildProviders(image, build_id):
            if self.getImageUploadNumbers(image, build_id, provider):
                return False
        self._remove(f"{_builds(image)}/{build_id}")
        return True

    def removeProviderBuilds(self, provider_name: str, provider_builds: dict[str, list[str]]) -> None:
        """Remove the records of uploads to a provider; the cloud is not touched.

        :param provider_builds: as `getProviderBuilds` gives it.
        """
        for image, builds in provider_builds.items():
            for build_id in builds:
                self.images.erase_provider(image, build_id, provider_name)

    # -- requests and pauses --

    def submitBuildRequest(self, image: str) -> None:
        """Ask for a build."""
        ensure_path(self.client, f"{paths.IMAGES}/{image}/request-build")

    def hasBuildRequest(self, image: str) -> bool:
        """Did somebody ask for a build?"""
        return self._exists(f"{paths.IMAGES}/{image}/request-build")

    def getBuildRequest(self, image: str) -> ImageBuildRequest | None:
        """Who asked for a build, and is it still to be begun? None = nobody."""
        return self.images.build_request(image)

    def removeBuildRequest(self, image: str) -> None:
        """Nobody asks for a build any more."""
        self._remove(f"{paths.IMAGES}/{image}/request-build")

    def getImagePaused(self, image: str) -> bool:
        """Are builds of an image paused?"""
        return self._exists(f"{paths.IMAGES}/{image}/pause")

    def setImagePaused(self, image: str, paused: bool) -> None:
        """Pause builds of an image, or go on with them."""
        path = f"{paths.IMAGES}/{image}/pause"
        if paused:
            ensure_path(self.client, path)
        else:
            self._remove(path)

    # -- backup --

    def exportImageData(self) -> dict[str, str]:
        """Builds, uploads and pauses: path -> what is stored there."""
        return image_backup.export_images(self.client)

    def importImageData(self, import_data: Mapping[str, str]) -> None:
        """Write what `exportImageData` gave. Nobody else may write images meanwhile. Raises ZKException: bad data."""
        image_backup.import_images(self.client, import_data, replace=True)

    # -- locks --

    @contextlib.contextmanager
    def _locked(self, lock_dir: str, blocking: bool, timeout: float | None) -> Iterator[ZkLock]:
        lock = locks.acquire(self.client, lock_dir, blocking=blocking, timeout=timeout)
        try:
            yield lock
        finally:
            locks.release(self.client, lock)

    def imageBuildLock(
        self, image: str, blocking: bool = True, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one builds an image at a time. Raises ZKLockException."""
        return self._locked(f"{_builds(image)}/{paths.LOCK}", blocking, timeout)

    def imageBuildIdLock(
        self, image: str, build_id: str, blocking: bool = True, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one deletes a build at a time. Raises ZKLockException."""
        return self._locked(f"{_builds(image)}/{build_id}/{paths.LOCK}", blocking, timeout)

    def imageUploadLock(
        self, image: str, build_id: str, provider: str, blocking: bool = True, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one uploads a build to a provider at a time. Raises ZKLockException."""
        return self._locked(f"{_uploads(image, build_id, provider)}/{paths.LOCK}", blocking, timeout)

    def imageUploadNumberLock(
        self, image_upload: ImageUpload, blocking: bool = True, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one deletes an upload at a time. Raises ZKLockException."""
        root = _uploads(image_upload.image_name, image_upload.build_id, image_upload.provider_name)
        return self._locked(f"{root}/{image_upload.id}/{paths.LOCK}", blocking, timeout)

    # -- znodes --

    def _ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of Kazoo's client, which may be done again; raises ZKException."""
        kazoo = self.client.kazoo
        with translated():
            return kazoo.retry(getattr(kazoo, name), *arguments, **options)

    def _create(self, prefix: str, data: bytes) -> str:
        """Make a znode with a number; returns its path. Not done again: the first may have been made."""
        with translated():
            return str(self.client.kazoo.create(prefix, data, sequence=True))

    def _exists(self, path: str) -> bool:
        return self._ask("exists", path) is not None

    def _write(self, path: str, data: bytes) -> None:
        ensure_path(self.client, path)
        self._ask("set", path, data)

    def _remove(self, path: str) -> None:
        if self._exists(path):
            self._ask("delete", path, recursive=True)
