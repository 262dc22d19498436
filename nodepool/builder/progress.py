# SPDX-License-Identifier: Apache-2.0
"""What the parts of a builder share: first what all of them use, then the builds and uploads that run.

How far these are is for status records, commands and metrics: first builds, by the steps that their output shows, then
uploads with their speed.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from nodepool.builder.image_files import ImageFiles
from nodepool.clock import monotonic
from nodepool.metrics.registry import REGISTRY, Registry
from nodepool.model.image import ImagesView
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.images import ImageStore

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.runtime.providers import Providers

#: Default of ``--stop-timeout``: how long builds may go on after SIGINT, in seconds.
STOP_TIMEOUT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class BuilderOptions:
    """What the command line says.

    :param build_workers: builds at a time.
    :param upload_workers: uploads at a time.
    :param fake: build small files, without diskimage-builder.
    :param stop_timeout: how long builds may go on after SIGINT, in seconds.
    :param clean_orphans: remove files of builds that have no record at once.
    """

    build_workers: int = 1
    upload_workers: int = 4
    fake: bool = False
    stop_timeout: float = STOP_TIMEOUT_SECONDS
    clean_orphans: bool = False


@dataclass(frozen=True)
class Shared:
    """What all parts of a builder use.

    :param images: all images as they are known; None = not all of them are known yet.
    :param host: FQDN of this host.
    """

    client: ZooKeeperClient
    store: ImageStore
    images: Callable[[], ImagesView | None]
    config: Callable[[], Config]
    providers: Providers
    files: ImageFiles
    builder_id: str
    options: BuilderOptions = BuilderOptions()
    registry: Registry = REGISTRY
    builds: Running[BuildKey, BuildProgress] = field(default_factory=lambda: Running())
    uploads: Running[UploadKey, Meter] = field(default_factory=lambda: Running())
    host: str = field(default_factory=socket.getfqdn)
    #: Image -> file that is to be imported, and is not on this host.
    lacking_files: dict[str, str] = field(default_factory=dict)


class BuildKey(NamedTuple):
    """One build that runs."""

    image: str
    build_id: str


class UploadKey(NamedTuple):
    """One upload, e.g. in status records ``fedora/<build id>/cloud/0000000001``."""

    image: str
    build_id: str
    provider: str
    upload_id: str


K = TypeVar("K", BuildKey, UploadKey)
W = TypeVar("W", "BuildProgress", "Meter")


class Running(Generic[K, W]):
    """Builds or uploads of this builder. Any thread, nothing blocks: each change is one operation on a dictionary."""

    def __init__(self) -> None:
        self._work: dict[K, W] = {}
        #: Called, in any thread, when one begins, ends or gets on; must neither block nor raise.
        self.on_change: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def running(self, key: K, work: W) -> Iterator[W]:
        """Inside, it runs."""
        self._work[key] = work
        self.on_change()
        try:
            yield work
        finally:
            del self._work[key]
            self.on_change()

    def current(self) -> dict[K, W]:
        """All that run, the oldest first."""
        return dict(self._work)

    def ids(self) -> set[str]:
        """Ids of the builds that they are about."""
        return {key.build_id for key in self.current()}

    def as_status(self) -> dict[str, dict[str, object]]:
        """For the status record of the builder, in the form that commands read."""
        return {"/".join(key): work.as_status() for key, work in self.current().items()}


# The progress of a build, from the output of diskimage-builder. It is pure: time is an argument.

#: Before the first word of diskimage-builder.
STARTING: Final = "starting"

#: It writes the time before each line, unless ``DIB_NO_TIMESTAMP`` says not to.
_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \| ")
#: A script begins; its phase is the last directory of ``/tmp/in_target.d/pre-install.d/10-foo``.
_SCRIPT: Final = re.compile(r"^dib-run-parts Running \S*?([\w.-]+)\.d/([\w.-]+)$")
#: Start of a line -> the step that begins with it.
_STEPS: Final = (
    ("Converting image using ", "converting"),
    ("Image file ", "finishing"),
    ("Build completed successfully", "completed"),
    ("Fetching ", "fetching"),
    ("Copying ", "copying"),
    ("Checking ", "checking"),
)


def step_of(line: str) -> str | None:
    """The step that a line of output tells the begin of; None: it tells none."""
    text = _TIME.sub("", line)
    if text.startswith("+"):
        # What the shell traces has the texts, too, as arguments of echo.
        return None
    match = _SCRIPT.match(text)
    if match is not None:
        return match[1]
    return next((step for start, step in _STEPS if text.startswith(start)), None)


class BuildProgress:
    """The steps of one build. Any thread may look at it.

    :param now: when it begins, in seconds since the epoch.
    :param estimate: how long all of it may take, in seconds; None = not known.
    """

    def __init__(self, now: float, estimate: float | None = None) -> None:
        self.begun = now
        self.estimate = estimate
        #: What is being done.
        self.step = STARTING
        #: Since when, in seconds since the epoch.
        self.since = now
        #: Parts of the build that have ended, and how many seconds each took.
        self.ended: list[tuple[str, float]] = []

    def read(self, line: str, now: float) -> bool:
        """Take a line of output. True: another step has begun."""
        step = step_of(line)
        if step is None or step == self.step:
            return False
        self.end(now)
        self.step, self.since = step, now
        return True

    def end(self, now: float) -> None:
        """The present step has ended."""
        self.ended.append((self.step, max(0.0, now - self.since)))

    def as_status(self) -> dict[str, object]:
        return {"step": self.step, "since": self.begun, "step_since": self.since, "estimate": self.estimate}


# Running uploads, with their progress and speed.

#: Between two looks of others, in seconds.
SHOW_SECONDS: Final = 0.5


class Meter:
    """How far one upload is, and how fast since it began. For the thread that uploads; any thread may look at it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._done = 0
        #: When it began, what was there by then, and when it was shown last.
        self._begun = self._shown = monotonic()
        self._before = 0

    def report(self, done: int, total: int) -> bool:
        """Bytes that are uploaded, as `Report` of `nodepool.driver.framework.uploads`. Does not block.

        :return: True now and then: it is worth to be shown.
        """
        now = monotonic()
        if done < self._done:
            # It begins again.
            self._begun, self._before, self._shown = now, done, -math.inf
        self._done, self._size = done, total
        due = now - self._shown >= SHOW_SECONDS
        if due:
            self._shown = now
        return due

    def as_status(self) -> dict[str, object]:
        """Does not block."""
        seconds, done = monotonic() - self._begun, self._done
        speed = (done - self._before) / seconds if seconds > 0 else 0.0
        percent = 100.0 * done / self._size if self._size > 0 else 0.0
        return {"percent": round(percent, 1), "bytes_per_second": round(max(0.0, speed)), "size": self._size}
