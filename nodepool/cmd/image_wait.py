# SPDX-License-Identifier: Apache-2.0
"""Waiting for a build or for uploads, for ``--wait`` of ``nodepool image-build`` and ``image-upload``.

First what is waited for, then how its progress is shown.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.session import CONNECT_SECONDS
from nodepool.listing import table
from nodepool.listing.images import build_duration, build_name
from nodepool.listing.table import printable
from nodepool.listing.terminal import console_of
from nodepool.model import event
from nodepool.plan.images import BuildWait, End, provider_uploads, uploads_end
from nodepool.zk.caches import ImageCache
from nodepool.zk.images import builder_status, read_images

if TYPE_CHECKING:
    from nodepool.model.image import BuildView, ImageView
    from nodepool.model.status import BuilderStatus
    from nodepool.zk.zookeeper import ZooKeeper

#: Between two looks at what builders tell, in seconds. That a record has changed is noticed at once.
_LOOK_SECONDS: Final = 1.0

#: So much of a build's id stands beside a bar.
_SHORT_ID: Final = 8


class _Follower:
    """Follows one image until something has ended.

    :raises CommandError: ZooKeeper does not answer.
    """

    def __init__(self, zk: ZooKeeper, image: str) -> None:
        self._zk = zk
        self._name = image
        self._changed = threading.Event()
        self._cache = ImageCache(zk.client)
        self._cache.add_listener(lambda _: self._changed.set())
        if not self._cache.wait_ready(CONNECT_SECONDS):
            raise CommandError("the images could not be read from ZooKeeper in time")

    def image(self) -> ImageView:
        """The image as it is now."""
        return self._cache.snapshot().image(self._name)

    def until(self, end: Callable[[ImageView], End | None], items: Callable[[ImageView], Sequence[Item]]) -> int:
        """Show progress until the end; returns 0. Raises CommandError: the end is a bad one."""
        with progress(sys.stdout) as show:
            while (found := end(image := self.image())) is None:
                show(items(image))
                self._changed.wait(_LOOK_SECONDS)
                self._changed.clear()
        if not found.good:
            raise CommandError(found.text)
        print(found.text)
        return 0

    def status(self) -> BuilderStatus:
        """How far all builders are now."""
        return builder_status(self._zk.client)


def build(zk: ZooKeeper, image: str, builders: Sequence[str]) -> int:
    """Ask for a build and wait for its end; returns the exit status.

    :param builders: hosts of those that run.
    :raises CommandError: the build has failed, or nobody begins it.
    """
    follower = _Follower(zk, image)
    before = follower.image()
    zk.images.request_build(image)
    if not builders:
        raise CommandError(f"No builder is running: the build of {image} waits for one")
    if before.paused:
        raise CommandError(f"Image {image} is paused: its build waits for nodepool image-unpause {image}")
    wait = BuildWait(before)
    return follower.until(wait.look, lambda view: _build_items(wait.running(view), image, follower.status()))


def _build_items(running: Sequence[BuildView], image: str, status: BuilderStatus) -> list[Item]:
    if not running:
        return [Item(image, None, "", "waiting for a builder")]
    return [_build_item(build, image, status) for build in running]


def _build_item(build: BuildView, image: str, status: BuilderStatus) -> Item:
    told = status.build(image, build.id)
    seconds = None if build.record is None else build_duration(build.record, wall_time())
    took = "" if seconds is None else event.short(seconds)
    percent = None
    if seconds is not None and told.estimate:
        # The last build took as long; this one is done when it is done.
        percent = min(99.0, 100.0 * seconds / told.estimate)
        took = f"{took} of about {event.short(told.estimate)}"
    step = told.step or "building"
    short = build_name(image, build.id[:_SHORT_ID])
    return Item(build_name(image, build.id), percent, f"{step} {took}".strip(), step, short)


def uploads(zk: ZooKeeper, image: str, providers: Sequence[str], builders: Sequence[str]) -> int:
    """Wait until providers have the newest build; returns the exit status.

    :param builders: hosts of those that run.
    :raises CommandError: nobody uploads.
    """
    follower = _Follower(zk, image)
    if uploads_end(follower.image(), providers) is None and not builders:
        raise CommandError(f"No builder is running: the uploads of {image} wait for one")
    return follower.until(
        lambda view: uploads_end(view, providers), lambda view: _upload_items(view, providers, follower.status())
    )


def show_uploads(zk: ZooKeeper, image: str, providers: Sequence[str]) -> None:
    """Print how far providers are with the newest build."""
    view = read_images(zk.client).image(image)
    for item in _upload_items(view, providers, builder_status(zk.client)):
        print(as_line(item))


def _upload_items(image: ImageView, providers: Sequence[str], status: BuilderStatus) -> list[Item]:
    items = []
    for one in provider_uploads(image, providers):
        failures = f", {one.failures} failed" if one.failures else ""
        if one.upload is None:
            items.append(Item(one.provider, None, "", f"waiting{failures}"))
        elif one.ready:
            items.append(Item(one.provider, 100.0, "ready", "ready"))
        else:
            told = status.upload(image.name, one.upload.build_id, one.provider, one.upload.key)
            speed = "" if told.bytes_per_second is None else table.speed(told.bytes_per_second)
            size = "" if told.size is None else f"of {table.size(told.size)}"
            items.append(Item(one.provider, told.percent, f"{size} {speed}".strip(), f"uploading{failures}"))
    return items


# Progress of work that a command waits for: bars on a terminal, elsewhere a line for each 10%.

_BAR: Final = 20


@dataclass(frozen=True)
class Item:
    """One piece of work.

    :param short: name beside a bar, where there is little room; empty = ``name``.
    :param percent: None = it is not known how much there is to do.
    :param text: what else there is to show, e.g. the present step. It may change with every look.
    :param state: what changes rarely, e.g. the step; a change is worth a line when ``percent`` is None.
    """

    name: str
    percent: float | None
    text: str
    state: str = ""
    short: str = ""


@contextlib.contextmanager
def progress(stream: TextIO) -> Iterator[Callable[[Sequence[Item]], None]]:
    """Gives the function that shows how far the work is. For one thread.

    On a terminal the bars are removed in the end. What is logged meanwhile stands above them.
    """
    printed: dict[str, object] = {}

    def print_lines(items: Sequence[Item]) -> None:
        for item in items:
            mark = item.state if item.percent is None else int(item.percent) // 10
            if printed.get(item.name) != mark:
                printed[item.name] = mark
                print(as_line(item), file=stream, flush=True)

    if not stream.isatty():
        yield print_lines
        return
    from rich.live import Live
    from rich.text import Text

    logs = [handler for handler in logging.getLogger().handlers if isinstance(handler, logging.StreamHandler)]
    logs = [handler for handler in logs if handler.stream is sys.stderr and sys.stderr.isatty()]
    with contextlib.ExitStack() as stack:
        live = Live(console=console_of(stream), auto_refresh=False, transient=True, redirect_stderr=bool(logs))
        for handler in logs:
            stack.callback(handler.setStream, handler.stream)
        stack.enter_context(live)
        for handler in logs:
            handler.setStream(sys.stderr)
        yield lambda items: live.update(Text("\n".join(map(_bar, items)), no_wrap=True, overflow="crop"), refresh=True)


def as_line(item: Item) -> str:
    """A line without a bar."""
    return _line(item.name, item)


def _line(name: str, item: Item) -> str:
    percent = "" if item.percent is None else f" {int(item.percent):3d}%"
    return printable(f"{name}:{percent} {item.text or item.state}".rstrip())


def _bar(item: Item) -> str:
    name = item.short or item.name
    if item.percent is None:
        return _line(name, item)
    done = int(item.percent * _BAR / 100)
    bar = "#" * done + "." * (_BAR - done)
    return printable(f"{name} [{bar}] {int(item.percent):3d}% {item.text or item.state}".rstrip())
