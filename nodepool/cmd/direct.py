# SPDX-License-Identifier: Apache-2.0
"""Commands that ask clouds themselves: ``nodepool delete --now`` and ``nodepool alien-image-list``.

The first deletes nodes in the foreground, through their providers. The second lists images that ZooKeeper does not
know.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.cmd import node_changes
from nodepool.cmd.app import CommandError
from nodepool.cmd.format_option import show
from nodepool.cmd.image_wait import Item, progress
from nodepool.cmd.session import connect, operator, started_provider, told_in_a_line
from nodepool.listing.images import alien_image_table
from nodepool.model import states
from nodepool.model.event import short

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.framework.images import ListedImage
    from nodepool.model.image import ImagesView
    from nodepool.zk.zookeeper import ZooKeeper

#: Between two looks at a deletion, in seconds.
LOOK_SECONDS: Final = 0.5


def delete_nodes(options: argparse.Namespace) -> int:
    """``nodepool delete --now``; blocks until the nodes are gone. Returns 1 if one is not.

    :raises CommandError: the only node or its provider is unknown, or the deletion failed.
    """
    from nodepool.config.loader import load_config

    config = load_config(options.config, options.secure)
    with connect(config) as zk:
        failed = node_changes.each_node(options.ids, lambda node_id: _delete_node(zk, config, node_id))
        stuck = [node_id for node_id in dict.fromkeys(options.ids) if node_id not in failed and _is_left(zk, node_id)]
        node_changes.print_nodes(zk, options.ids, options)
        if stuck:
            what = f"Node {stuck[0]}" if len(stuck) == 1 else f"Nodes {', '.join(stuck)}"
            raise CommandError(f"{what} could not be deleted now; a launcher will try again")
    return 1 if failed else 0


def _delete_node(zk: ZooKeeper, config: Config, node_id: str) -> None:
    from nodepool.driver import gateway

    node = node_changes.find(zk, node_id)
    if node.provider is None or node.provider not in config.providers:
        raise CommandError(f"Provider {node.provider} for node {node_id} not defined on this launcher", answer=True)
    with progress(sys.stderr) as show_items:

        def say(text: str, state: str = "") -> None:
            show_items([Item(f"node {node.id}", None, text, state or text)])

        say(f"starting provider {node.provider}")
        with started_provider(zk, config, node.provider) as provider:
            say("waiting for its lock")
            with node_changes.locked(zk, node):
                node.delete(operator())
                zk.storeNode(node)
                task = gateway.start_node_cleanup(provider, node)
                # The deletion removes the node with its lock, or gives the lock back.
                begin = monotonic()
                while task.is_alive():
                    say(f"deleting for {short(monotonic() - begin)}", "deleting")
                    task.join(LOOK_SECONDS)
            say(f"stopping provider {node.provider}")


def _is_left(zk: ZooKeeper, node_id: str) -> bool:
    left = zk.getNode(node_id)
    return left is not None and left.state in (states.DELETING, states.DELETED)


# ``nodepool alien-image-list``: images in clouds that ZooKeeper does not know (rule D-3).

log = logging.getLogger("nodepool.cmd.direct")


class _CannotList(CommandError):
    """The driver of a provider does not say what images there are."""


class KnownUploads(NamedTuple):
    """Uploads that ZooKeeper knows, by the two ways in which a cloud names them.

    :param numbers: build id and upload id of those to one provider; of records that cannot be read, too.
    :param external_ids: of those to all providers, as texts.
    """

    numbers: set[tuple[str, str]]
    external_ids: set[str]


def known_uploads(images: ImagesView, provider: str) -> KnownUploads:
    """The uploads that an image of a provider may belong to."""
    builds = [build for image in images.images.values() for build in image.builds.values()]
    return KnownUploads(
        {(build.id, upload.id) for build in builds for upload in build.uploads.get(provider, ())},
        {str(upload.external_id) for build in builds for upload in build.all_uploads() if upload.external_id},
    )


def aliens(
    listed: Iterable[ListedImage], known: KnownUploads, provider: str, others: Collection[str]
) -> Iterator[ListedImage]:
    """Those of a provider's images that were uploaded by a builder, and that ZooKeeper does not know.

    :param others: further providers, which list their images themselves although they may use the same cloud.
    """
    from nodepool.driver.statemachine.instance import BUILD_KEY, PROVIDER_KEY, UPLOAD_KEY

    for image in listed:
        build_id, upload_id = image.metadata.get(BUILD_KEY), image.metadata.get(UPLOAD_KEY)
        if not build_id or image.metadata.get(PROVIDER_KEY, provider) in others:
            continue
        if image.shown_id not in known.external_ids and (str(build_id), str(upload_id)) not in known.numbers:
            yield image


def list_images(options: argparse.Namespace) -> int:
    """``nodepool alien-image-list``; blocks as long as the clouds do. Returns 1 if a cloud could not be asked.

    :raises CommandError: the provider is unknown or has no images.
    """
    from nodepool.config.loader import load_config
    from nodepool.zk.images import read_images

    config = load_config(options.config, options.secure)
    names = _providers(config, options.provider)
    rows: list[tuple[str, str, str]] = []
    failed = False
    with connect(config) as zk:
        for name in names:
            others = config.providers.keys() - {name}
            try:
                listed = _listed(zk, config, name)
            except CommandError as error:
                log.warning("%s", error)
                # What a driver never can is no news to a script.
                failed = failed or options.provider is not None or not isinstance(error, _CannotList)
                continue
            # Read after the list was made: an upload has a record before it is in the cloud.
            known = known_uploads(read_images(zk.client), name)
            rows += [(name, image.name, image.shown_id) for image in aliens(listed, known, name, others)]
    show(alien_image_table(rows), options)
    return 1 if failed else 0


def _providers(config: Config, wanted: str | None) -> list[str]:
    names = [name for name, provider in config.providers.items() if _has_images(provider)]
    if wanted is None:
        return names
    if wanted in names:
        return [wanted]
    what = "has no images" if wanted in config.providers else "is not in the configuration"
    there = f"providers with images: {', '.join(names)}" if names else "no provider has images"
    raise CommandError(f"provider {wanted} {what}; {there}")


def _has_images(provider: ProviderConfig) -> bool:
    from nodepool.driver.framework.sections import UnavailableProviderConfig

    if isinstance(provider, UnavailableProviderConfig):
        # It cannot be asked, and the command must say so: its images are not in the list.
        return bool(provider.provider.get("diskimages"))
    return provider.manage_images


def _listed(zk: ZooKeeper, config: Config, name: str) -> list[ListedImage]:
    """Images in the cloud of a provider. Raises CommandError."""
    from nodepool.driver import gateway

    with (
        started_provider(zk, config, name) as provider,
        told_in_a_line(f"the images of provider {name} cannot be listed"),
    ):
        try:
            return list(gateway.list_images(provider))
        except NotImplementedError:
            # How a driver of the released interface says that it cannot: the others are listed all the same.
            raise _CannotList(f"the driver of provider {name} cannot list images") from None
