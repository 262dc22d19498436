# SPDX-License-Identifier: Apache-2.0
"""``nodepool info`` and ``erase``: what ZooKeeper knows of one provider (reference/commands 2).

And ``installation``: what bears the id of another installation in the clouds of all providers (D-10).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from nodepool.cmd.app import CommandError, warn
from nodepool.cmd.session import connect, error_in_a_line, open_zookeeper, started_provider
from nodepool.config.loader import load_config
from nodepool.exceptions import ConfigError, NotFound, ZKConflict
from nodepool.listing import terminal
from nodepool.listing.pools import provider_image_table, provider_node_table
from nodepool.listing.table import Table, printable, render
from nodepool.model.config_keys import did_you_mean
from nodepool.model.node import Node
from nodepool.zk import components
from nodepool.zk.images import read_images
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from nodepool.driver.interface import Provider


def _image_rows(zk: ZooKeeper, provider: str) -> Iterator[tuple[str, str, list[str]]]:
    """Image, id of the build and ids of its uploads, of every build that has or had uploads in a provider."""
    for image in read_images(zk.client).images.values():
        for build in sorted(image.builds.values(), key=lambda build: build.id):
            if provider in build.uploads:
                yield image.name, build.id, sorted(upload.id for upload in build.uploads[provider])


def _nodes(zk: ZooKeeper, provider: str) -> list[Node]:
    return [node for node in zk.nodeIterator(cached=False) if node.provider == provider]


def do_info(options: argparse.Namespace) -> int:
    """``nodepool info``"""
    with open_zookeeper(options) as zk:
        images = provider_image_table(_image_rows(zk, options.provider))
        nodes = provider_node_table(_nodes(zk, options.provider))
        if not images.rows and not nodes.rows:
            _refuse_unknown(zk, options)
    _print_info(options.provider, images, nodes, options.format)
    return 0


def _print_info(provider: str, images: Table, nodes: Table, form: str) -> None:
    if form == "json":
        print(f'{{"images": {render(images, "json")},\n"nodes": {render(nodes, "json")}}}')
    elif form in ("csv", "name"):
        print(f"{render(images, form)}\n\n{render(nodes, form)}")
    else:
        print(f"ZooKeeper data for provider {provider}\n")
        for title, table in (("Image data:", images), ("\nNodes:", nodes)):
            print(title)
            terminal.show(table, terminal.Display(form))
            if not table.rows:
                terminal.hint("There is none.")


def do_erase(options: argparse.Namespace) -> int:
    """``nodepool erase``; returns 1 if a node could not be given back."""
    from nodepool.driver.metastatic import provider as metastatic_provider

    provider = options.provider
    with open_zookeeper(options) as zk:
        records = (_nodes(zk, provider), _image_rows(zk, provider), metastatic_provider.backing_nodes(zk, provider))
        if not any(True for _ in itertools.chain(*records)):
            _refuse_unknown(zk, options)
        if not _confirmed(options, f"Erase ZooKeeper data for provider {provider}?", "No data erased."):
            return 0
        print(f"Erasing build data for {provider}...")
        for image in zk.images.image_names():
            for build_id in zk.images.build_ids(image):
                zk.images.erase_provider(image, build_id, provider)
        print(f"Erasing node data for {provider}...")
        for node in _nodes(zk, provider):
            zk.deleteRawNode(node.key)
        status = 0
        # Nodes of other providers that a metastatic one keeps locked for ever.
        for node, contender in metastatic_provider.backing_nodes(zk, provider):
            print(f"Giving back node {node.id} of provider {node.provider}, on which nodes of {provider} were...")
            try:
                metastatic_provider.release(zk, node, contender)
            except ZKConflict as conflict:
                print(f"Node {node.id} was changed meanwhile ({conflict}); try again")
                status = 1
    return status


def _refuse_unknown(zk: ZooKeeper, options: argparse.Namespace) -> None:
    """Raises CommandError: neither a launcher, nor a record, nor the configuration knows the provider."""
    known = {pool.provider_name for pool in zk.getRegisteredPools() if pool.provider_name}
    known |= {node.provider for node in zk.nodeIterator(cached=False) if node.provider}
    # One that cannot be read names none; another command says what is wrong with it.
    with contextlib.suppress(ConfigError):
        known |= set(load_config(options.config, options.secure).providers)
    if options.provider in known:
        return
    there_are = f"there are: {', '.join(sorted(known))}" if known else "there are none"
    raise CommandError(f"there is no provider {options.provider}{did_you_mean(options.provider, known)} ({there_are})")


def _confirmed(options: argparse.Namespace, question: str, aborted: str) -> bool:
    """Ask, unless ``--force`` is given. :param aborted: what is printed after another answer than yes."""
    if options.force:
        return True
    print("\nWARNING! This action is not reversible!")
    try:
        if input(f"{question} [N/y] ").strip().lower() == "y":
            return True
    except EOFError:
        print()
    print(f"Aborting. {aborted}")
    return False


def do_installation(options: argparse.Namespace) -> int:
    """``nodepool installation``; 1 if not all could be listed or deleted. Blocks as long as the clouds do.

    :raises CommandError: it is no id, nothing has it, or it is one of this installation.
    """
    if options.action is None:
        return _show_installation(options)
    if not components.is_installation_id(options.id):
        given = f"{options.id} is no id" if options.id else f"installation {options.action} needs the id"
        raise CommandError(f"{given} of an installation, which has {components.ID_DIGITS} digits, 0 to 9 and a to f")
    return _adopt(options) if options.action == "adopt" else _delete_things(options)


def _show_installation(options: argparse.Namespace) -> int:
    with open_zookeeper(options) as zk:
        ids = zk.installation_ids()
    if not ids:
        raise CommandError("this installation has no id yet: the first launcher or builder makes it")
    print("\n".join((ids[0], *(f"{adopted} (adopted)" for adopted in ids[1:]))))
    return 0


def _refuse_ours(zk: ZooKeeper, wanted: str) -> None:
    if wanted in zk.installation_ids():
        raise CommandError(f"{wanted} is an id of this installation: launchers clean up what has it")


def _adopt(options: argparse.Namespace) -> int:
    with open_zookeeper(options) as zk:
        _refuse_ours(zk, options.id)
        print(f"Launchers will delete what has the id {options.id}, if ZooKeeper has no node for it.")
        print("Make sure that no other Nodepool uses this id.")
        if not _confirmed(options, f"Adopt {options.id}?", "Nothing adopted."):
            return 0
        components.adopt(zk.client, (options.id,))
    print(f"Adopted {options.id}. Launchers clean up in their next sweeps, in about a minute.")
    return 0


class _Thing(NamedTuple):
    """Something in a cloud that has the id of an installation."""

    provider: str
    kind: str
    id: str
    metadata: Mapping[str, str]
    delete: Callable[[], None]

    def __str__(self) -> str:
        return printable(f"{self.kind} {self.id} of provider {self.provider}")


def _things(provider: Provider, *, images: bool) -> Iterator[_Thing]:
    """All that has the id of any installation; some images twice. What is deleted first comes first. Blocks."""
    from nodepool.driver import gateway
    from nodepool.driver.statemachine import StateMachineProvider
    from nodepool.driver.statemachine.instance import INSTALLATION_KEY

    if not isinstance(provider, StateMachineProvider):
        return
    name, adapter = provider.name, provider.adapter
    for resource in gateway.list_resources(name, adapter):
        if INSTALLATION_KEY in resource.metadata:
            its_id = str(getattr(resource, "id", None) or getattr(resource, "name", None) or resource.metadata)
            delete = functools.partial(gateway.delete_resource, name, adapter, resource)
            yield _Thing(name, resource.type, its_id, resource.metadata, delete)
    for image in gateway.list_images(provider) if images else ():
        if INSTALLATION_KEY in image.metadata:
            delete = functools.partial(gateway.delete_image, provider, image.name, image.id)
            yield _Thing(name, "image", image.shown_id, image.metadata, delete)


def _delete_things(options: argparse.Namespace) -> int:
    from nodepool.driver.statemachine.instance import BUILD_KEY, INSTALLATION_KEY, PROVIDER_KEY, look_for

    config = load_config(options.config, options.secure)
    look_for(options.id)
    failed = False
    by_installation: dict[str, dict[object, _Thing]] = {}
    with connect(config) as zk, contextlib.ExitStack() as running:
        _refuse_ours(zk, options.id)
        for name, section in config.providers.items():
            try:
                provider = running.enter_context(started_provider(zk, config, name))
                with error_in_a_line(f"the cloud of provider {name} cannot be listed"):
                    for thing in _things(provider, images=section.manage_images):
                        found = by_installation.setdefault(str(thing.metadata[INSTALLATION_KEY]), {})
                        # Several providers may show the same cloud, and lists of resources the images.
                        kind = "image" if BUILD_KEY in thing.metadata else thing.kind
                        found.setdefault((kind, thing.id, thing.metadata.get(PROVIDER_KEY)), thing)
            except CommandError as error:
                warn(str(error))
                failed = True
        things = by_installation.pop(options.id, {}).values()
        if not things:
            others = sorted(by_installation.keys() - set(zk.installation_ids()))
            there_are = f" (other ids there: {', '.join(others)})" if others else ""
            raise CommandError(f"nothing in the clouds of the configuration has the id {options.id}{there_are}")
        print(f"These have the id {options.id}:", *things, sep="\n  ")
        print("Make sure that no other Nodepool uses this id.")
        if not _confirmed(options, f"Delete {len(things)} thing(s) in the clouds?", "Nothing deleted."):
            return 0
        for thing in things:
            print(f"Deleting {thing}...", flush=True)
            try:
                with error_in_a_line(f"{thing} cannot be deleted"), contextlib.suppress(NotFound):
                    thing.delete()
            except CommandError as error:
                warn(str(error))
                failed = True
    return 1 if failed else 0
