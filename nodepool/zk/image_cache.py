# SPDX-License-Identifier: Apache-2.0
"""`ImageCache`: the records of images in ZooKeeper, kept up to date by one recursive watch.

Everything is changed in the connection thread, where events and answers arrive. Readers get views, which never change.

The view of an image is renewed when nothing of the image is being read, so that no view shows a lock that is free
beside the record that its holder has just overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodepool.model.image_view import NO_IMAGES, ImagesView
from nodepool.zk import image_paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.image_tree import ImageTree
from nodepool.zk.subtree_cache import SubtreeCache

#: Called with the name of an image that changed, "" = any may have; in the connection thread, must not block.
Listener = Callable[[str], None]


class ImageCache(SubtreeCache[[str]]):
    """Follows all images. Made before or after the client is connected; does not block."""

    def __init__(self, client: ZooKeeperClient) -> None:
        super().__init__(client, image_paths.IMAGES, "Error in a listener of images")
        self._tree = ImageTree()
        self._view = NO_IMAGES
        self._changed: set[str] = set()
        #: Was everything read once, so that there is a view, be it old?
        self.complete = False
        self.start()

    def snapshot(self) -> ImagesView:
        """All images as they were last known; does not block, any thread. Empty before everything was read once."""
        return self._view

    # -- connection thread --

    def _has_data(self, path: str) -> bool:
        return image_paths.kind(image_paths.parts(path)).has_data

    def _has_children(self, path: str) -> bool:
        return image_paths.kind(image_paths.parts(path)).has_children

    def _part_of(self, path: str) -> str:
        """Name of the image."""
        return "".join(image_paths.parts(path)[:1])

    def _forget_questions(self) -> None:
        self._changed.clear()
        super()._forget_questions()

    def _on_there(self, path: str) -> None:
        self._tree.add(path)

    def _on_gone(self, path: str) -> None:
        self._tree.remove(path)

    def _on_children(self, path: str, names: list[str]) -> None:
        self._tree.set_children(path, names)

    def _on_data(self, path: str, data: bytes, stat: Any) -> None:
        self._tree.load(path, data, stat)

    def _on_change(self, path: str) -> None:
        self._changed.update(image_paths.parts(path)[:1] or self._tree.image_names() or list(self._view.images))

    def _on_settled(self) -> None:
        """Renew the views of changed images of which nothing is being read."""
        for image in [image for image in self._changed if not self._is_open(image)]:
            self._changed.discard(image)
            self._view = self._view.with_image(image, self._tree.view(image))
            self._notify(image)

    def _on_complete(self) -> None:
        views = {name: view for name in self._tree.image_names() if (view := self._tree.view(name)) is not None}
        self._view = ImagesView(views)
        self.complete = True
        self.ready.set()
        self._notify("")
