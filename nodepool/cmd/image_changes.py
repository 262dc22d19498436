# SPDX-License-Identifier: Apache-2.0
"""Commands that change images (reference/commands 2). Those of released Nodepool print nothing when they succeed.

First ``nodepool image-build``, ``image-pause``, ``image-unpause``, ``image-delete``, ``dib-image-delete``,
``image-upload`` and ``image-rollback``. Then the wait for a build or for uploads (``--wait``). Last how images that an
operator names are found, and what is suggested in place of a wrong name.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeVar

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError, listed
from nodepool.cmd.session import CONNECT_SECONDS, Item, connect, open_zookeeper, operator, progress
from nodepool.config.loader import load_config, load_images
from nodepool.exceptions import ZKConflict
from nodepool.listing.images import build_duration, build_name, split_build_name
from nodepool.model import states
from nodepool.model.event import short
from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageUpload, ImageView, UploadView
from nodepool.model.status import BuilderStatus
from nodepool.plan.images import BuildWait, NoRollback, choose_rollback
from nodepool.zk.caches import ImageCache
from nodepool.zk.components import read_hosts
from nodepool.zk.images import builder_status, read_images
from nodepool.zk.locks import ZkLock
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from nodepool.config.objects import Config

R = TypeVar("R", ImageBuild, ImageUpload)

log = logging.getLogger("nodepool.cmd.image_changes")

#: How long a command waits for the lock of a build or an upload, in seconds.
LOCK_SECONDS: Final = 5.0
#: Between two looks at what builders report, in seconds. That a record has changed is noticed at once.
_LOOK_SECONDS: Final = 1.0
#: Characters of a build's id that stand beside a bar.
_SHORT_ID: Final = 8


def do_image_build(options: argparse.Namespace) -> int:
    """``nodepool image-build``"""
    name = options.image
    config = load_images(options.config, options.secure)
    _check_built(config, name)
    if not config.diskimages[name].image_types:
        _check_used(options)
    with connect(config) as zk:
        # Before the request: the build may end soon.
        follower = _BuildFollower(zk, name) if options.wait else None
        zk.images.request_build(name)
        problems = []
        if not read_hosts(zk.client, "builder"):
            problems.append(f"No builder is running: the build of {name} waits for one")
        if zk.images.paused(name):
            problems.append(f"Image {name} is paused: its build waits for nodepool image-unpause {name}")
        if follower is None:
            for problem in problems:
                log.warning("%s", problem)
            return 0
        if problems:
            raise CommandError(problems[0])
        return follower.run()


def _check_built(config: Config, name: str) -> None:
    """Raises CommandError for an image that no builder with this configuration would build."""
    image = config.diskimages.get(name)
    if image is None or image.abstract:
        built = sorted(name for name, image in config.diskimages.items() if not image.abstract)
        raise CommandError(
            f"Trying to build a non disk-image-builder image: {name}; {listed('images in the configuration', built)}"
        )
    if image.pause:
        raise CommandError(f"Skipping build request for image {name}; paused in the configuration")


def _check_used(options: argparse.Namespace) -> None:
    """Raises CommandError for an image without formats that no provider uses: builders would never build it."""
    from nodepool.driver.framework.sections import UnavailableProviderConfig

    config = load_config(options.config, options.secure)
    # What a driver that is not installed here needs is not known.
    known = not any(isinstance(provider, UnavailableProviderConfig) for provider in config.providers.values())
    if known and not config.diskimages[options.image].image_types:
        raise CommandError(f"Image {options.image} has no formats, and no provider uses it: there is nothing to build")


def do_image_pause(options: argparse.Namespace) -> int:
    """``nodepool image-pause`` and ``image-unpause``"""
    with open_zookeeper(options) as zk:
        known_image(read_images(zk.client), options.image)
        zk.images.set_paused(options.image, options.paused)
    return 0


do_image_unpause = do_image_pause


def do_dib_image_delete(options: argparse.Namespace) -> int:
    """``nodepool dib-image-delete``: the build becomes ``deleting``; builders do the rest (R-13)."""
    with open_zookeeper(options) as zk:
        image, build = known_build(read_images(zk.client), options.id)
        _mark(
            build.record,
            zk.images.build_id_lock(image.name, build.id, blocking=True, timeout=LOCK_SECONDS),
            lambda: zk.images.build(image.name, build.id),
            zk.images.store_build,
            busy=(states.BUILDING, "Cannot delete a build in progress"),
            missing=f"Build {options.id} not found",
        )
    return 0


def do_image_delete(options: argparse.Namespace) -> int:
    """``nodepool image-delete``: the upload becomes ``deleting``; a builder does the rest (R-13)."""
    where = (options.image, options.build_id, options.provider, options.upload_id)
    with open_zookeeper(options) as zk:
        upload = known_upload(read_images(zk.client), *where)
        _mark(
            upload.record,
            zk.images.upload_id_lock(*where, blocking=True, timeout=LOCK_SECONDS),
            lambda: zk.images.upload(*where),
            zk.images.store_upload,
            busy=(states.UPLOADING, "Cannot delete because image upload in progress"),
            missing="Image upload not found",
        )
    return 0


def _mark(
    seen: R | None,
    lock: AbstractContextManager[ZkLock],
    read: Callable[[], R | None],
    store: Callable[[R, ZkLock], None],
    *,
    busy: tuple[str, str],
    missing: str,
) -> None:
    """Make a record ``deleting``, under its lock.

    :param seen: the record as it was read; None = it cannot be read.
    :param lock: of the record. Raises ZKConflict: it does not exist any more.
    :param busy: the state in which it may not be deleted, and the error then. ``missing``: the error without a record.
    :raises CommandError: it may not be deleted.
    """

    def refuse_busy(record: R) -> None:
        if record.state == busy[0]:
            raise CommandError(busy[1], answer=True)

    if seen is None:
        raise CommandError("The record cannot be read; builders remove it by themselves")
    refuse_busy(seen)
    try:
        with lock as held:
            record = read()
            if record is None:
                raise CommandError(missing, answer=True)
            refuse_busy(record)
            if record.state != states.DELETING:
                record.delete(operator())
                store(record, held)
    except ZKConflict:
        raise CommandError(missing, answer=True) from None


def do_image_rollback(options: argparse.Namespace) -> int:
    """``nodepool image-rollback`` (R-18)"""
    with open_zookeeper(options) as zk:
        image = known_image(read_images(zk.client), options.image)
        choice = choose_rollback(image, options.provider)
        if isinstance(choice, NoRollback):
            providers = sorted({provider for build in image.builds.values() for provider in build.uploads})
            counts = {provider: len(image.ready_uploads(provider)) for provider in providers}
            ready = [f"{provider} ({count})" for provider, count in counts.items() if count]
            raise CommandError(f"{choice.reason}; {listed('providers with ready uploads', ready)}")
        try:
            zk.images.roll_back(choice.to.copy(), choice.current.copy())
        except ZKConflict:
            raise CommandError(
                f"the uploads of {image.name} to {options.provider} changed meanwhile; try again"
            ) from None
    print(
        f"{options.provider} uses upload {choice.to.id} of build {image.name}-{choice.to.build_id} again, "
        f"no more upload {choice.current.id} of build {image.name}-{choice.current.build_id}"
    )
    return 0


# Waiting for a build.


class _BuildFollower:
    """Waits for the end of the next build of an image.

    :raises CommandError: ZooKeeper does not answer.
    """

    def __init__(self, zk: ZooKeeper, image: str) -> None:
        self._zk = zk
        self._name = image
        self._changed = threading.Event()
        self._cache = ImageCache(zk.client)
        self._cache.add_listener(lambda _: self._changed.set())
        if not self._cache.wait_ready(CONNECT_SECONDS):
            raise CommandError("the images could not be read from ZooKeeper in time")
        self._wait = BuildWait(self._image())

    def _image(self) -> ImageView:
        return self._cache.snapshot().image(self._name)

    def run(self) -> int:
        """Show progress until the end; returns 0. Raises CommandError: the build has failed."""
        with progress(sys.stdout) as show:
            while (found := self._wait.look(image := self._image())) is None:
                status = builder_status(self._zk.client)
                items = [_build_item(build, self._name, status) for build in self._wait.running(image)]
                show(items or [Item(self._name, None, "", "waiting for a builder")])
                self._changed.wait(_LOOK_SECONDS)
                self._changed.clear()
        if not found.good:
            raise CommandError(found.text)
        print(found.text)
        return 0


def _build_item(build: BuildView, image: str, status: BuilderStatus) -> Item:
    reported = status.build(image, build.id)
    seconds = None if build.record is None else build_duration(build.record, wall_time())
    took = "" if seconds is None else short(seconds)
    percent = None
    if seconds is not None and reported.estimate:
        # The last build took as long; this one is done when it is done.
        percent = min(99.0, 100.0 * seconds / reported.estimate)
        took = f"{took} of about {short(reported.estimate)}"
    step = reported.step or "building"
    name = build_name(image, build.id)
    return Item(name, percent, f"{step} {took}".strip(), step, build_name(image, build.id[:_SHORT_ID]))


# Images, builds and uploads that an operator names; for a mistake, what there is instead.


def known_image(images: ImagesView, name: str) -> ImageView:
    """An image in ZooKeeper. Raises CommandError."""
    if name not in images.images:
        raise CommandError(f"ZooKeeper knows no image {name}; {listed('images', images.images)}")
    return images.images[name]


def known_build(images: ImagesView, name: str) -> tuple[ImageView, BuildView]:
    """The build that a name like ``<image>-<build id>`` means. Raises CommandError."""
    image_name, build_id = split_build_name(name)
    image = images.images.get(image_name)
    if image is not None and build_id in image.builds:
        return image, image.builds[build_id]
    build_id = build_id or name
    image = image or images.images.get(name)
    if owner := _owner(images, build_id):
        hint = f"the build with this id is {build_name(owner, build_id)}"
    elif image is None:
        hint = listed("images", images.images)
    else:
        hint = listed(f"builds of {image.name}", (build_name(image.name, known) for known in image.builds))
    raise CommandError(f"Build {name} not found", answer=True, hint=hint)


def _owner(images: ImagesView, build_id: str) -> str | None:
    """The image that has a build."""
    return next((image.name for image in images.images.values() if build_id in image.builds), None)


def known_upload(images: ImagesView, image_name: str, build_id: str, provider: str, upload_id: str) -> UploadView:
    """An upload in ZooKeeper. Raises CommandError."""
    image = images.images.get(image_name)
    build = None if image is None else image.builds.get(build_id)
    uploads = {} if build is None else {upload.id: upload for upload in build.uploads.get(provider, ())}
    if upload_id in uploads:
        return uploads[upload_id]
    if image is None:
        hint = listed("images", images.images)
    elif build is None:
        owner = _owner(images, build_id)
        hint = f"build {build_id} is one of {owner}" if owner else listed(f"build ids of {image_name}", image.builds)
    elif uploads:
        hint = listed(f"uploads of build {build_id} to {provider}", uploads)
    else:
        hint = listed(
            f"providers with uploads of build {build_id}", (name for name, found in build.uploads.items() if found)
        )
    raise CommandError("Image upload not found", answer=True, hint=hint)
