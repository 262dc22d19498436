# SPDX-License-Identifier: Apache-2.0
"""Methods of the facade of 11.0.0 for images: builds, uploads, their locks and requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from nodepool.exceptions import ZKConflict
from nodepool.model.image import ImageBuild, ImageBuildRequest, ImageUpload
from nodepool.model.states import READY
from nodepool.zk import image_backup
from nodepool.zk.locks import ZkLock
from nodepool.zk.zookeeper import ZooKeeper


@dataclass(frozen=True)
class KnownImage:
    """An image that is known in ZooKeeper, built or not.

    :param paused: nothing is to be built.
    """

    image_name: str
    paused: bool


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
        return self.images.build(image, build_id)

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
        return self.images.upload(image, build_id, provider, upload_number)

    def getMostRecentBuildImageUploads(
        self, count: int, image: str, build_id: str, provider: str, state: str | None = None
    ) -> list[ImageUpload]:
        """The newest uploads of a build, the last one first."""
        return _newest(self.images.uploads(image, build_id, provider), count, state)

    def getMostRecentImageUpload(
        self, image: str, provider: str, state: str = READY, cached: bool = False
    ) -> ImageUpload | None:
        """The newest upload of a state, over all builds.

        :param cached: what the cache has is good enough.
        """
        if cached and state == READY:
            found = super().getMostRecentImageUpload(image, provider)
            return None if found is None else found.copy()
        uploads = [one for build in self.getBuildIds(image) for one in self.images.uploads(image, build, provider)]
        return next(iter(_newest(uploads, 1, state)), None)

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
        """All images, from the cache when there is one."""
        if self.cache is None:
            return [KnownImage(image, self.getImagePaused(image)) for image in self.getImageNames()]
        return [KnownImage(image.name, image.paused) for image in self.cache.images.snapshot().images.values()]

    def getCachedBuilds(self) -> list[ImageBuild]:
        """All builds, from the cache when there is one; each is the caller's own."""
        if self.cache is None:
            return [build for image in self.getImageNames() for build in self.images.builds(image)]
        images = self.cache.images.snapshot().images.values()
        builds = [build.record for image in images for build in image.builds.values()]
        return [record.copy() for record in builds if record is not None]

    def getCachedImageUploads(self) -> list[ImageUpload]:
        """All uploads, from the cache when there is one; each is the caller's own."""
        if self.cache is None:
            return [
                upload
                for build in self.getCachedBuilds()
                for provider in self.getBuildProviders(build.image_name, build.key)
                for upload in self.images.uploads(build.image_name, build.key, provider)
            ]
        images = self.cache.images.snapshot().images.values()
        builds = [build for image in images for build in image.builds.values()]
        return [upload.copy() for build in builds for upload in build.all_uploads()]

    # -- writing --

    def storeBuild(self, image: str, build_data: ImageBuild, build_id: str | None = None) -> str:
        """Write a build; without an id a new one, whose id is returned.

        :raises ZKConflict: somebody else has written it since it was read, or it is gone.
        """
        build_data.image_name = image
        if build_id is None:
            return self.images.new_build(build_data)
        build_data.id = build_id
        self._take_version(build_data, self.images.build(image, build_id) if build_data.version is None else None)
        self.images.store_build(build_data)
        return build_id

    def storeImageUpload(
        self, image: str, build_id: str, provider: str, image_data: ImageUpload, upload_number: str | None = None
    ) -> str:
        """Write an upload; without a number a new one, whose number is returned.

        :raises ZKConflict: there is no such build, or somebody else has written the upload since it was read.
        """
        image_data.image_name, image_data.build_id, image_data.provider_name = image, build_id, provider
        if upload_number is None:
            return self.images.new_upload(image_data)
        image_data.id = upload_number
        unread = image_data.version is None
        self._take_version(image_data, self.images.upload(image, build_id, provider, upload_number) if unread else None)
        self.images.store_upload(image_data)
        return upload_number

    @staticmethod
    def _take_version(record: ImageBuild | ImageUpload, stored: ImageBuild | ImageUpload | None) -> None:
        """A record that was made by the driver is written over what is there now."""
        if record.version is None:
            if stored is None:
                raise ZKConflict(f"{record.image_name}: there is no build or upload {record.id} to write over")
            record.version = stored.version

    def deleteUpload(self, image: str, build_id: str, provider: str, upload_number: str) -> None:
        """Remove the record of an upload; one that is gone is fine."""
        self.images.delete_upload(image, build_id, provider, upload_number)

    def deleteBuild(self, image: str, build_id: str) -> bool:
        """Remove a build, unless it has uploads or is locked. False = it is there still."""
        return self.images.delete_build(image, build_id)

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
        self.images.request_build(image)

    def hasBuildRequest(self, image: str) -> bool:
        """Did somebody ask for a build?"""
        return self.images.build_request(image) is not None

    def getBuildRequest(self, image: str) -> ImageBuildRequest | None:
        """Who asked for a build, and is it still to be begun? None = nobody."""
        return self.images.build_request(image)

    def removeBuildRequest(self, image: str) -> None:
        """Nobody asks for a build any more."""
        self.images.remove_build_request(image)

    def getImagePaused(self, image: str) -> bool:
        """Are builds of an image paused?"""
        return self.images.paused(image)

    def setImagePaused(self, image: str, paused: bool) -> None:
        """Pause builds of an image, or go on with them."""
        self.images.set_paused(image, paused)

    # -- backup --

    def exportImageData(self) -> dict[str, str]:
        """Builds, uploads and pauses: path -> what is stored there."""
        return image_backup.export_images(self.client)

    def importImageData(self, import_data: Mapping[str, str]) -> None:
        """Write what `exportImageData` gave. Nobody else may write images meanwhile. Raises ZKException: bad data."""
        image_backup.import_images(self.client, import_data, replace=True)

    # -- locks --

    def imageBuildLock(
        self, image: str, blocking: bool = True, timeout: float | None = None
    ) -> AbstractContextManager[ZkLock]:
        """Only one builds an image at a time. Raises ZKLockException."""
        return self.images.build_lock(image, blocking=blocking, timeout=timeout)

    def imageBuildIdLock(
        self, image: str, build_id: str, blocking: bool = True, timeout: float | None = None
    ) -> AbstractContextManager[ZkLock]:
        """Only one deletes a build at a time. Raises ZKLockException, and ZKConflict: it is gone."""
        return self.images.build_id_lock(image, build_id, blocking=blocking, timeout=timeout)

    def imageUploadLock(
        self, image: str, build_id: str, provider: str, blocking: bool = True, timeout: float | None = None
    ) -> AbstractContextManager[ZkLock]:
        """Only one uploads a build to a provider at a time. Raises ZKLockException, and ZKConflict: it is gone."""
        return self.images.upload_lock(image, build_id, provider, blocking=blocking, timeout=timeout)

    def imageUploadNumberLock(
        self, image_upload: ImageUpload, blocking: bool = True, timeout: float | None = None
    ) -> AbstractContextManager[ZkLock]:
        """Only one deletes an upload at a time. Raises ZKLockException, and ZKConflict: it is gone."""
        names = (image_upload.image_name, image_upload.build_id, image_upload.provider_name, image_upload.key)
        return self.images.upload_id_lock(*names, blocking=blocking, timeout=timeout)
