# SPDX-License-Identifier: Apache-2.0
"""``nodepool image-upload`` and ``image-rollback``: what released Nodepool does not have (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from nodepool.cmd.app import CommandError
from nodepool.cmd.image_names import known_image, listed
from nodepool.cmd.session import connect, open_zookeeper
from nodepool.exceptions import ZKConflict

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.model.image import ImageView


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "image-upload",
        help="show how far the uploads of an image's newest build are",
        epilog="example: nodepool image-upload debian-12 --wait",
    )
    parser.add_argument("image", help="image name")
    parser.add_argument(
        "--provider", action="append", metavar="PROVIDER", help="only of this provider; may be given more than once"
    )
    parser.add_argument("--wait", action="store_true", help="end when all providers have it")
    parser.set_defaults(run=show_uploads)

    parser = add(
        "image-rollback",
        help="let a provider use the upload before the present one again",
        epilog="example: nodepool image-rollback cloud-1 debian-12",
    )
    parser.add_argument("provider", metavar="PROVIDER", help="provider name")
    parser.add_argument("image", metavar="IMAGE", help="image name")
    parser.set_defaults(run=roll_back)


def show_uploads(options: argparse.Namespace) -> int:
    """``nodepool image-upload``. Builders upload by themselves, and begin again what failed: nothing is asked for."""
    from nodepool.cmd import image_wait
    from nodepool.cmd.image_changes import builders
    from nodepool.config.loader import load_config

    config = load_config(options.config, options.secure)
    providers = _providers(config, options.image, options.provider)
    with connect(config) as zk:
        if options.wait:
            return image_wait.uploads(zk, options.image, providers, builders(zk))
        image_wait.show_uploads(zk, options.image, providers)
    return 0


def _providers(config: Config, image: str, chosen: list[str] | None) -> list[str]:
    """Providers to which the image is uploaded, of those chosen. Raises CommandError for a mistake."""
    from nodepool.config.sections import wanted_images

    wanted = wanted_images(config)
    users = wanted.users(image)
    if not users:
        known = sorted({name for images in wanted.providers.values() for name in images})
        raise CommandError(f"no provider uses an image {image}; {listed('images of providers', known)}")
    for provider in chosen or ():
        if provider not in users:
            raise CommandError(f"provider {provider} does not use image {image}; {listed('providers', users)}")
        if users[provider].paused:
            raise CommandError(f"uploads of {image} to {provider} are paused in the configuration")
    found = [name for name, use in users.items() if not use.paused and name in (chosen or users)]
    if not found:
        raise CommandError(f"uploads of {image} are paused in the configuration of every provider that uses it")
    return found


def roll_back(options: argparse.Namespace) -> int:
    """``nodepool image-rollback`` (R-18)"""
    from nodepool.plan.images import NoRollback, choose_rollback
    from nodepool.zk.images import read_images

    with open_zookeeper(options) as zk:
        image = known_image(read_images(zk.client), options.image)
        choice = choose_rollback(image, options.provider)
        if isinstance(choice, NoRollback):
            raise CommandError(f"{choice.reason}; {listed('providers with ready uploads', _ready_counts(image))}")
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


def _ready_counts(image: ImageView) -> list[str]:
    """Each provider with the number of its ready uploads, e.g. ``cloud (2)``."""
    providers = sorted({provider for build in image.builds.values() for provider in build.uploads})
    counts = {provider: len(image.ready_uploads(provider)) for provider in providers}
    return [f"{provider} ({count})" for provider, count in counts.items() if count]
