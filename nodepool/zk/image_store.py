# SPDX-License-Identifier: Apache-2.0
"""Image builds and uploads in ZooKeeper, as far as the launcher and the command line need them."""

from __future__ import annotations

import logging

from kazoo.exceptions import KazooException, NoNodeError

from nodepool import log_names
from nodepool.model import states
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.model.record import InvalidRecord
from nodepool.zk import codec, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.multi_read import children
from nodepool.zk.transactions import translate


class ImageStore:
    """Reads block for one round trip each. Raises ZKConnectionError without a connection."""

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    def image_names(self) -> list[str]:
        return self._children(paths.IMAGES)

    def builds(self, image: str) -> list[ImageBuild]:
        """All builds of an image; bad records are logged and skipped."""
        root = f"{paths.IMAGES}/{image}/builds"
        found = []
        for build_id in self._children(root):
            data = self._get(f"{root}/{build_id}")
            if data is None:
                continue
            try:
                found.append(ImageBuild.from_dict(codec.decode(data), image, build_id))
            except InvalidRecord as problem:
                self.log.error("Ignoring %s/%s: %s", root, build_id, problem)
        return found

    def build_ids(self, image: str) -> list[str]:
        """Ids of all builds, readable or not."""
        return self._children(f"{paths.IMAGES}/{image}/builds")

    def upload_providers(self, image: str, build_id: str) -> list[str]:
        """Providers for which a build has or had uploads."""
        return self._children(f"{paths.IMAGES}/{image}/builds/{build_id}/providers")

    def uploads(self, image: str, build_id: str, provider: str) -> list[ImageUpload]:
        """Uploads of one build to one provider; bad records are logged and skipped."""
        root = f"{paths.IMAGES}/{image}/builds/{build_id}/providers/{provider}/images"
        found = []
        for upload_id in self._children(root):
            data = self._get(f"{root}/{upload_id}")
            if data is None:
                continue
            try:
                found.append(ImageUpload.from_dict(codec.decode(data), image, build_id, provider, upload_id))
            except InvalidRecord as problem:
                self.log.error("Ignoring %s/%s: %s", root, upload_id, problem)
        return found

    def upload_ids(self, provider: str) -> set[tuple[str, str]]:
        """Build id and upload id of all uploads to a provider, readable or not."""
        return {
            (build_id, upload_id)
            for image in self.image_names()
            for build_id in self.build_ids(image)
            for upload_id in self.upload_ids_of(image, build_id, provider)
        }

    def upload_ids_of(self, image: str, build_id: str, provider: str) -> list[str]:
        """Ids of the uploads of one build to one provider, readable or not."""
        return self._children(f"{paths.IMAGES}/{image}/builds/{build_id}/providers/{provider}/images")

    def most_recent_upload(self, image: str, provider: str) -> ImageUpload | None:
        """The ready upload with the greatest state time, over all builds (reference/zookeeper 6.2)."""
        ready = [
            upload
            for build_id in self.build_ids(image)
            for upload in self.uploads(image, build_id, provider)
            if upload.state == states.READY
        ]
        return max(ready, key=lambda upload: upload.state_time or 0, default=None)

    def erase_provider(self, image: str, build_id: str, provider: str) -> None:
        """Remove the records of a provider's uploads of one build; the cloud is not touched."""
        path = f"{paths.IMAGES}/{image}/builds/{build_id}/providers/{provider}"
        try:
            self._client.kazoo.retry(self._client.kazoo.delete, path, recursive=True)
        except NoNodeError:
            return
        except KazooException as error:
            raise translate(error) from None

    def _children(self, path: str) -> list[str]:
        return [name for name in children(self._client, path) if name != paths.LOCK]

    def _get(self, path: str) -> bytes | None:
        try:
            data: bytes = self._client.kazoo.retry(self._client.kazoo.get, path)[0]
        except NoNodeError:
            return None
        except KazooException as error:
            raise translate(error) from None
        return data
