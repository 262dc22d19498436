# SPDX-License-Identifier: Apache-2.0
"""What can happen to builders and images in a simulated world, besides what happens to any daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nodepool.model import states
from nodepool.zk import caches
from tests.model.image_layout import FORMATS, IMAGES, ImageLayout
from tests.model.moves import Moves

if TYPE_CHECKING:
    from tests.model.image_world import ImageWorld
    from tests.support.image_znodes import Build, Upload


class ImageMoves(Moves):
    """Each ``do_`` method is a move; ``number`` says which builder, image, cloud, ..."""

    _world: ImageWorld

    # -- operators; what they write is one write of a client of its own --

    def do_request(self, number: int) -> None:
        """``image-build``"""
        image = IMAGES[number % len(IMAGES)]
        for path in (caches.image(image), caches.build_request(image)):
            self._world.hand.create(path)

    def do_unwanted_build(self, number: int) -> None:
        """``dib-image-delete``"""
        build = self._pick(self._builds(), number)
        if build is not None:
            self._mark(build)

    def do_unwanted_upload(self, number: int) -> None:
        """``image-delete``"""
        upload = self._pick(self._uploads(), number)
        if upload is not None:
            self._mark(upload)

    def do_image_removed(self, number: int) -> None:
        """Another configuration; the builders find it one after the other."""
        self._world.images = ImageLayout().changed(number)
        self._world.removed |= set(IMAGES)

    def do_image_back(self, _: int) -> None:
        self._world.images = ImageLayout()

    # -- hands --

    def do_build_corrupted(self, number: int) -> None:
        build = self._pick(self._builds(), number)
        if build is not None:
            self._world.hand.set(build.path, b'{"state": "rea')

    def do_upload_corrupted(self, number: int) -> None:
        upload = self._pick(self._uploads(), number)
        if upload is not None:
            self._world.hand.set(upload.path, b'{"state": "rea')

    def do_files_deleted(self, number: int) -> None:
        """All files of one build on one disk."""
        disk = self._world.disks[number % len(self._world.disks)] / "images"
        builds = sorted({path.name.partition(".")[0] for path in disk.iterdir() if "-" in path.name})
        victim = self._pick(builds, number // 2)
        for path in disk.iterdir():
            if victim is not None and path.name.startswith(victim):
                path.unlink()

    # -- builds and clouds --

    def do_failed_build(self, _: int) -> None:
        self._world.failing_builds += 1

    def _cloud(self, number: int, **knobs: object) -> None:
        self._world.cloud_of(list(FORMATS)[number % len(FORMATS)]).set(**knobs)

    def do_refused_upload(self, number: int) -> None:
        self._cloud(number, refused_images=1)

    def do_lost_upload(self, number: int) -> None:
        """The image is made; the answer does not arrive."""
        self._cloud(number, lost_images=1)

    def do_broken_upload(self, number: int) -> None:
        self._cloud(number, broken_uploads=1)

    def do_corrupted_upload(self, number: int) -> None:
        self._cloud(number, corrupted_uploads=1)

    def do_truncated_upload(self, number: int) -> None:
        self._cloud(number, truncated_uploads=1)

    def do_refused_deletion(self, number: int) -> None:
        self._cloud(number, refused_deletions=1)

    def do_image_service_down(self, number: int) -> None:
        self._cloud(number, images_down=number % 4 < 2)

    # -- whom --

    def _builds(self) -> list[Build]:
        return [build for image in self._world.stored().values() for build in image.builds if build.record]

    def _uploads(self) -> list[Upload]:
        return [upload for build in self._builds() for upload in build.uploads if upload.record]

    @staticmethod
    def _pick(things: list[Any], number: int) -> Any:
        return things[number % len(things)] if things else None

    def _mark(self, what: Build | Upload) -> None:
        """As the commands do it, under the lock of what is marked: not while somebody works on it."""
        if what.state in (states.READY, states.FAILED):
            record = {**(what.record or {}), "state": states.DELETING, "state_time": self._world.now}
            self._world.hand.set(what.path, json.dumps(record).encode())
