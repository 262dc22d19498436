# SPDX-License-Identifier: Apache-2.0
"""Commands that change images; they print nothing when they succeed (reference/commands 2).

First ``nodepool image-build``, ``image-pause``, ``image-unpause``, ``image-delete`` and ``dib-image-delete``, then
``image-upload`` and ``image-rollback``, which 11.0.0 does not have, then how images that an operator names are found.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from nodepool.cmd.app import CommandError
from nodepool.cmd.session import connect, open_zookeeper, operator
from nodepool.exceptions import ZKConflict
from nodepool.listing.images import build_name, split_build_name
from nodepool.model import states
from nodepool.model.image import ImageBuild, ImageUpload

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.model.image import BuildView, ImagesView, ImageView, UploadView
    from nodepool.zk.locks import ZkLock
    from nodepool.zk.zookeeper import ZooKeeper

R = TypeVar("R", ImageBuild, ImageUpload)

log = logging.getLogger("nodepool.cmd.image_changes")

#: How long a command waits for the lock of a build or an upload, in seconds.
LOCK_SECONDS: Final = 5.0


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands that build, pause and delete.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "image-build", help="ask for a build of an image", epilog="example: nodepool image-build debian-12 --wait"
    )
    parser.add_argument("image", help="image name")
    parser.add_argument("--wait", action="store_true", help="show how far it is, and end with the build")
    parser.set_defaults(run=build_image)

    parser = add("image-pause", help="build an image no more", epilog="example: nodepool image-pause debian-12")
    parser.add_argument("image", help="image name")
    parser.set_defaults(run=lambda options: _set_paused(options, True))

    parser = add("image-unpause", help="build an image again", epilog="example: nodepool image-unpause debian-12")
    parser.add_argument("image", help="image name")
    parser.set_defaults(run=lambda options: _set_paused(options, False))

    parser = add(
        "image-delete",
        help="delete one upload of an image from its provider",
        epilog="example: nodepool image-delete --provider cloud-1 --image debian-12 --build-id ID --upload-id ID",
    )
    parser.add_argument("--provider", required=True, help="provider name")
    parser.add_argument("--image", required=True, help="image name")
    parser.add_argument("--upload-id", required=True, help="number of the upload")
    parser.add_argument("--build-id", required=True, help="id of the build")
    parser.set_defaults(run=delete_upload)

    parser = add(
        "dib-image-delete",
        help="delete a build, from disk and from all providers",
        epilog="example: nodepool dib-image-delete debian-12-0f3ac1d97f0f4d5f8b4d24a4f4c0d9a1",
    )
    parser.add_argument("id", help="<image>-<build id>, as dib-image-list shows it")
    parser.set_defaults(run=delete_build)


def build_image(options: argparse.Namespace) -> int:
    """``nodepool image-build``"""
    from nodepool.config.loader import load_images

    config = load_images(options.config, options.secure)
    _check_built(config, options.image)
    if not config.diskimages[options.image].image_types:
        _check_used(options)
    with connect(config) as zk:
        running = builders(zk)
        if options.wait:
            from nodepool.cmd import image_wait

            return image_wait.build(zk, options.image, running)
        zk.images.request_build(options.image)
        if not running:
            log.warning("No builder is running: the build of %s waits for one", options.image)
        if zk.images.paused(options.image):
            log.warning("Image %s is paused: its build waits for nodepool image-unpause %s", *[options.image] * 2)
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


def _check_used(options: argparse.Namespace) -> None:
    """Raises CommandError for an image without formats that no provider uses: builders would never build it."""
    from nodepool.config.loader import load_config
    from nodepool.driver.framework.sections import UnavailableProviderConfig

    config = load_config(options.config, options.secure)
    # What a driver that is not installed here needs is not known.
    known = not any(isinstance(provider, UnavailableProviderConfig) for provider in config.providers.values())
    if known and not config.diskimages[options.image].image_types:
        raise CommandError(f"Image {options.image} has no formats, and no provider uses it: there is nothing to build")


def builders(zk: ZooKeeper) -> list[str]:
    """Hosts of the builders that run now."""
    from nodepool.zk.components import read_hosts

    return read_hosts(zk.client, "builder")


def _set_paused(options: argparse.Namespace, paused: bool) -> int:
    """``nodepool image-pause`` and ``image-unpause``"""
    from nodepool.zk.images import read_images

    with open_zookeeper(options) as zk:
        known_image(read_images(zk.client), options.image)
        zk.images.set_paused(options.image, paused)
    return 0


def delete_build(options: argparse.Namespace) -> int:
    """``nodepool dib-image-delete``: the build becomes ``deleting``; builders do the rest (R-13)."""
    from nodepool.zk.images import read_images

    with open_zookeeper(options) as zk:
        image, build = known_build(read_images(zk.client), options.id)
        _mark(
            _Doomed(
                f"Build {options.id} not found",
                busy=(states.BUILDING, "Cannot delete a build in progress"),
                lock=zk.images.build_id_lock(image.name, build.id, blocking=True, timeout=LOCK_SECONDS),
                read=lambda: zk.images.build(image.name, build.id),
                store=zk.images.store_build,
            ),
            build.record,
        )
    return 0


def delete_upload(options: argparse.Namespace) -> int:
    """``nodepool image-delete``: the upload becomes ``deleting``; a builder does the rest (R-13)."""
    from nodepool.zk.images import read_images

    where = (options.image, options.build_id, options.provider, options.upload_id)
    with open_zookeeper(options) as zk:
        upload = known_upload(read_images(zk.client), *where)
        _mark(
            _Doomed(
                "Image upload not found",
                busy=(states.UPLOADING, "Cannot delete because image upload in progress"),
                lock=zk.images.upload_id_lock(*where, blocking=True, timeout=LOCK_SECONDS),
                read=lambda: zk.images.upload(*where),
                store=zk.images.store_upload,
            ),
            upload.record,
        )
    return 0


@dataclass(frozen=True)
class _Doomed(Generic[R]):
    """A record that is to become ``deleting``.

    :param gone: what is said when it does not exist any more.
    :param busy: the state in which it may not be deleted, and what is said then.
    :param lock: of the record. Raises ZKConflict: it does not exist any more.
    """

    gone: str
    busy: tuple[str, str]
    lock: contextlib.AbstractContextManager[ZkLock]
    read: Callable[[], R | None]
    store: Callable[[R, ZkLock], None]


def _mark(doomed: _Doomed[R], seen: R | None) -> None:
    """Make a record ``deleting``, under its lock.

    :param seen: the record as it was read; None = it cannot be read.
    :raises CommandError: it may not be deleted.
    """
    _refuse(doomed, seen)
    try:
        with doomed.lock as lock:
            record = doomed.read()
            if record is None:
                raise CommandError(doomed.gone, answer=True)
            _refuse(doomed, record)
            if record.state != states.DELETING:
                record.delete(operator())
                doomed.store(record, lock)
    except ZKConflict:
        raise CommandError(doomed.gone, answer=True) from None


def _refuse(doomed: _Doomed[R], record: R | None) -> None:
    state, text = doomed.busy
    if record is None:
        raise CommandError("The record cannot be read; builders remove it by themselves")
    if record.state == state:
        raise CommandError(text, answer=True)


# ``nodepool image-upload`` and ``image-rollback``: what released Nodepool does not have (reference/commands 2).


def add_upload_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``image-upload`` and ``image-rollback``.

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


# Images, builds and uploads that an operator names; for a mistake, what there is instead.

#: More names than these are not told.
_MANY: Final = 20


def known_image(images: ImagesView, name: str) -> ImageView:
    """An image in ZooKeeper. Raises CommandError."""
    if name not in images.images:
        raise CommandError(f"ZooKeeper knows no image {name}; {listed('images', images.images)}")
    return images.images[name]


def known_build(images: ImagesView, name: str) -> tuple[ImageView, BuildView]:
    """The build that a name like ``<image>-<build id>`` means. Raises CommandError."""
    image_name, build_id = split_build_name(name)
    image = images.images.get(image_name)
    build = None if image is None else image.builds.get(build_id)
    if image is not None and build is not None:
        return image, build
    raise CommandError(f"Build {name} not found", answer=True, hint=_build_hint(images, name))


def _build_hint(images: ImagesView, name: str) -> str:
    image_name, build_id = split_build_name(name)
    build_id = build_id or name
    owner = next((image.name for image in images.images.values() if build_id in image.builds), None)
    if owner is not None:
        return f"the build with this id is {build_name(owner, build_id)}"
    image = images.images.get(image_name) or images.images.get(name)
    if image is None:
        return listed("images", images.images)
    return listed(f"builds of {image.name}", (build_name(image.name, known) for known in image.builds))


def known_upload(images: ImagesView, image_name: str, build_id: str, provider: str, upload_id: str) -> UploadView:
    """An upload in ZooKeeper. Raises CommandError."""
    image = images.images.get(image_name)
    build = None if image is None else image.builds.get(build_id)
    found = () if build is None else build.uploads.get(provider, ())
    for upload in found:
        if upload.id == upload_id:
            return upload
    hint = _upload_hint(images, image_name, build_id, provider)
    raise CommandError("Image upload not found", answer=True, hint=hint)


def _upload_hint(images: ImagesView, image_name: str, build_id: str, provider: str) -> str:
    image = images.images.get(image_name)
    if image is None:
        return listed("images", images.images)
    build = image.builds.get(build_id)
    if build is None:
        owner = next((other.name for other in images.images.values() if build_id in other.builds), None)
        return f"build {build_id} is one of {owner}" if owner else listed(f"build ids of {image_name}", image.builds)
    uploads = build.uploads.get(provider, ())
    if not uploads:
        providers = [name for name, found in build.uploads.items() if found]
        return listed(f"providers with uploads of build {build_id}", providers)
    return listed(f"uploads of build {build_id} to {provider}", (upload.id for upload in uploads))


def listed(what: str, names: Iterable[str]) -> str:
    """What there is, in a line."""
    found = list(names)
    if not found:
        return f"{what}: none"
    more = f" and {len(found) - _MANY} more" if len(found) > _MANY else ""
    return f"{what}: {', '.join(found[:_MANY])}{more}"
