# SPDX-License-Identifier: Apache-2.0
"""Commands that show images (reference/commands 2).

First ``nodepool image-list``, ``dib-image-list``, ``image-status`` and ``alien-image-list``, then ``image-log``, which
prints the log of a build on the host of its builder.
"""

from __future__ import annotations

import argparse
import codecs
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nodepool.builder.image_files import log_path, logs_of
from nodepool.clock import sleep, wall_time
from nodepool.cmd.app import CommandError, listed
from nodepool.cmd.session import connect, error_in_a_line, show, show_listing, started_provider
from nodepool.config.loader import load_config, load_images
from nodepool.listing.images import (
    alien_image_table,
    build_name,
    build_table,
    image_status_table,
    nodes_by_build,
    split_build_name,
    upload_table,
)
from nodepool.listing.table import Table, printable_log
from nodepool.model import states
from nodepool.model.image import ImagesView
from nodepool.zk.images import builder_status, read_images
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.framework.images import ListedImage

log = logging.getLogger("nodepool.cmd.image_lists")


def do_image_list(options: argparse.Namespace) -> int:
    """``nodepool image-list``"""

    def look(zk: ZooKeeper) -> Table:
        return upload_table(read_images(zk.client), wall_time(), builder_status(zk.client) if options.detail else None)

    return show_listing(options, look)


def do_dib_image_list(options: argparse.Namespace) -> int:
    """``nodepool dib-image-list``"""

    def look(zk: ZooKeeper) -> Table:
        images = read_images(zk.client)
        if not options.detail:
            return build_table(images, wall_time())
        nodes = nodes_by_build(zk.nodeIterator(cached=False))
        return build_table(images, wall_time(), builder_status(zk.client), nodes)

    return show_listing(options, look)


def do_image_status(options: argparse.Namespace) -> int:
    """``nodepool image-status``"""
    return show_listing(options, lambda zk: image_status_table(read_images(zk.client), wall_time()))


# ``nodepool alien-image-list``: images in clouds that ZooKeeper does not know (rule D-3).


def aliens(
    listed: Iterable[ListedImage], images: ImagesView, provider: str, others: Collection[str]
) -> Iterator[ListedImage]:
    """Those of a provider's images that were uploaded by a builder, and that ZooKeeper does not know.

    :param others: further providers, which list their images themselves although they may use the same cloud.
    """
    from nodepool.driver.statemachine.instance import BUILD_KEY, PROVIDER_KEY, UPLOAD_KEY

    # The two ways in which a cloud names an upload. Records that cannot be read have numbers, too.
    builds = [build for image in images.images.values() for build in image.builds.values()]
    numbers = {(build.id, upload.id) for build in builds for upload in build.uploads.get(provider, ())}
    ids = {str(upload.external_id) for build in builds for upload in build.all_uploads() if upload.external_id}
    for image in listed:
        build_id, upload_id = image.metadata.get(BUILD_KEY), image.metadata.get(UPLOAD_KEY)
        if not build_id or image.metadata.get(PROVIDER_KEY, provider) in others:
            continue
        if image.shown_id not in ids and (str(build_id), str(upload_id)) not in numbers:
            yield image


def do_alien_image_list(options: argparse.Namespace) -> int:
    """``nodepool alien-image-list``; blocks as long as the clouds do. Returns 1 if a cloud could not be asked.

    :raises CommandError: the provider is unknown or has no images.
    """
    from nodepool.driver import gateway

    config = load_config(options.config, options.secure)
    names = [name for name, provider in config.providers.items() if _has_images(provider)]
    if options.provider not in (None, *names):
        what = "has no images" if options.provider in config.providers else "is not in the configuration"
        there = f"providers with images: {', '.join(names)}" if names else "no provider has images"
        raise CommandError(f"provider {options.provider} {what}; {there}")
    rows: list[tuple[str, str, str]] = []
    failed = False
    with connect(config) as zk:
        for name in names if options.provider is None else [options.provider]:
            others = config.providers.keys() - {name}
            try:
                with (
                    started_provider(zk, config, name) as provider,
                    error_in_a_line(f"the images of provider {name} cannot be listed"),
                ):
                    in_cloud = list(gateway.list_images(provider))
            except CommandError as error:
                log.warning("%s", error)
                # A driver that never can is no failure, unless its provider is the only one that was asked for.
                failed |= options.provider is not None or not isinstance(error.__cause__, NotImplementedError)
                continue
            # Read after the list was made: an upload has a record before it is in the cloud.
            found = aliens(in_cloud, read_images(zk.client), name, others)
            rows += [(name, image.name, image.shown_id) for image in found]
    show(alien_image_table(rows), options)
    return 1 if failed else 0


def _has_images(provider: ProviderConfig) -> bool:
    from nodepool.driver.framework.sections import UnavailableProviderConfig

    if isinstance(provider, UnavailableProviderConfig):
        # It cannot be asked, and the command must say so: its images are not in the list.
        return bool(provider.provider.get("diskimages"))
    return provider.manage_images


# ``nodepool image-log``: the log of a build, on the host of its builder (reference/commands 2).

#: Between two looks at a log that grows, in seconds.
_LOOK_SECONDS: Final = 0.25
_CHUNK: Final = 1 << 16


def do_image_log(options: argparse.Namespace) -> int:
    """``nodepool image-log``"""
    config = load_images(options.config, options.secure)
    path = _find(config.build_log_dir, options.name)
    if path is None:
        with connect(config) as zk:
            where = _hosts(zk, options.name)
        raise CommandError(f"no log of {options.name} in {config.build_log_dir}; {where}")
    if not options.follow:
        _print(_chunks(path, lambda: False))
        return 0
    image, build_id = split_build_name(path.stem)
    with connect(config) as zk:

        def runs() -> bool:
            build = zk.images.build(image, build_id)
            return build is not None and build.state == states.BUILDING

        _print(_chunks(path, runs))
    return 0


def _find(directory: str, name: str) -> Path | None:
    """The log of a build, or the newest one of an image."""
    found = next(iter(logs_of(directory, name)), None)
    if found is not None:
        return found
    image, build_id = split_build_name(name)
    path = log_path(directory, image, build_id)
    return path if path in logs_of(directory, image) else None


def _hosts(zk: ZooKeeper, name: str) -> str:
    """Which builders have the builds that a name means, or what there is instead."""
    images = read_images(zk.client).images
    image = images.get(name) or images.get(split_build_name(name)[0])
    if image is None:
        return listed("images", images)
    builds = [build.record for build in image.builds.values() if build.record is not None]
    meant = [build for build in builds if name in (image.name, build_name(image.name, build.key))]
    if not meant:
        return listed(f"builds of {image.name}", (build_name(image.name, build.key) for build in builds))
    return listed("the builds were made on", sorted({build.builder or "an unknown host" for build in meant}))


def _chunks(path: Path, runs: Callable[[], bool]) -> Iterator[bytes]:
    """What is in a log, and what is added to it while its build runs.

    :param runs: asked when all has been read.
    :raises OSError: it cannot be read.
    """
    with path.open("rb") as file:
        while True:
            # Asked first: what was written before the build ended is read below.
            going = runs()
            while chunk := file.read(_CHUNK):
                yield chunk
            if not going:
                return
            sleep(_LOOK_SECONDS)


def _print(chunks: Iterator[bytes]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        text = decoder.decode(chunk)
        # Packages write what they like: no escape sequence of theirs may reach the terminal.
        print(printable_log(text) if sys.stdout.isatty() else text, end="", flush=True)
