# SPDX-License-Identifier: Apache-2.0
"""``nodepool info`` and ``erase``: what ZooKeeper knows of one provider (reference/commands 2)."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nodepool.cmd.app import CommandError
from nodepool.cmd.format_option import add_format_option
from nodepool.cmd.session import open_zookeeper
from nodepool.exceptions import ConfigError, ZKConflict
from nodepool.listing import terminal
from nodepool.listing.providers import provider_image_table, provider_node_table
from nodepool.listing.table import Table, render

if TYPE_CHECKING:
    from nodepool.zk.zookeeper import ZooKeeper


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "info",
        help="show what ZooKeeper knows of a provider",
        description="Shows the images and the nodes of a provider that ZooKeeper has records of.",
        epilog="examples: nodepool info cloud-1; nodepool providers cloud-1",
    )
    parser.add_argument("provider", metavar="PROVIDER", help="provider name")
    parser.set_defaults(run=show_info)
    add_format_option(parser, columns=False)

    parser = add(
        "erase",
        help="remove a provider's images and nodes from ZooKeeper; the cloud is not touched",
        epilog="example: nodepool erase cloud-1",
    )
    parser.add_argument("provider", metavar="PROVIDER", help="provider name")
    parser.add_argument("--force", action="store_true", help="do not ask")
    parser.set_defaults(run=erase)


def _image_rows(zk: ZooKeeper, provider: str) -> Iterator[tuple[str, str, list[str]]]:
    """Image, id of the build and ids of its uploads, of every build that has or had uploads in a provider."""
    from nodepool.zk.image_listing import read_images

    for image in read_images(zk.client).images.values():
        for build in sorted(image.builds.values(), key=lambda build: build.id):
            if provider in build.uploads:
                yield image.name, build.id, sorted(upload.id for upload in build.uploads[provider])


def show_info(options: argparse.Namespace) -> int:
    """``nodepool info``"""
    with open_zookeeper(options) as zk:
        images = provider_image_table(_image_rows(zk, options.provider))
        nodes = provider_node_table(n for n in zk.nodeIterator(cached=False) if n.provider == options.provider)
        if not images.rows and not nodes.rows:
            _refuse_unknown(zk, options)
    _print_info(options.provider, images, nodes, options.format)
    return 0


def _print_info(provider: str, images: Table, nodes: Table, form: str) -> None:
    if form == "json":
        print(f'{{"images": {render(images, "json")},\n"nodes": {render(nodes, "json")}}}')
    elif form == "yaml":
        print(f"images:\n{render(images, 'yaml')}\nnodes:\n{render(nodes, 'yaml')}")
    elif form in ("csv", "name"):
        print(f"{render(images, form)}\n\n{render(nodes, form)}")
    else:
        print(f"ZooKeeper data for provider {provider}\n")
        print("Image data:")
        terminal.show(images, terminal.Display(form))
        print("\nNodes:")
        terminal.show(nodes, terminal.Display(form))


def erase(options: argparse.Namespace) -> int:
    """``nodepool erase``"""
    provider = options.provider
    with open_zookeeper(options) as zk:
        if not _has_records(zk, provider):
            _refuse_unknown(zk, options)
        if not options.force and not _confirmed(provider):
            print("Aborting. No data erased.")
            return 0
        print(f"Erasing build data for {provider}...")
        for image in zk.images.image_names():
            for build_id in zk.images.build_ids(image):
                zk.images.erase_provider(image, build_id, provider)
        print(f"Erasing node data for {provider}...")
        for node in zk.nodeIterator(cached=False):
            if node.provider == provider:
                zk.deleteRawNode(node.key)
        return _release_backing_nodes(zk, provider)


def _has_records(zk: ZooKeeper, provider: str) -> bool:
    """Is there anything in ZooKeeper that belongs to a provider?"""
    from nodepool.driver.metastatic import release

    return (
        any(node.provider == provider for node in zk.nodeIterator(cached=False))
        or any(True for _ in _image_rows(zk, provider))
        or any(True for _ in release.backing_nodes(zk, provider))
    )


def _refuse_unknown(zk: ZooKeeper, options: argparse.Namespace) -> None:
    """Raises CommandError: neither a launcher, nor a record, nor the configuration knows the provider."""
    from nodepool.config.loader import load_config
    from nodepool.model.near_words import did_you_mean

    known = {pool.provider_name for pool in zk.getRegisteredPools() if pool.provider_name}
    known |= {node.provider for node in zk.nodeIterator(cached=False) if node.provider}
    # One that cannot be read knows nobody; what is wrong with it is another command's news.
    with contextlib.suppress(ConfigError):
        known |= set(load_config(options.config, options.secure).providers)
    if options.provider in known:
        return
    there_are = f" (there are: {', '.join(sorted(known))})" if known else " (there are none)"
    raise CommandError(f"there is no provider {options.provider}{did_you_mean(options.provider, known)}{there_are}")


def _release_backing_nodes(zk: ZooKeeper, provider: str) -> int:
    """Nodes of other providers that a metastatic one keeps locked for ever; returns the exit status."""
    from nodepool.driver.metastatic import release

    status = 0
    for node, contender in release.backing_nodes(zk, provider):
        print(f"Giving back node {node.id} of provider {node.provider}, on which nodes of {provider} were...")
        try:
            release.release(zk, node, contender)
        except ZKConflict as conflict:
            print(f"Node {node.id} was changed meanwhile ({conflict}); try again")
            status = 1
    return status


def _confirmed(provider: str) -> bool:
    print("\nWARNING! This action is not reversible!")
    try:
        answer = input(f"Erase ZooKeeper data for provider {provider}? [N/y] ")
    except EOFError:
        print()
        return False
    return answer.strip().lower() == "y"
