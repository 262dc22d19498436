# SPDX-License-Identifier: Apache-2.0
"""Commands that show images (reference/commands 2).

First ``nodepool image-list``, ``dib-image-list``, ``image-status`` and ``alien-image-list``, then ``image-log``, which
prints the log of a build on the host of its builder.
"""

from __future__ import annotations

import argparse
import codecs
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nodepool.clock import sleep, wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.format_option import add_format_option, show_listing
from nodepool.cmd.image_changes import listed
from nodepool.cmd.session import connect
from nodepool.listing.images import (
    build_name,
    build_table,
    image_status_table,
    nodes_by_build,
    split_build_name,
    upload_table,
)
from nodepool.listing.table import printable_log

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.listing.table import Table
    from nodepool.model.image import ImagesView
    from nodepool.zk.zookeeper import ZooKeeper


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the listings.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "image-list", help="list the uploads of images to providers", epilog="example: nodepool image-list --detail"
    )
    parser.add_argument("--detail", action="store_true", help="show what each upload is used for, and how far it is")
    parser.set_defaults(run=_listing(_uploads))
    add_format_option(parser, watch=True)

    parser = add("dib-image-list", help="list the builds of images", epilog="example: nodepool dib-image-list --detail")
    parser.add_argument(
        "--detail", action="store_true", help="show how far each build is, how long it took, and which nodes use it"
    )
    parser.set_defaults(run=_listing(_builds))
    add_format_option(parser, watch=True)

    parser = add(
        "image-status",
        help="list pauses of images, and builds that were asked for",
        epilog="example: nodepool image-status",
    )
    parser.set_defaults(run=_listing(_status))
    add_format_option(parser, watch=True)

    parser = add(
        "alien-image-list",
        help="list images in clouds that ZooKeeper does not know",
        epilog="example: nodepool alien-image-list cloud-1",
    )
    parser.add_argument("provider", metavar="PROVIDER", nargs="?", help="provider name (default: all)")
    parser.set_defaults(run=list_alien_images)
    add_format_option(parser)


def _listing(make: Callable[[ZooKeeper, argparse.Namespace], Table]) -> Callable[[argparse.Namespace], int]:
    """A command that prints a table of what ZooKeeper has."""

    def run(options: argparse.Namespace) -> int:
        return show_listing(options, lambda zk: make(zk, options))

    return run


def _uploads(zk: ZooKeeper, options: argparse.Namespace) -> Table:
    """``nodepool image-list``"""
    from nodepool.zk.images import builder_status, read_images

    images = read_images(zk.client)
    return upload_table(images, wall_time(), builder_status(zk.client) if options.detail else None)


def _builds(zk: ZooKeeper, options: argparse.Namespace) -> Table:
    """``nodepool dib-image-list``"""
    from nodepool.zk.images import builder_status, read_images

    images = read_images(zk.client)
    if not options.detail:
        return build_table(images, wall_time())
    nodes = nodes_by_build(zk.nodeIterator(cached=False))
    return build_table(images, wall_time(), builder_status(zk.client), nodes)


def _status(zk: ZooKeeper, options: argparse.Namespace) -> Table:
    """``nodepool image-status``"""
    from nodepool.zk.images import read_images

    return image_status_table(read_images(zk.client), wall_time())


def list_alien_images(options: argparse.Namespace) -> int:
    """``nodepool alien-image-list``"""
    from nodepool.cmd import direct

    return direct.list_images(options)


# ``nodepool image-log``: the log of a build, on the host of its builder (reference/commands 2).

#: Between two looks at a log that grows, in seconds.
_LOOK_SECONDS: Final = 0.25
_CHUNK: Final = 1 << 16


def add_log_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``image-log``.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "image-log",
        help="print the log of a build, on the host of its builder",
        epilog="example: nodepool image-log debian-12 --follow",
    )
    parser.add_argument("name", metavar="NAME", help="image name, for its newest build, or <image>-<build id>")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the build has ended")
    parser.set_defaults(run=print_log)


def print_log(options: argparse.Namespace) -> int:
    """``nodepool image-log``"""
    from nodepool.config.loader import load_images

    config = load_images(options.config, options.secure)
    path = _find(config.build_log_dir, options.name) or _missing(config, options.name)
    if not options.follow:
        _print(_chunks(path, lambda: False))
        return 0
    image, build_id = split_build_name(path.stem)
    with connect(config) as zk:
        from nodepool.model.states import BUILDING

        def runs() -> bool:
            build = zk.images.build(image, build_id)
            return build is not None and build.state == BUILDING

        _print(_chunks(path, runs))
    return 0


def _find(directory: str, name: str) -> Path | None:
    """The log of a build, or the newest one of an image."""
    from nodepool.builder.image_files import log_path, logs_of

    found = next(iter(logs_of(directory, name)), None)
    if found is not None:
        return found
    image, build_id = split_build_name(name)
    path = log_path(directory, image, build_id)
    return path if path in logs_of(directory, image) else None


def _missing(config: Config, name: str) -> Path:
    """:raises CommandError: says where the log is."""
    from nodepool.zk.images import read_images

    with connect(config) as zk:
        where = _hosts(read_images(zk.client), name)
    raise CommandError(f"no log of {name} in {config.build_log_dir}; {where}")


def _hosts(images: ImagesView, name: str) -> str:
    """Which builders have the builds that a name means, or what there is instead."""
    image = images.images.get(name) or images.images.get(split_build_name(name)[0])
    if image is None:
        return listed("images", images.images)
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
