# SPDX-License-Identifier: Apache-2.0
"""Commands about images (reference/commands 2).

First those that show: ``nodepool images``, ``image-list``, ``dib-image-list``, ``image-status``, ``alien-image-list``
and ``image-log``. Then those that change: ``image-build`` and ``image-import`` with the wait for them, ``image-pause``,
``image-unpause``, ``image-delete``, ``dib-image-delete``, ``image-promote`` and ``image-rollback``, and how images that
an operator names are found. Those of released Nodepool print nothing for programs when they succeed, and a line for
people. Last the backup of what ZooKeeper knows of images.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nodepool.clock import sleep, wall_time
from nodepool.cmd import app, session
from nodepool.cmd.app import CommandError, listed, warn
from nodepool.cmd.session import Item, connect, open_zookeeper, show_listing
from nodepool.config.loader import load_config, load_images
from nodepool.exceptions import ZKConflict
from nodepool.listing import images as tables
from nodepool.listing import terminal
from nodepool.listing.images import build_name, split_build_name
from nodepool.listing.nodes import full_id
from nodepool.listing.table import Table, printable_log
from nodepool.model import states
from nodepool.model.event import counted, short
from nodepool.model.image import BuildView, ImageBuild, ImageSource, ImagesView, ImageUpload, ImageView, UploadView
from nodepool.model.record import InvalidRecord
from nodepool.model.status import BuilderStatus
from nodepool.zk.components import read_hosts
from nodepool.zk.images import read_images
from nodepool.zk.status import builder_status
from nodepool.zk.transactions import ZkLock
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.framework.uploads import ListedImage

R = TypeVar("R", ImageBuild, ImageUpload)

#: What a person reads below an empty listing.
_NO_IMAGE: Final = "ZooKeeper knows no image: a builder with diskimages in its configuration has not run yet."


def do_images(options: argparse.Namespace) -> int:
    """``nodepool images``"""
    return show_listing(options, lambda zk: tables.image_table(read_images(zk.client), wall_time()), _NO_IMAGE)


def do_image_list(options: argparse.Namespace) -> int:
    """``nodepool image-list``"""

    def look(zk: ZooKeeper) -> Table:
        return tables.upload_table(
            read_images(zk.client), wall_time(), builder_status(zk.client) if options.detail else None
        )

    return show_listing(options, look, "There is no upload: builders make them of ready builds.")


def do_dib_image_list(options: argparse.Namespace) -> int:
    """``nodepool dib-image-list``"""

    def look(zk: ZooKeeper) -> Table:
        images = read_images(zk.client)
        if not options.detail:
            return tables.build_table(images, wall_time())
        nodes = tables.nodes_by_build(zk.nodeIterator(cached=False))
        return tables.build_table(images, wall_time(), builder_status(zk.client), nodes)

    return show_listing(options, look, "There is no build: builders make them of the diskimages that they have.")


def do_image_status(options: argparse.Namespace) -> int:
    """``nodepool image-status``"""
    return show_listing(options, lambda zk: tables.image_status_table(read_images(zk.client), wall_time()), _NO_IMAGE)


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
                    session.started_provider(zk, config, name) as provider,
                    session.error_in_a_line(f"the images of provider {name} cannot be listed"),
                ):
                    in_cloud = list(gateway.list_images(provider))
            except CommandError as error:
                warn(str(error))
                # A driver that never can is no failure, unless its provider is the only one that was asked for.
                failed |= options.provider is not None or not isinstance(error.__cause__, NotImplementedError)
                continue
            # Read after the list was made: an upload has a record before it is in the cloud.
            found = aliens(in_cloud, read_images(zk.client), name, others)
            rows += [(name, image.name, image.shown_id) for image in found]
    empty = "" if failed else "There is no image in a cloud that ZooKeeper does not know."
    session.show(tables.alien_image_table(rows), options, empty)
    return 1 if failed else 0


def _has_images(provider: ProviderConfig) -> bool:
    from nodepool.driver.framework.sections import UnavailableProviderConfig

    if isinstance(provider, UnavailableProviderConfig):
        # It cannot be asked, and the command must say so: its images are not in the list.
        return bool(provider.provider.get("diskimages"))
    return provider.manage_images


# ``nodepool image-log``: the log of a build, on the host of its builder (reference/commands 2).

#: Between two looks at a log that grows, in seconds.
_LOG_LOOK_SECONDS: Final = 0.25
_CHUNK: Final = 1 << 16


def do_image_log(options: argparse.Namespace) -> int:
    """``nodepool image-log``"""
    config = load_images(options.config, options.secure)
    path = _find_log(config.build_log_dir, options.name)
    if path is None:
        with connect(config) as zk:
            where = _hosts(zk, options.name)
        raise CommandError(f"no log of {options.name} in {config.build_log_dir}; {where}")
    if not options.follow:
        _print_log(_chunks(path, lambda: False))
        return 0
    image, build_id = split_build_name(path.stem)
    with connect(config) as zk:

        def runs() -> bool:
            build = zk.images.build(image, build_id)
            return build is not None and build.state == states.BUILDING

        _print_log(_chunks(path, runs))
    return 0


def _find_log(directory: str, name: str) -> Path | None:
    """The log of a build, or the newest one of an image."""
    # With drivers, which a list of images does without.
    from nodepool.builder.image_files import log_path, logs_of

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
            sleep(_LOG_LOOK_SECONDS)


def _print_log(chunks: Iterator[bytes]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        text = decoder.decode(chunk)
        # Packages write what they like: no escape sequence of theirs may reach the terminal.
        print(printable_log(text) if sys.stdout.isatty() else text, end="", flush=True)


# Commands that change images.

#: How long a command waits for the lock of a build or an upload, in seconds.
LOCK_SECONDS: Final = 5.0
#: Between two looks at what builders report, in seconds. That a record has changed is noticed at once.
_LOOK_SECONDS: Final = 1.0
#: Characters of a build's id that stand beside a bar.
_SHORT_ID: Final = 8


def do_image_import(options: argparse.Namespace) -> int:
    """``nodepool image-import``"""
    try:
        source = ImageSource.of_request(vars(options))
    except InvalidRecord as problem:
        raise CommandError(str(problem)) from None
    return do_image_build(options, source)


def do_image_build(options: argparse.Namespace, source: ImageSource | None = None) -> int:
    """``nodepool image-build``

    :param source: import this in place of a build.
    """
    name, what = options.image, "build" if source is None else "import"
    config = load_images(options.config, options.secure)
    _check_built(config, name, imported=source is not None)
    if not config.diskimages[name].image_types:
        _check_used(options)
    with connect(config) as zk:
        # Before the request: the build may end soon.
        follower = _BuildFollower(zk, name, source) if options.wait else None
        zk.images.request_build(name, source)
        problems = []
        if not read_hosts(zk.client, "builder"):
            problems.append(f"No builder is running: the {what} of {name} waits for one")
        if zk.images.paused(name):
            problems.append(f"Image {name} is paused: its {what} waits for nodepool image-unpause {name}")
        if follower is None:
            for problem in problems:
                warn(problem)
            terminal.hint(
                f"{what.capitalize()} of {name} is asked for; nodepool dib-image-list --detail shows how far it is."
            )
            return 0
        if problems:
            raise CommandError(problems[0])
        return follower.run()


def _check_built(config: Config, name: str, *, imported: bool) -> None:
    """Raises CommandError for an image that no builder with this configuration would build, or import."""
    image = config.diskimages.get(name)
    if image is None or image.abstract:
        built = sorted(name for name, image in config.diskimages.items() if not image.abstract)
        raise CommandError(
            f"Trying to build a non disk-image-builder image: {name}; {listed('images in the configuration', built)}"
        )
    if image.pause and not imported:
        raise CommandError(f"Skipping build request for image {name}; paused in the configuration")


def _check_used(options: argparse.Namespace) -> None:
    """Raises CommandError for an image without formats that no provider uses: builders would never build it."""
    from nodepool.driver.framework.sections import UnavailableProviderConfig

    config = load_config(options.config, options.secure)
    # What a driver that is not installed here needs is not known.
    known = not any(isinstance(provider, UnavailableProviderConfig) for provider in config.providers.values())
    if known and not config.diskimages[options.image].image_types:
        raise CommandError(f"Image {options.image} has no formats, and no provider uses it: there is nothing to build")


def do_image_pause(options: argparse.Namespace, *, paused: bool = True) -> int:
    """``nodepool image-pause``"""
    with open_zookeeper(options) as zk:
        already = known_image(read_images(zk.client), options.image).paused == paused
        zk.images.set_paused(options.image, paused)
    state = f"is {'paused' if paused else 'not paused'}"
    does = "it is not built any more, until" if paused else "it is built when it is due, or at once with"
    back = f"nodepool image-{'unpause' if paused else 'build'} {options.image}"
    terminal.hint(f"Image {options.image} {state}{', as it was' * already}: {does}: {back}")
    return 0


def do_image_unpause(options: argparse.Namespace) -> int:
    """``nodepool image-unpause``"""
    return do_image_pause(options, paused=False)


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
    terminal.hint(
        f"Builders delete build {build_name(image.name, build.id)}: its files, and its uploads to all providers."
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
    terminal.hint(f"A builder deletes upload {options.upload_id} of {options.image} from {options.provider}.")
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
                record.delete(session.operator())
                store(record, held)
    except ZKConflict:
        raise CommandError(missing, answer=True) from None


def do_image_promote(options: argparse.Namespace) -> int:
    """``nodepool image-promote`` (CA-8)"""
    with open_zookeeper(options) as zk:
        image = known_image(read_images(zk.client), options.image)
        candidate = image.candidate(options.provider)
        if candidate is None:
            there = {one.provider_name for one in image.candidates()}
            text = f"image {image.name} has no candidate in {options.provider}"
            raise CommandError(f"{text}; {listed('providers with one', there)}")
        return _end_candidacy(zk, image, candidate, promoted=True)


def _end_candidacy(zk: ZooKeeper, image: ImageView, candidate: ImageUpload, *, promoted: bool) -> int:
    verdict = f"{'promoted' if promoted else 'rolled back'} by {session.operator()}"
    current = image.current_upload(candidate.provider_name)
    try:
        zk.images.end_candidacy(candidate.copy(), verdict, current, promoted=promoted)
    except ZKConflict:
        raise CommandError(f"the candidate of {candidate.image_name} changed meanwhile; try again") from None
    does = "uses" if promoted else "does not try any more"
    build = build_name(candidate.image_name, candidate.build_id)
    print(f"{candidate.provider_name} {does} upload {candidate.id} of build {build}")
    return 0


def do_image_rollback(options: argparse.Namespace) -> int:
    """``nodepool image-rollback`` (R-18, CA-8)"""
    from nodepool.plan.images import choose_rollback

    with open_zookeeper(options) as zk:
        image = known_image(read_images(zk.client), options.image)
        if (candidate := image.candidate(options.provider)) is not None:
            return _end_candidacy(zk, image, candidate, promoted=False)
        choice = choose_rollback(image, options.provider)
        if isinstance(choice, str):
            providers = sorted({provider for build in image.builds.values() for provider in build.uploads})
            counts = {provider: len(image.ready_uploads(provider)) for provider in providers}
            ready = [f"{provider} ({count})" for provider, count in counts.items() if count]
            raise CommandError(f"{choice}; {listed('providers with ready uploads', ready)}")
        to, current = choice
        try:
            zk.images.roll_back(to.copy(), current.copy())
        except ZKConflict:
            raise CommandError(
                f"the uploads of {image.name} to {options.provider} changed meanwhile; try again"
            ) from None
    print(
        f"{options.provider} uses upload {to.id} of build {image.name}-{to.build_id} again, "
        f"no more upload {current.id} of build {image.name}-{current.build_id}"
    )
    return 0


# Waiting for a build.


class _BuildFollower:
    """Waits for the end of the next build of an image.

    :param source: it is to be an import of it.
    :raises CommandError: ZooKeeper does not answer.
    """

    def __init__(self, zk: ZooKeeper, image: str, source: ImageSource | None) -> None:
        from nodepool.plan.images import BuildWait
        from nodepool.zk.caches import ImageCache

        self._zk = zk
        self._name = image
        self._changed = threading.Event()
        self._cache = ImageCache(zk.client)
        self._cache.add_listener(lambda _: self._changed.set())
        if not self._cache.wait_ready(session.CONNECT_SECONDS):
            raise CommandError("the images could not be read from ZooKeeper in time")
        self._wait = BuildWait(self._image(), source)

    def _image(self) -> ImageView:
        return self._cache.snapshot().image(self._name)

    def run(self) -> int:
        """Show progress until the end; returns 0. Raises CommandError: the build has failed."""
        with session.progress(sys.stdout) as draw:
            while (found := self._wait.look(image := self._image())) is None:
                status = builder_status(self._zk.client)
                items = [_build_item(build, self._name, status) for build in self._wait.running(image)]
                draw(items or [Item(self._name, None, "", "waiting for a builder")])
                self._changed.wait(_LOOK_SECONDS)
                self._changed.clear()
        if not found.good:
            raise CommandError(found.text)
        print(found.text)
        return 0


def _build_item(build: BuildView, image: str, status: BuilderStatus) -> Item:
    reported = status.build(image, build.id)
    seconds = None if build.record is None else tables.build_duration(build.record, wall_time())
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
    for known in (build_id, full_id(build_id)):
        if image is not None and known in image.builds:
            return image, image.builds[known]
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


# The backup (rule F-4).

#: Of the file: who logs in to nodes how is in it.
MODE: Final = 0o600


def do_export_image_data(options: argparse.Namespace) -> int:
    """``nodepool export-image-data``"""
    from nodepool.zk import images

    with open_zookeeper(options) as zk:
        exported = images.export_images(zk.client)
    usable, problems = images.sort_out(exported)
    for problem in problems:
        warn(f"Not exported: {problem}")
    try:
        write_file(options.path, json.dumps(usable))
    except OSError as error:
        raise CommandError(f"{options.path} cannot be written: {error.strerror}") from error
    terminal.hint(f"Wrote {counted(len(usable), 'record')} of images to {options.path}")
    return 0


def write_file(path: str, text: str) -> None:
    """Write a file that only its owner reads. The file that was there stays as it is until all is written.

    :raises OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        # A pipe or a terminal; nothing of it can be kept.
        target.write_text(text, encoding="utf-8")
        return
    app.write_file(target, text.encode(), MODE)


def do_import_image_data(options: argparse.Namespace) -> int:
    """``nodepool import-image-data``. Nothing is written unless all of the file can be.

    :raises CommandError: the file is no export, or ZooKeeper has other records already.
    """
    from nodepool.zk import images

    data = read_file(options.path)
    try:
        images.check(data)
        with open_zookeeper(options) as zk:
            if running := read_hosts(zk.client, "builder"):
                warn(f"A builder is running on {', '.join(running)}: stop it before an import")
            images.import_images(zk.client, data, replace=options.replace)
    except images.Unusable as problem:
        raise CommandError(f"{options.path}: {problem}; nothing was imported") from None
    except images.Different as problem:
        raise CommandError(f"{problem}; nothing was imported (--replace overwrites)") from None
    terminal.hint(f"Put {counted(len(data), 'record')} of {options.path} into ZooKeeper")
    return 0


def read_file(path: str) -> dict[str, Any]:
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise CommandError(f"{path} must hold a JSON object, path of a znode -> what is stored there")
    return data
