# SPDX-License-Identifier: Apache-2.0
"""Reads of image builds, uploads, pauses and requests (reference/zookeeper 6)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from nodepool import log_names
from nodepool.clock import wall_time
from nodepool.model import states
from nodepool.model.image import ImageBuild, ImageBuildRequest, ImageUpload
from nodepool.model.record import InvalidRecord
from nodepool.zk import codec, image_paths, multi_read, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.image_tree import read_record
from nodepool.zk.transactions import translated


class ImageReader:
    """Every method blocks for round trips, some of them. Raises ZKConnectionError without a connection.

    :param clock: gives seconds since the epoch.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient, clock: Callable[[], float] = wall_time) -> None:
        self._client = client
        self._clock = clock
        #: Path -> why it is no record, as it was logged: it may stay for long.
        self._told: dict[str, str] = {}

    def image_names(self) -> list[str]:
        """Names of images that were built, asked for or paused."""
        return self._children(image_paths.IMAGES)

    # -- builds --

    def build_ids(self, image: str) -> list[str]:
        """Ids of all builds, readable or not."""
        return self._children(image_paths.builds(image))

    def builds(self, image: str) -> list[ImageBuild]:
        """All builds of an image; bad records are logged and skipped."""
        found = self._records(image_paths.build(image, build_id) for build_id in self.build_ids(image))
        return [record for record in found if isinstance(record, ImageBuild)]

    def build(self, image: str, build_id: str) -> ImageBuild | None:
        """One build; None = there is none, or a bad record (logged)."""
        found = next(self._records([image_paths.build(image, build_id)]), None)
        return found if isinstance(found, ImageBuild) else None

    # -- uploads --

    def upload_providers(self, image: str, build_id: str) -> list[str]:
        """Providers for which a build has or had uploads."""
        return self._children(image_paths.providers(image, build_id))

    def upload_ids_of(self, image: str, build_id: str, provider: str) -> list[str]:
        """Ids of the uploads of one build to one provider, readable or not."""
        return self._children(image_paths.uploads(image, build_id, provider))

    def upload_ids(self, provider: str) -> set[tuple[str, str]]:
        """Build id and upload id of all uploads to a provider, readable or not."""
        return {
            (build_id, upload_id)
            for image in self.image_names()
            for build_id in self.build_ids(image)
            for upload_id in self.upload_ids_of(image, build_id, provider)
        }

    def uploads(self, image: str, build_id: str, provider: str) -> list[ImageUpload]:
        """Uploads of one build to one provider; bad records are logged and skipped."""
        ids = self.upload_ids_of(image, build_id, provider)
        found = self._records(image_paths.upload(image, build_id, provider, upload_id) for upload_id in ids)
        return [record for record in found if isinstance(record, ImageUpload)]

    def upload(self, image: str, build_id: str, provider: str, upload_id: str) -> ImageUpload | None:
        """One upload; None = there is none, or a bad record (logged)."""
        found = next(self._records([image_paths.upload(image, build_id, provider, upload_id)]), None)
        return found if isinstance(found, ImageUpload) else None

    def upload_has_data(self, image: str, build_id: str, provider: str, upload_id: str) -> bool:
        """Is an upload there, with data, readable or not? Without, it was removed while its lock was being taken."""
        stat = self._stat(image_paths.upload(image, build_id, provider, upload_id))
        return stat is not None and stat.dataLength > 0

    def most_recent_upload(self, image: str, provider: str) -> ImageUpload | None:
        """The ready upload with the greatest state time, over all builds (reference/zookeeper 6.2)."""
        ready = [
            upload
            for build_id in self.build_ids(image)
            for upload in self.uploads(image, build_id, provider)
            if upload.state == states.READY
        ]
        return max(ready, key=lambda upload: upload.state_time or 0, default=None)

    # -- requests and pauses --

    def paused(self, image: str) -> bool:
        """Are builds of an image paused in ZooKeeper?"""
        return self._stat(image_paths.pause(image)) is not None

    def build_request(self, image: str) -> ImageBuildRequest | None:
        """Who asked for a build, and is it still to be begun (6.3)? None = nobody asked."""
        stat = self._stat(image_paths.build_request(image))
        if stat is None:
            return None
        locked = bool(multi_read.children(self._client, image_paths.build_lock(image)))
        served = locked and any(build.state == states.BUILDING for build in self.builds(image))
        return ImageBuildRequest(image, not served, stat.ctime / 1000)

    # -- znodes --

    def _children(self, path: str) -> list[str]:
        return [name for name in multi_read.children(self._client, path) if name != paths.LOCK]

    def _stat(self, path: str) -> Any:
        """Kazoo's; None = there is no such znode."""
        kazoo = self._client.kazoo
        with translated():
            return kazoo.retry(kazoo.exists, path)

    def _records(self, wanted: Iterator[str] | list[str]) -> Iterator[ImageBuild | ImageUpload]:
        """The readable ones of these, many read in a packet."""
        names = list(wanted)
        for path, found in zip(names, multi_read.read_data(self._client, names), strict=True):
            told = self._told.pop(path, None)
            if found is None:
                continue
            try:
                yield read_record(path, *found)
            except codec.EmptyRecord:
                self.log.debug("Ignoring %s: it has no data", path)
            except InvalidRecord as problem:
                self._told[path] = str(problem)
                if told != str(problem):
                    self.log.error("Ignoring %s: %s", path, problem)
