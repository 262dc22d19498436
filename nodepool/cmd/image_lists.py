# SPDX-License-Identifier: Apache-2.0
"""``nodepool image-list``, ``dib-image-list``, ``image-status`` and ``alien-image-list`` (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from nodepool.clock import wall_time
from nodepool.cmd.format_option import add_format_option, show_listing
from nodepool.listing.images import build_table, image_status_table, nodes_by_build, upload_table

if TYPE_CHECKING:
    from nodepool.listing.table import Table
    from nodepool.zk.zookeeper import ZooKeeper


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

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
    from nodepool.cmd import alien_images

    return alien_images.list_images(options)
