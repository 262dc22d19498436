# SPDX-License-Identifier: Apache-2.0
"""``nodepool image-build``, ``image-pause``, ``image-unpause``, ``image-delete`` and ``dib-image-delete``.

They print nothing when they succeed (reference/commands 2).
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.cmd.app import CommandError
from nodepool.cmd.image_names import known_build, known_image, known_upload, listed
from nodepool.cmd.session import connect, open_zookeeper
from nodepool.exceptions import ZKConflict
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.zk.zookeeper import ZooKeeper

log = logging.getLogger("nodepool.cmd.image_changes")

#: How long a command waits for the lock of a build or an upload, in seconds.
LOCK_SECONDS: Final = 5.0


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add("image-build", help="ask for a build of an image")
    parser.add_argument("image", help="image name")
    parser.add_argument("--wait", action="store_true", help="show how far it is, and end with the build")
    parser.set_defaults(run=build_image)

    parser = add("image-pause", help="build an image no more")
    parser.add_argument("image", help="image name")
    parser.set_defaults(run=lambda options: _set_paused(options, True))

    parser = add("image-unpause", help="build an image again")
    parser.add_argument("image", help="image name")
    parser.set_defaults(run=lambda options: _set_paused(options, False))

    parser = add("image-delete", help="delete one upload of an image from its provider")
    parser.add_argument("--provider", required=True, help="provider name")
    parser.add_argument("--image", required=True, help="image name")
    parser.add_argument("--upload-id", required=True, help="number of the upload")
    parser.add_argument("--build-id", required=True, help="id of the build")
    parser.set_defaults(run=delete_upload)

    parser = add("dib-image-delete", help="delete a build, from disk and from all providers")
    parser.add_argument("id", help="<image>-<build id>, as dib-image-list shows it")
    parser.set_defaults(run=delete_build)


def build_image(options: argparse.Namespace) -> int:
    """``nodepool image-build``"""
    from nodepool.config.loader import load_images

    config = load_images(options.config, options.secure)
    _check_built(config, options.image)
    with connect(config) as zk:
        running = builders(zk)
        if options.wait:
            from nodepool.cmd import image_wait

            return image_wait.build(zk, options.image, running)
        zk.images.request_build(options.image)
        if not running:
            log.warning("No builder is running: the build of %s waits for one", options.image)
    return 0


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


def builders(zk: ZooKeeper) -> list[str]:
    """Hosts of the builders that run now."""
    from nodepool.zk.components import read_hosts

    return read_hosts(zk.client, "builder")


def _set_paused(options: argparse.Namespace, paused: bool) -> int:
    """``nodepool image-pause`` and ``image-unpause``"""
    from nodepool.zk.image_listing import read_images

    with open_zookeeper(options) as zk:
        known_image(read_images(zk.client), options.image)
        zk.images.set_paused(options.image, paused)
    return 0


def delete_build(options: argparse.Namespace) -> int:
    """``nodepool dib-image-delete``: the build becomes ``deleting``; builders do the rest (R-13)."""
    from nodepool.zk.image_listing import read_images

    gone = CommandError(f"Build {options.id} not found", answer=True)
    with open_zookeeper(options) as zk:
        image, view = known_build(read_images(zk.client), options.id)
        _refuse_running_build(view.state)
        try:
            with zk.images.build_id_lock(image.name, view.id, blocking=True, timeout=LOCK_SECONDS) as lock:
                build = zk.images.build(image.name, view.id)
                if build is None:
                    raise gone
                _refuse_running_build(build.state)
                if build.state != states.DELETING:
                    build.state = states.DELETING
                    zk.images.store_build(build, lock)
        except ZKConflict:
            raise gone from None
    return 0


def _refuse_running_build(state: str | None) -> None:
    if state == states.BUILDING:
        raise CommandError("Cannot delete a build in progress", answer=True)


def delete_upload(options: argparse.Namespace) -> int:
    """``nodepool image-delete``: the upload becomes ``deleting``; a builder does the rest (R-13)."""
    from nodepool.zk.image_listing import read_images

    gone = CommandError("Image upload not found", answer=True)
    where = (options.image, options.build_id, options.provider, options.upload_id)
    with open_zookeeper(options) as zk:
        view = known_upload(read_images(zk.client), *where)
        _refuse_running_upload(None if view.record is None else view.record.state)
        try:
            with zk.images.upload_id_lock(*where, blocking=True, timeout=LOCK_SECONDS) as lock:
                upload = zk.images.upload(*where)
                if upload is None:
                    raise gone
                _refuse_running_upload(upload.state)
                if upload.state != states.DELETING:
                    upload.state = states.DELETING
                    zk.images.store_upload(upload, lock)
        except ZKConflict:
            raise gone from None
    return 0


def _refuse_running_upload(state: str | None) -> None:
    if state == states.UPLOADING:
        raise CommandError("Cannot delete because image upload in progress", answer=True)
